#pragma once

#include "optpipe/core/standard.hpp"

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace optpipe {

/// An index of one kind, counted from 0. A rank, for example, can't be passed as a stage.
template <class Tag> class index {
public:
    constexpr index() = default;
    template <std::integral Integer>
    constexpr explicit index(Integer value) : value_{static_cast<std::uint32_t>(value)} {}

    [[nodiscard]] constexpr std::uint32_t value() const { return value_; }
    /// The position in an array with one entry per index.
    [[nodiscard]] constexpr std::size_t position() const { return value_; }

    constexpr index& operator++() {
        ++value_;
        return *this;
    }
    [[nodiscard]] constexpr index next() const { return index{value_ + 1}; }
    /// Requires an index above 0.
    [[nodiscard]] constexpr index previous() const { return index{value_ - 1}; }

    friend constexpr auto operator<=>(index, index) = default;

private:
    std::uint32_t value_ = 0;
};

/// One device (a GPU).
using rank = index<struct rank_tag>;
/// One piece (chunk) of the model, in model order.
using stage = index<struct stage_tag>;
/// One of the equal parts that a batch is cut into.
using microbatch = index<struct microbatch_tag>;

/// The half-open range of indices [0, count), for range-based for loops.
template <class Index> class index_range {
public:
    class iterator {
    public:
        constexpr explicit iterator(Index at) : at_{at} {}
        constexpr Index operator*() const { return at_; }
        constexpr iterator& operator++() {
            ++at_;
            return *this;
        }
        friend constexpr bool operator==(iterator, iterator) = default;

    private:
        Index at_;
    };

    constexpr explicit index_range(std::size_t count) : count_{count} {}
    [[nodiscard]] constexpr iterator begin() const { return iterator{Index{0}}; }
    [[nodiscard]] constexpr iterator end() const { return iterator{Index{count_}}; }
    [[nodiscard]] constexpr std::size_t size() const { return count_; }

private:
    std::size_t count_;
};

} // namespace optpipe
