#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/exact/model.hpp"
#include "optpipe/planner/exact/scale.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe::exact {

/// How stashes that travel are seen.
enum class travel_form {
    /// Microbatches carry no names: the k-th forward, the k-th gradient, the k-th transfer of a stage, and as many
    /// stashes at hand as are taken. A relaxation: see `pipeline_model`.
    pooled,
    /// The same, and every stage's k-th gradient uses the stash of its k-th forward.
    in_turn,
    /// Microbatches carry names and may overtake each other.
    named,
};

inline constexpr task_index no_task = std::numeric_limits<task_index>::max();

/// The tasks of one stage; one per microbatch, in the order in which they start but for `named`.
struct stage_tasks {
    std::vector<task_index> forward{};
    /// I, or B where the backward isn't split.
    std::vector<task_index> gradient{};
    /// Empty where the backward isn't split.
    std::vector<task_index> weight{};
    /// Empty where nothing may travel.
    std::vector<task_index> offload{};
    std::vector<task_index> reload{};
    /// Where it matters: W follows I at once, as one B.
    std::vector<literal> full{};
};

/// The longest chain of differences between every two tasks, for tasks that are both present.
class longest_ways {
public:
    static constexpr ticks none = std::numeric_limits<ticks>::min() / 4;

    longest_ways() = default;
    explicit longest_ways(const model& m) : count_{m.tasks.size()}, ways_(count_ * count_, none) {
        std::vector<std::vector<std::size_t>> out(count_);
        std::vector<std::size_t> missing(count_, 0);
        for (std::size_t d = 0; d < m.differences.size(); ++d) {
            if (m.differences[d].guard != always) continue;
            out[m.differences[d].from].push_back(d);
            ++missing[m.differences[d].to];
        }
        std::vector<task_index> sorted;
        for (task_index t = 0; t < count_; ++t)
            if (missing[t] == 0) sorted.push_back(t);
        for (std::size_t i = 0; i < sorted.size(); ++i)
            for (const auto d : out[sorted[i]])
                if (--missing[m.differences[d].to] == 0) sorted.push_back(m.differences[d].to);
        for (std::size_t i = 0; i < sorted.size(); ++i)
            fill(m, out, sorted, i);
    }

    [[nodiscard]] ticks operator()(task_index from, task_index to) const { return ways_[from * count_ + to]; }

private:
    void fill(const model& m, const std::vector<std::vector<std::size_t>>& out, const std::vector<task_index>& sorted,
              std::size_t first) {
        const auto source = sorted[first];
        auto* row = &ways_[source * count_];
        row[source] = 0;
        for (std::size_t i = first; i < sorted.size(); ++i) {
            const auto t = sorted[i];
            if (row[t] == none) continue;
            for (const auto d : out[t]) {
                const auto& to = m.differences[d].to;
                // What lies on the way must be there whenever both ends are.
                const bool there = t == source || m.implies(m.tasks[to].presence, m.tasks[t].presence);
                if (there) row[to] = std::max(row[to], row[t] + m.differences[d].gap);
            }
        }
    }

    std::size_t count_ = 0;
    std::vector<ticks> ways_;
};

} // namespace optpipe::exact
