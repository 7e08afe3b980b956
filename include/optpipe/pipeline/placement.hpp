#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"

#include <concepts>
#include <cstddef>
#include <utility>

namespace optpipe {

template <class P> concept has_stage_extent = requires(std::size_t ranks) {
    { P::stage_extent(ranks) } -> std::same_as<std::size_t>;
    typename extent<P::stage_extent(1)>;
};
template <class P> concept has_stages = requires(const P& p, std::size_t ranks) {
    { p.stages(ranks) } -> std::same_as<std::size_t>;
};
template <class P> concept has_rank_of = requires(const P& p, stage s, std::size_t ranks) {
    { p.rank_of(s, ranks) } -> std::same_as<rank>;
};

/// Defines which rank holds which stage.
///
/// Semantics: `stages(R)` is the number of stages on R ranks. `rank_of(s, R)` is below R for every stage s, and doesn't
/// change. `stage_extent(R)` is `stages(R)` as a compile-time extent, or `dynamic`. `stage_extent(dynamic)` is
/// `dynamic`.
template <class P> concept placement_policy = std::regular<P> && has_stage_extent<P> && has_stages<P> && has_rank_of<P>;

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class P> consteval bool check_placement() {
    static_assert(std::regular<P>, "placement: must be default constructible, copyable and equality comparable");
    static_assert(has_stage_extent<P>,
                  "placement: needs `static constexpr std::size_t stage_extent(std::size_t ranks)`");
    static_assert(has_stages<P>, "placement: needs `std::size_t stages(std::size_t ranks) const`");
    static_assert(has_rank_of<P>, "placement: needs `rank rank_of(stage, std::size_t ranks) const`");
    return placement_policy<P>;
}

namespace placement {

/// One stage per rank, in order.
struct linear {
    [[nodiscard]] static constexpr std::size_t stage_extent(std::size_t ranks) { return ranks; }
    [[nodiscard]] constexpr std::size_t stages(std::size_t ranks) const { return ranks; }
    [[nodiscard]] constexpr rank rank_of(stage s, std::size_t) const { return rank{s.value()}; }
    friend constexpr bool operator==(const linear&, const linear&) = default;
};

/// Stage s is on rank s mod R, with `Chunks` stages per rank (interleaved 1F1B, PipeOffload).
template <auto Chunks> struct basic_loop {
    basic_extent<Chunks> chunks{};

    constexpr basic_loop() = default;
    constexpr explicit basic_loop(std::size_t chunks_per_rank) : chunks{chunks_per_rank} {}
    [[nodiscard]] static constexpr std::size_t stage_extent(std::size_t ranks) {
        return extent_product(ranks, std::size_t{Chunks});
    }
    [[nodiscard]] constexpr std::size_t stages(std::size_t ranks) const { return ranks * chunks.size(); }
    [[nodiscard]] constexpr rank rank_of(stage s, std::size_t ranks) const { return rank{s.position() % ranks}; }
    friend constexpr bool operator==(const basic_loop&, const basic_loop&) = default;
};
template <std::size_t Chunks = dynamic> using loop = basic_loop<named_extent<Chunks>()>;

/// Two stages per rank, in the order 0 … … 0 (ZB-V and Controllable Memory). The stage with the longest
/// lifespan and the stage with the shortest lifespan share a rank.
struct v {
    [[nodiscard]] static constexpr std::size_t stage_extent(std::size_t ranks) {
        return extent_product(ranks, std::size_t{2});
    }
    [[nodiscard]] constexpr std::size_t stages(std::size_t ranks) const { return 2 * ranks; }
    [[nodiscard]] constexpr rank rank_of(stage s, std::size_t ranks) const {
        return rank{s.position() < ranks ? s.position() : 2 * ranks - 1 - s.position()};
    }
    friend constexpr bool operator==(const v&, const v&) = default;
};

/// Any placement, listed stage by stage.
template <auto Stages> struct basic_map {
    per_stage<rank, Stages> ranks{};

    constexpr basic_map() = default;
    constexpr explicit basic_map(per_stage<rank, Stages> rank_of_stage) : ranks{std::move(rank_of_stage)} {}
    [[nodiscard]] static constexpr std::size_t stage_extent(std::size_t) { return Stages; }
    [[nodiscard]] constexpr std::size_t stages(std::size_t) const { return ranks.size(); }
    [[nodiscard]] constexpr rank rank_of(stage s, std::size_t) const { return ranks[s]; }
    friend bool operator==(const basic_map&, const basic_map&) = default;
};
template <std::size_t Stages = dynamic> using map = basic_map<named_extent<Stages>()>;

static_assert(placement_policy<linear> && placement_policy<loop<>> && placement_policy<loop<2>> &&
              placement_policy<v> && placement_policy<map<>> && placement_policy<map<8>>);

} // namespace placement
} // namespace optpipe
