#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"

#include <chrono>
#include <mutex>
#include <string_view>
#include <vector>

namespace optpipe {

/// The number and total time of each strategy's runs. Thread-safe.
class run_log {
public:
    void add(std::string_view name, double seconds);
    /// The logged runs of each strategy, with its improvements in a search's history.
    [[nodiscard]] std::vector<contribution> with(const std::vector<search_step>& history) const;

private:
    static contribution& entry_of(std::vector<contribution>& entries, std::string_view name);

    mutable std::mutex mutex_{};
    std::vector<contribution> entries_{};
};

/// Measures the wall-clock time since its construction.
class stopwatch {
public:
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)

#include <algorithm>

namespace optpipe {

OPTPIPE_INLINE void run_log::add(std::string_view name, double seconds) {
    const std::scoped_lock lock{mutex_};
    auto& entry = entry_of(entries_, name);
    ++entry.runs;
    entry.seconds += seconds;
}

OPTPIPE_INLINE std::vector<contribution> run_log::with(const std::vector<search_step>& history) const {
    const std::scoped_lock lock{mutex_};
    auto result = entries_;
    duration objective = duration::unlimited();
    duration bound{};
    for (const auto& step : history) {
        auto& entry = entry_of(result, step.strategy);
        // A step that improves neither objective nor bound has a schedule with less recomputation or fewer transfers.
        if (step.objective < objective || !(step.bound > bound)) {
            ++entry.schedules;
            entry.objective = step.objective;
        }
        if (step.bound > bound) {
            ++entry.bounds;
            entry.bound = step.bound;
        }
        objective = step.objective;
        bound = step.bound;
    }
    return result;
}

OPTPIPE_INLINE contribution& run_log::entry_of(std::vector<contribution>& entries, std::string_view name) {
    const auto found =
        std::find_if(entries.begin(), entries.end(), [&](const contribution& e) { return e.name == name; });
    if (found != entries.end()) return *found;
    entries.emplace_back();
    entries.back().name = name;
    return entries.back();
}

} // namespace optpipe
#endif
