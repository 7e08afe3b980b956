#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The compute lane of one rank while operations are appended, each as early as its input and the lane allow.
struct lane_builder {
    /// The end of the last operation.
    duration clock{};
    /// The idle time since the first operation.
    duration idle{};
    memory_size held{};
    bool has_started = false;
    /// Weight gradients whose input gradient is done, in FIFO order; those before `next_weight` are done.
    std::vector<operation> weights{};
    std::size_t next_weight = 0;

    [[nodiscard]] constexpr std::size_t waiting_weights() const { return weights.size() - next_weight; }
    [[nodiscard]] constexpr bool has_weight() const { return waiting_weights() > 0; }
    [[nodiscard]] OPTPIPE_CONSTEXPR const operation& first_weight() const { return weights[next_weight]; }
    /// Removes the first waiting weight gradient; the caller appends it.
    OPTPIPE_CONSTEXPR operation take_weight() { return weights[next_weight++]; }

    /// `ready` is the time when its input is ready.
    template <pipeline_graph Graph>
    constexpr void append(const basic_problem<Graph>& p, const operation& op, duration ready) {
        const auto start = std::max(clock, ready);
        if (has_started) idle += start - clock;
        has_started = true;
        clock = start + duration_of(p, op);
        const auto effect = memory_effect_of(p, op);
        held += effect.acquired_at_start;
        held -= effect.released_at_end;
        if (op.kind == operation_kind::backward_input) weights.push_back(sibling(op, operation_kind::backward_weight));
    }
};

template <class Timelines> [[nodiscard]] constexpr duration longest_idle(const Timelines& all) {
    duration longest{};
    for (const lane_builder& one : all)
        longest = std::max(longest, one.idle);
    return longest;
}

/// The ends of the forwards and gradients placed until now, by cell.
class known_ends {
public:
    template <pipeline_graph Graph>
    constexpr explicit known_ends(const Graph& g)
        : cell_{g}, forward_(cell_.size(), duration::unlimited()), gradient_(forward_) {}

    OPTPIPE_CONSTEXPR void set(const operation& op, duration end) {
        if (op.kind == operation_kind::forward) forward_[cell_(op)] = end;
        if (is_gradient(op.kind)) gradient_[cell_(op)] = end;
    }
    /// The end of a forward, or of a gradient (I or B alike); unlimited while unknown.
    [[nodiscard]] OPTPIPE_CONSTEXPR duration operator()(const operation& op) const {
        return (op.kind == operation_kind::forward ? forward_ : gradient_)[cell_(op)];
    }

private:
    cell_numbering cell_;
    std::vector<duration> forward_;
    std::vector<duration> gradient_;
};

} // namespace optpipe::detail
