#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The part of a schedule that is reoptimized: operations within all of these ranges, whose ends are inclusive. Times
/// are starts of operations.
struct window {
    duration from{};
    duration to = duration::unlimited();
    std::size_t first_rank = 0;
    std::size_t last_rank = static_cast<std::size_t>(-1);
    std::size_t first_microbatch = 0;
    std::size_t last_microbatch = static_cast<std::size_t>(-1);
    /// Whether the window contains only transfers.
    bool transfers_only = false;
    /// Whether stashes in the window may change their storage options.
    bool opens_storage = false;
};

/// Positions of all operations of a schedule. A transfer that could be added counts as adjacent to its forward or
/// gradient.
class window_map {
public:
    window_map(const problem& p, const schedule& s) : p_{&p}, number_{p.graph}, start_(number_.size()) {
        for (const auto& timed : s.operations) {
            const auto& op = timed.op;
            start_[number_(op)] = timed.start;
            end_ = std::max(end_, timed.end);
            if (op.kind == operation_kind::forward)
                set_hypothetical_start(offload_of(op.stage, op.microbatch), timed.end);
            else if (is_gradient(op.kind))
                set_hypothetical_start(reload_of(op.stage, op.microbatch), timed.start);
            if (!is_transfer(op.kind)) ++computations_;
        }
        for (const auto& timed : s.operations)
            if (is_transfer(timed.op.kind)) start_[number_(timed.op)] = timed.start;
    }

    [[nodiscard]] bool contains(const window& w, const operation& op) const {
        const auto r = p_->rank_of(op.stage).position();
        const auto m = op.microbatch.position();
        const auto at = start_[number_(op)];
        return at >= w.from && at <= w.to && r >= w.first_rank && r <= w.last_rank && m >= w.first_microbatch &&
               m <= w.last_microbatch && (!w.transfers_only || is_transfer(op.kind));
    }
    [[nodiscard]] duration end() const { return end_; }
    /// Average time in which all ranks together run `computations` computations.
    [[nodiscard]] duration time_of(double computations) const {
        return computations / static_cast<double>(std::max<std::size_t>(1, computations_)) * end_;
    }

private:
    void set_hypothetical_start(const operation& op, duration when) { start_[number_(op)] = when; }

    const problem* p_;
    operation_numbering<any_graph> number_;
    std::vector<duration> start_;
    duration end_{};
    std::size_t computations_ = 0;
};

} // namespace optpipe::detail
