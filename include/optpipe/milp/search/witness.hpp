#pragma once

#include "optpipe/core/contract.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe::milp {

/// A known best point, for tests. A search must keep this point until an incumbent is equally good.
///
/// *Semantics.* `active()` tells whether there is a witness point. `point()` returns the point, with one value per
/// variable. The search calls `cut_off(place)` if it cuts off the point; `place` names a part of the search.
template <class W> concept witness = std::copyable<W> && requires(const W& w, const char* place) {
    { W::active() } -> std::same_as<bool>;
    { w.point() } -> std::convertible_to<std::span<const double>>;
    {w.cut_off(place)};
};

struct no_witness {
    [[nodiscard]] static constexpr bool active() { return false; }
    [[nodiscard]] static std::span<const double> point() { return {}; }
    static void cut_off(const char*) {}
};
static_assert(witness<no_witness> && std::is_empty_v<no_witness>);

} // namespace optpipe::milp
