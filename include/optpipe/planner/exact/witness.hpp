#pragma once

#include "optpipe/planner/exact/literal.hpp"

#include <concepts>
#include <span>
#include <type_traits>

namespace optpipe::exact {

/// A known solution that no conclusion may contradict: for tests.
///
/// *Semantics.* `active()` says whether there is one; `holds(fact)` whether it has this property; `contradicted` is
/// called with what followed from facts that all hold, and doesn't hold itself.
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

} // namespace optpipe::exact
