#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {

/// The compute operations of each rank, in their order. The extent is dynamic because gcc 12 can't return an array of
/// vectors in a constant expression.
using compute_lanes = per_rank<std::vector<operation>>;

namespace detail {

/// Tracks done and ready operations, without times. An operation is ready if its dependencies are done.
template <pipeline_graph Graph> class dependency_tracker {
public:
    /// Keeps a reference to the graph.
    constexpr explicit dependency_tracker(const Graph& g) : graph_{&g}, number_{g}, done_(number_.size(), 0) {}

    constexpr bool ready(const operation& op) const { return !missing_input(op); }
    /// An input that isn't done yet; empty if the operation is ready.
    constexpr std::optional<operation> missing_input(const operation& op) const {
        if (const auto own = own_input_of(op, false); own && !done(*own)) return own;
        std::optional<operation> missing;
        const auto look_at = [&](const operation& before) {
            const bool is_there =
                done(before) || (is_gradient(before.kind) && done(backward(before.stage, before.microbatch)));
            if (!is_there && !missing) missing = before;
        };
        if (op.kind == operation_kind::forward)
            graph_->for_each_edge_into(op.stage, [&](const edge& e) { look_at(forward(e.from, op.microbatch)); });
        if (is_gradient(op.kind))
            graph_->for_each_edge_out_of(op.stage,
                                         [&](const edge& e) { look_at(backward_input(e.to, op.microbatch)); });
        return missing;
    }
    constexpr void finish(const operation& op) { done_[number_(op)] = 1; }

private:
    constexpr bool done(const operation& op) const { return done_[number_(op)] != 0; }

    const Graph* graph_;
    operation_numbering<Graph> number_;
    std::vector<unsigned char> done_; // clang 14 has no constexpr std::vector<bool>
};

/// The number of operations that start together at position `at` of a lane: 2 for a pair, else 1.
template <class Lane> constexpr std::size_t width_on_lane(const Lane& lane, std::size_t at) {
    const bool is_pair = lane[at].is_paired && lane[at].kind == operation_kind::forward && at + 1 < lane.size();
    return is_pair ? 2 : 1;
}
/// The operation at position `at` of a lane, and one of its missing inputs. If the position has a pair, the operation
/// is the part that lacks an input. The input is empty if the operation or the pair is ready.
template <pipeline_graph Graph>
constexpr std::pair<operation, std::optional<operation>>
missing_on_lane(const dependency_tracker<Graph>& tracker, const std::vector<operation>& lane, std::size_t at) {
    const auto missing = tracker.missing_input(lane[at]);
    if (missing || width_on_lane(lane, at) == 1) return {lane[at], missing};
    return {lane[at + 1], tracker.missing_input(lane[at + 1])};
}

} // namespace detail

/// Merges the lanes of all ranks into one order that respects every dependency. The parts of a pair are neighbours on
/// their lane. A pair waits for the inputs of both parts. Refused (`not_executable`) if lanes wait for each other in a
/// cycle. The refusal names a waiting rank, and the number of its operations that were done. Refused if the number of
/// lanes isn't the number of ranks, or if an operation isn't in the graph.
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_order<Graph>> interleave(const Graph& g, const compute_lanes& lanes) {
    const auto refuse = [](const bounded_text<200>& sentence, rank r, std::size_t position) {
        return refusal{.reason = refusal_reason::not_executable, .sentence = sentence, .rank = r, .position = position};
    };
    if (lanes.size() != g.ranks())
        return refuse({"there are lanes of ", lanes.size(), " ranks, and the graph has ", g.ranks()}, {}, 0);
    basic_order<Graph> merged{g, {}};
    std::size_t operations = 0;
    const operation_numbering<Graph> number{g};
    for (const rank r : g.all_ranks()) {
        operations += lanes[r].size();
        for (std::size_t i = 0; i < lanes[r].size(); ++i)
            if (!number.contains(lanes[r][i])) return refuse("no such stage or microbatch", r, i);
    }
    merged.operations.reserve(operations);
    detail::dependency_tracker<Graph> tracker{g};
    per_rank<std::size_t, Graph::rank_extent> next(g.ranks());
    for (bool moved = true; moved;) {
        moved = false;
        for (const rank r : g.all_ranks())
            while (next[r] < lanes[r].size() && !detail::missing_on_lane(tracker, lanes[r], next[r]).second) {
                for (const auto end = next[r] + detail::width_on_lane(lanes[r], next[r]); next[r] < end; ++next[r]) {
                    tracker.finish(lanes[r][next[r]]);
                    merged.operations.push_back(lanes[r][next[r]]);
                }
                moved = true;
            }
    }
    for (const rank r : g.all_ranks())
        if (next[r] < lanes[r].size()) {
            const auto [op, missing] = detail::missing_on_lane(tracker, lanes[r], next[r]);
            return refuse({"the ranks wait for each other in a cycle: ", spelling(op), " (rank ", r.value(),
                           ") comes before ", spelling(*missing), ", which it waits for"},
                          r, next[r]);
        }
    return merged;
}

} // namespace optpipe
