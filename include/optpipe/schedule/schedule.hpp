#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// The largest number of operations of a stage and microbatch: F, I, W, RECOMPUTE and two transfers.
inline constexpr std::size_t most_operations_per_cell = 6;

/// The largest number of operations in a schedule of this graph.
template <pipeline_graph Graph>
inline constexpr std::size_t operation_extent = extent_product(most_operations_per_cell, Graph::stage_extent,
                                                               Graph::microbatch_extent);

template <pipeline_graph Graph> using operation_list = bounded_vector<operation, operation_extent<Graph>>;

/// A sequence of all operations. The sequence determines the order on each lane, engine and link, and the order of
/// memory use. In the sequence, every operation comes after its inputs. `simulate` derives the times.
template <pipeline_graph Graph> struct basic_order {
    using graph_type = Graph;
    Graph graph{};
    operation_list<Graph> operations{};
};

struct timed_operation {
    operation op{};
    duration start{};
    duration end{};
    friend constexpr bool operator==(const timed_operation&, const timed_operation&) = default;
};

/// A schedule contains every operation once, with its start and end.
template <pipeline_graph Graph> struct basic_schedule {
    using graph_type = Graph;
    Graph graph{};
    bounded_vector<timed_operation, operation_extent<Graph>> operations{};
};

using order = basic_order<any_graph>;
using schedule = basic_schedule<any_graph>;

/// Orders operations by start, then by end, then by kind, stage and microbatch. Contract: no time is NaN.
[[nodiscard]] constexpr bool starts_before(const timed_operation& a, const timed_operation& b) {
    if (a.start != b.start) return a.start < b.start;
    if (a.end != b.end) return a.end < b.end;
    return a.op.kind != b.op.kind ? a.op.kind < b.op.kind : a.op < b.op;
}

/// The latest end of an operation, transfers included.
template <pipeline_graph Graph> [[nodiscard]] constexpr duration last_end(const basic_schedule<Graph>& s) {
    duration last{};
    for (const auto& timed : s.operations)
        last = std::max(last, timed.end);
    return last;
}

/// Whether all starts and ends are numbers, not NaN. Only then can operations be sorted.
template <class Operations> [[nodiscard]] constexpr bool has_times(const Operations& operations) {
    return std::all_of(operations.begin(), operations.end(), [](const timed_operation& each) {
        return each.start == each.start && each.end == each.end;
    });
}

namespace detail {

/// The operations of each rank, in the given order. The extent is dynamic because gcc 12 can't return an array of
/// vectors in a constant expression.
template <pipeline_graph Graph, class Operations>
constexpr per_rank<std::vector<timed_operation>> split_by_rank(const Graph& g, const Operations& operations) {
    per_rank<std::vector<timed_operation>> own(g.ranks());
    for (const auto& timed : operations) {
        OPTPIPE_EXPECT(timed.op.stage.position() < g.stages(), "schedule: an operation of a stage that there isn't");
        own[g.rank_of(timed.op.stage)].push_back(timed);
    }
    return own;
}

} // namespace detail

/// For each rank, a list of its operations by start, including transfers. Contract: no time is NaN.
///
/// A synchronous loop can run its rank's list one operation at a time. The loop must post sends asynchronously, because
/// two neighbours may both send first. For an asynchronous loop, see `lower` and `issue_order`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr per_rank<std::vector<timed_operation>> operations_by_rank(const basic_schedule<Graph>& s) {
    OPTPIPE_EXPECT(has_times(s.operations), "operations_by_rank: a time of the schedule is NaN");
    auto own = detail::split_by_rank(s.graph, s.operations);
    for (auto& each : own)
        std::sort(each.begin(), each.end(), starts_before);
    return own;
}

/// The order in which a schedule lists its operations.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> listed_order(const basic_schedule<Graph>& s) {
    basic_order<Graph> result{s.graph, {}};
    result.operations.reserve(s.operations.size());
    for (const auto& timed : s.operations)
        result.operations.push_back(timed.op);
    return result;
}

/// The order in which a schedule starts its operations. `simulate` turns the order of a valid schedule into a valid
/// schedule in which nothing starts later. If two transfers without duration swap stashes at one instant in a full
/// memory, `simulate` refuses the order. Contract: no time is NaN.
template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> order_of(const basic_schedule<Graph>& s) {
    OPTPIPE_EXPECT(has_times(s.operations), "order_of: a time of the schedule is NaN");
    auto sorted = s;
    std::sort(sorted.operations.begin(), sorted.operations.end(), starts_before);
    return listed_order(sorted);
}

/// A dense index for each possible operation of a graph, for tables.
template <pipeline_graph Graph> class operation_numbering {
public:
    static constexpr std::size_t extent =
        extent_product(all_operation_kinds.size(), Graph::stage_extent, Graph::microbatch_extent);

    constexpr explicit operation_numbering(const Graph& g) : stages_{g.stages()}, microbatches_{g.microbatches()} {}
    [[nodiscard]] constexpr std::size_t size() const { return all_operation_kinds.size() * stages_ * microbatches_; }
    [[nodiscard]] constexpr bool contains(const operation& op) const {
        return op.stage.position() < stages_ && op.microbatch.position() < microbatches_;
    }
    [[nodiscard]] constexpr std::size_t operator()(const operation& op) const {
        return (static_cast<std::size_t>(op.kind) * stages_ + op.stage.position()) * microbatches_ +
               op.microbatch.position();
    }

private:
    std::size_t stages_;
    std::size_t microbatches_;
};

} // namespace optpipe
