#pragma once

#include "optpipe/planner/board.hpp"
#include "optpipe/planner/plan_result.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string_view>
#include <vector>

namespace optpipe {

/// Who ran how often and for how long. May be written by several threads at once.
class run_log {
public:
    void add(std::string_view name, double seconds) {
        const std::scoped_lock lock{mutex_};
        auto& entry = entry_of(entries_, name);
        ++entry.runs;
        entry.seconds += seconds;
    }
    /// With what each has found, by a board's history.
    [[nodiscard]] std::vector<part_contribution> with(const std::vector<search_step>& history) const {
        const std::scoped_lock lock{mutex_};
        auto result = entries_;
        duration objective = duration::unlimited();
        duration bound{};
        for (const auto& step : history) {
            auto& entry = entry_of(result, step.part);
            if (step.objective < objective) {
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

private:
    static part_contribution& entry_of(std::vector<part_contribution>& entries, std::string_view name) {
        const auto found =
            std::find_if(entries.begin(), entries.end(), [&](const part_contribution& e) { return e.name == name; });
        if (found != entries.end()) return *found;
        entries.emplace_back();
        entries.back().name = name;
        return entries.back();
    }

    mutable std::mutex mutex_{};
    std::vector<part_contribution> entries_{};
};

/// Measures one run.
class stopwatch {
public:
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

} // namespace optpipe
