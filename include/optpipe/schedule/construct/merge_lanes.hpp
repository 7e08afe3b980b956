#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Merges lanes with transfers into one order. The next operation is always the ready operation that starts first in
/// `planned`. An operation that is missing in `planned` follows the previous operation on its lane. If lanes wait for
/// each other in a cycle, the order lacks the operations that can't run. O(n log R).
template <pipeline_graph Graph> class lane_merger {
public:
    constexpr lane_merger(const Graph& g, const per_rank<std::vector<operation>>& lanes,
                          const basic_schedule<Graph>& planned)
        : graph_{g}, lanes_{lanes}, number_{g}, start_(number_.size(), duration{}), tracker_{g}, next_(g.ranks(), 0),
          reached_(g.ranks()), queued_(g.ranks(), 0) {
        for (const auto& timed : planned.operations)
            start_[number_(timed.op)] = timed.start;
    }

    constexpr basic_order<Graph> run() {
        basic_order<Graph> merged{graph_, {}};
        for (const rank r : graph_.all_ranks())
            consider(r);
        while (!heads_.empty()) {
            std::pop_heap(heads_.begin(), heads_.end(), comes_later);
            const rank r = heads_.back().where;
            heads_.pop_back();
            queued_[r] = 0;
            const auto op = lanes_[r][next_[r]++];
            tracker_.finish(op);
            merged.operations.push_back(op);
            consider(r);
            if (const auto next = consumer_of(graph_.stages(), op)) consider(graph_.rank_of(next->stage));
        }
        return merged;
    }

private:
    struct head {
        duration start{};
        rank where{};
    };
    static constexpr bool comes_later(const head& a, const head& b) {
        return a.start != b.start ? a.start > b.start : a.where > b.where;
    }

    constexpr void consider(rank r) {
        if (queued_[r] || next_[r] == lanes_[r].size()) return;
        const auto& op = lanes_[r][next_[r]];
        if (!tracker_.ready(op)) return;
        reached_[r] = std::max(reached_[r], start_[number_(op)]);
        queued_[r] = 1;
        heads_.push_back({reached_[r], r});
        std::push_heap(heads_.begin(), heads_.end(), comes_later);
    }

    const Graph& graph_;
    const per_rank<std::vector<operation>>& lanes_;
    operation_numbering<Graph> number_;
    std::vector<duration> start_;
    dependency_tracker<Graph> tracker_;
    per_rank<std::size_t> next_;
    per_rank<duration> reached_;
    per_rank<unsigned char> queued_;
    std::vector<head> heads_{};
};

} // namespace optpipe::detail
