#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/milp/options.hpp"
#include "optpipe/milp/search/control.hpp"
#include "optpipe/milp/search/incumbents.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Reports progress to the user, and keeps the history. All members may be called from any thread. The user's functions
/// are called by one thread at a time.
class reporter {
public:
    reporter(const model& given, const solve_options& options, const control& c, incumbents& best)
        : options_{&options}, control_{&c}, best_{&best}, sign_{given.direction() == sense::maximize ? -1.0 : 1.0},
          offset_{given.offset()}, bound_{-infinity} {}

    /// `bound` is a bound on the minimized objective of the given model, without the model's offset.
    void raise_bound(double bound) {
        const std::scoped_lock lock{mutex_};
        bound_ = std::max(bound_, bound);
    }
    [[nodiscard]] double bound() const {
        const std::scoped_lock lock{mutex_};
        return bound_;
    }
    /// Reports at once if `now`, as for a new incumbent. If `now` is false, reports only if the interval has passed.
    void tell(bool now) {
        const std::scoped_lock lock{mutex_};
        const double seconds = control_->seconds();
        if (!now && seconds - last_ < options_->progress_interval.count()) return;
        last_ = seconds;
        const auto p = state(seconds);
        if (history_.size() < longest_history) history_.push_back({seconds, p.incumbent, p.bound});
        if (options_->log) options_->log(line(p));
        if (!options_->on_progress) return;
        solution_sink sink;
        options_->on_progress(p, sink);
        for (auto& values : sink.take())
            best_->offer(std::move(values));
    }
    [[nodiscard]] std::vector<gap_sample> history() const {
        const std::scoped_lock lock{mutex_};
        return history_;
    }
    [[nodiscard]] double in_model(double objective) const { return sign_ * objective + offset_; }

private:
    static constexpr std::size_t longest_history = 10'000;

    [[nodiscard]] progress state(double seconds) const {
        const double objective = best_->objective();
        progress p;
        p.incumbent = in_model(objective);
        p.bound = in_model(std::min(bound_, objective));
        p.gap = relative_gap(p.incumbent, p.bound);
        p.nodes = control_->nodes();
        p.seconds = seconds;
        return p;
    }
    static std::string line(const progress& p) {
        return format_number(p.seconds, 4) + " s, " + std::to_string(p.nodes) + " nodes: objective " +
               format_number(p.incumbent, 10) + ", bound " + format_number(p.bound, 10) + ", gap " +
               format_number(100.0 * p.gap, 4) + " %";
    }

    const solve_options* options_;
    const control* control_;
    incumbents* best_;
    double sign_;
    double offset_;
    mutable std::mutex mutex_;
    double bound_;
    double last_ = -infinity;
    std::vector<gap_sample> history_;
};

} // namespace optpipe::milp::search
