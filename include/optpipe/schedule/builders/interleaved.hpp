#pragma once

#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/construct/interleave.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {

/// Whether stage s is on rank s mod R, and all ranks have equally many stages.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool is_loop_placed(const Graph& g) {
    if (g.stages() % g.ranks() != 0) return false;
    for (const stage s : g.all_stages())
        if (g.rank_of(s).position() != s.position() % g.ranks()) return false;
    return true;
}

/// The forwards and the backwards of a rank in interleaved 1F1B. Forwards and backwards are numbered separately, in the
/// order in which they run. Operations of missing microbatches have numbers, too. Contract: stage s on rank s mod R.
class interleaved_lane {
public:
    template <pipeline_graph Graph>
    constexpr interleaved_lane(const Graph& g, rank r)
        : rank_{r}, ranks_{g.ranks()}, chunks_{g.stages() / ranks_}, microbatches_{g.microbatches()} {}

    /// Number of forwards.
    [[nodiscard]] constexpr std::size_t size() const {
        return chunks_ * ((microbatches_ + ranks_ - 1) / ranks_) * ranks_;
    }
    /// Number of forwards before the first backward.
    [[nodiscard]] constexpr std::size_t warm_up() const {
        const auto behind = ranks_ - 1 - rank_.position();
        return std::min(chunks_ == 1 ? behind : 2 * behind + (chunks_ - 1) * ranks_, size());
    }
    /// Appends the k-th forward or backward, if its microbatch exists.
    OPTPIPE_CONSTEXPR void add(std::size_t k, operation_kind kind, std::vector<operation>& lane) const {
        const auto m = k / (ranks_ * chunks_) * ranks_ + k % ranks_;
        if (m >= microbatches_) return;
        const auto place = k % (ranks_ * chunks_) / ranks_;
        const auto chunk = kind == operation_kind::forward ? place : chunks_ - 1 - place;
        lane.push_back({stage{chunk * ranks_ + rank_.position()}, kind, microbatch{m}});
    }

private:
    rank rank_;
    std::size_t ranks_;
    std::size_t chunks_;
    std::size_t microbatches_;
};

/// Interleaved 1F1B (Narayanan et al., 2021, section 2.2) in loop placement, with v stages per rank. Microbatches go in
/// groups of R. A group's forwards pass a rank's first stage, then the second, and onwards. The backwards pass the
/// stages in reverse. Rank r does 2(R − 1 − r) + (v − 1)R forwards. Rank r then alternates one forward and one full
/// backward. With v = 1, the schedule is 1F1B.
///
/// Supports any number of microbatches. If R doesn't divide M, the order is that of the next multiple of R, without the
/// missing microbatches. Leaving out microbatches never makes ranks wait for each other in a cycle. Rank r holds at
/// most 2(R − 1 − r) + (v − 1)R + 1 stashes of a stage.
struct interleaved_builder {
    static constexpr std::string_view name = "interleaved";

    /// Contract: stage s on rank s mod R.
    template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> operator()(const Graph& g) const {
        OPTPIPE_EXPECT(is_loop_placed(g), "interleaved 1F1B: needs stage s on rank s mod R");
        compute_lanes lanes(g.ranks());
        for (const rank r : g.all_ranks())
            fill(g, r, lanes[r]);
        return *interleave(g, lanes);
    }
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (!is_loop_placed(p.graph))
            return does_not_apply(
                "interleaved 1F1B is for loop placement: stage s on rank s mod R, as many on each rank");
        return (*this)(p.graph);
    }

private:
    template <pipeline_graph Graph> static constexpr void fill(const Graph& g, rank r, std::vector<operation>& lane) {
        const interleaved_lane numbered{g, r};
        const auto all = numbered.size();
        const auto warm_up = numbered.warm_up();
        for (std::size_t k = 0; k < warm_up; ++k)
            numbered.add(k, operation_kind::forward, lane);
        for (std::size_t k = 0; k < all; ++k) {
            if (warm_up + k < all) numbered.add(warm_up + k, operation_kind::forward, lane);
            numbered.add(k, operation_kind::backward, lane);
        }
    }
};
inline constexpr interleaved_builder interleaved{};

} // namespace optpipe
