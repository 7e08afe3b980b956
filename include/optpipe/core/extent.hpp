#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <limits>

namespace optpipe {

/// Stands for an extent known only at run time, like `std::dynamic_extent` for spans.
inline constexpr std::size_t dynamic = std::numeric_limits<std::size_t>::max();

namespace extents {
enum kind : std::size_t { dynamic = optpipe::dynamic };
}
/// An extent as the argument of a class template: the number, or `extents::dynamic`. Compilers spell types out in
/// errors, and would print a dynamic extent as 18446744073709551615. With named extents, `graph<4, dynamic>` is
/// `basic_graph<4, extents::dynamic, …>`. CUDA's nvcc 13.0 rejects a variable template whose type depends on the
/// template's argument.
template <std::size_t Count> [[nodiscard]] consteval auto named_extent() {
    if constexpr (Count == dynamic)
        return extents::dynamic;
    else
        return Count;
}

/// The product of extents, or `dynamic` if any extent is dynamic.
template <class... Extents> [[nodiscard]] constexpr std::size_t extent_product(Extents... extents) {
    std::size_t product = 1;
    bool known = true;
    ((known = known && extents != dynamic, product *= known ? extents : 1), ...);
    return known ? product : dynamic;
}

/// A count that is stored only if it is dynamic.
template <auto Count> struct basic_extent {
    constexpr basic_extent() = default;
    constexpr explicit basic_extent(std::size_t) {}
    [[nodiscard]] static constexpr std::size_t size() { return Count; }
    friend constexpr bool operator==(basic_extent, basic_extent) = default;
};

template <> struct basic_extent<extents::dynamic> {
    constexpr basic_extent() = default;
    constexpr explicit basic_extent(std::size_t count) : count_{count} {}
    [[nodiscard]] constexpr std::size_t size() const { return count_; }
    friend constexpr bool operator==(basic_extent, basic_extent) = default;

private:
    std::size_t count_ = 0;
};

template <std::size_t Count> using extent = basic_extent<named_extent<Count>()>;

} // namespace optpipe
