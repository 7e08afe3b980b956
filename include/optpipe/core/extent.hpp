#pragma once

#include <cstddef>
#include <limits>

namespace optpipe {

/// An extent that is known only at run time, as `std::dynamic_extent` is for spans.
inline constexpr std::size_t dynamic = std::numeric_limits<std::size_t>::max();

/// The product of extents; `dynamic` if any of them is.
template <class... Extents> [[nodiscard]] constexpr std::size_t extent_product(Extents... extents) {
    std::size_t product = 1;
    bool known = true;
    ((known = known && extents != dynamic, product *= known ? extents : 1), ...);
    return known ? product : dynamic;
}

/// A count that costs nothing where it is static.
template <std::size_t Count> struct extent {
    constexpr extent() = default;
    constexpr explicit extent(std::size_t) {}
    [[nodiscard]] static constexpr std::size_t size() { return Count; }
    friend constexpr bool operator==(extent, extent) = default;
};

template <> struct extent<dynamic> {
    constexpr extent() = default;
    constexpr explicit extent(std::size_t count) : count_{count} {}
    [[nodiscard]] constexpr std::size_t size() const { return count_; }
    friend constexpr bool operator==(extent, extent) = default;

private:
    std::size_t count_ = 0;
};

} // namespace optpipe
