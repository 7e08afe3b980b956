#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/model.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe::cp {

/// Whether microbatches may overtake each other where stashes are offloaded.
enum class overtaking {
    /// Stashes belong to no microbatch: only the k-th forward, gradient and transfer of a stage count, and no more
    /// stashes are taken than are available. A relaxation: see `pipeline_model`.
    pooled,
    /// As pooled, and the k-th gradient of every stage uses the stash of its k-th forward.
    forbidden,
    /// Microbatches may overtake each other: exact.
    allowed,
};

inline constexpr task_index no_task = std::numeric_limits<task_index>::max();

/// The tasks of one stage; one per microbatch, in the order in which they start unless overtaking is allowed.
struct stage_tasks {
    std::vector<task_index> forward{};
    /// I, or B where the backward isn't split.
    std::vector<task_index> gradient{};
    /// Empty where the backward isn't split.
    std::vector<task_index> weight{};
    /// Empty where nothing can be offloaded.
    std::vector<task_index> offload{};
    std::vector<task_index> reload{};
    /// Where weight_stash > activation: whether I and W are one B.
    std::vector<literal> full{};
};

/// All-pairs longest paths along unguarded differences, for pairs of present tasks.
class longest_paths {
public:
    static constexpr ticks none = std::numeric_limits<ticks>::min() / 4;

    longest_paths() = default;
    explicit longest_paths(const model& m) : count_{m.tasks.size()}, paths_(count_ * count_, none) {
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

    [[nodiscard]] ticks operator()(task_index from, task_index to) const { return paths_[from * count_ + to]; }

private:
    void fill(const model& m, const std::vector<std::vector<std::size_t>>& out, const std::vector<task_index>& sorted,
              std::size_t first) {
        const auto source = sorted[first];
        auto* row = &paths_[source * count_];
        row[source] = 0;
        for (std::size_t i = first; i < sorted.size(); ++i) {
            const auto t = sorted[i];
            if (row[t] == none) continue;
            for (const auto d : out[t]) {
                const auto& to = m.differences[d].to;
                // Intermediate tasks must be present whenever both ends are.
                const bool there = t == source || m.implies(m.tasks[to].presence, m.tasks[t].presence);
                if (there) row[to] = std::max(row[to], row[t] + m.differences[d].gap);
            }
        }
    }

    std::size_t count_ = 0;
    std::vector<ticks> paths_;
};

} // namespace optpipe::cp
