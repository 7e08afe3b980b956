#pragma once

#include "optpipe/planner/cp/literal.hpp"

#include <concepts>
#include <span>
#include <type_traits>

namespace optpipe::cp {

/// A known solution that no deduction may contradict; for tests.
///
/// *Semantics.* `active()` tells whether there is a known solution; `holds(fact)` tells whether the fact is true of it.
/// `contradicted` is called with the kind of a deduction that doesn't hold although all its premises do.
template <class W> concept witness = std::copyable<W> && requires(const W& w, const fact& f, const char* place) {
    { W::active() } -> std::same_as<bool>;
    { w.holds(f) } -> std::same_as<bool>;
    {w.contradicted(place)};
};

struct no_witness {
    [[nodiscard]] static constexpr bool active() { return false; }
    [[nodiscard]] static bool holds(const fact&) { return true; }
    static void contradicted(const char*) {}
};
static_assert(witness<no_witness> && std::is_empty_v<no_witness>);

} // namespace optpipe::cp
