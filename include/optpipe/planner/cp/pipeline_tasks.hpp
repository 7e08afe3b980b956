#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::cp {

/// The forms of the model: see `pipeline_model`.
using optpipe::overtaking;

inline constexpr task_index no_task = std::numeric_limits<task_index>::max();

/// One storage option of one stash, with its optional tasks. Options with equal tasks share these tasks.
struct stored_stash {
    /// Whether the stash uses the option.
    literal chosen = never;
    task_index recompute = no_task;
    task_index offload = no_task;
    task_index reload = no_task;
};
/// One storage option of the stash that a gradient uses.
struct stored_gradient {
    literal chosen = never;
    /// The extra task takes the gradient's additional time over the option with the shortest gradient. The gradient
    /// starts when the extra task starts.
    task_index extra = no_task;
};

/// Transfers that belong to no stash, in the order in which they run. A pair of transfers is only present if the
/// previous pair is present.
struct transfer_pairs {
    /// The options that share the transfers of this entry.
    std::vector<std::size_t> options{};
    std::vector<task_index> offload{};
    std::vector<task_index> reload{};
};

/// The storage options of one stage. A stage with one option has no literals.
struct storage_tasks {
    /// The usable options, as indices into the stage's list.
    std::vector<std::size_t> options{};
    /// The tasks of each forward and option. Empty if transfers belong to no stash.
    std::vector<std::vector<stored_stash>> stashes{};
    /// The transfers of the stage if transfers belong to no stash, otherwise empty.
    std::vector<transfer_pairs> pairs{};
    /// The tasks of each gradient and option. Empty if gradients take the same time and add the same memory under all
    /// options.
    std::vector<std::vector<stored_gradient>> gradients{};
    /// For each gradient and each forward, whether the gradient uses the forward's stash. Empty if the k-th gradient
    /// uses the stash of the k-th forward, or if gradients may use any stash.
    std::vector<std::vector<literal>> uses{};
    /// Whether forward i of the previous stage and forward j of this stage have the same microbatch. `next_gradient`
    /// tells whether gradient i of this stage and gradient j of the previous stage belong to the same microbatch. The
    /// two matrices are empty if `uses` is empty, or if this is the first stage.
    std::vector<std::vector<literal>> next_forward{};
    std::vector<std::vector<literal>> next_gradient{};
    /// All optional tasks, in one list per kind.
    std::vector<task_index> recompute{};
    std::vector<task_index> extra{};
    std::vector<task_index> offload{};
    std::vector<task_index> reload{};

    /// The extra tasks of one gradient, without duplicates.
    [[nodiscard]] std::vector<task_index> extras_of(std::size_t k) const {
        std::vector<task_index> result;
        if (gradients.empty()) return result;
        for (const auto& each : gradients[k])
            if (each.extra != no_task) result.push_back(each.extra);
        std::sort(result.begin(), result.end());
        result.erase(std::unique(result.begin(), result.end()), result.end());
        return result;
    }
    /// The task with which a gradient starts under an option.
    [[nodiscard]] task_index first_of(const std::vector<task_index>& gradient, std::size_t k,
                                      std::size_t option) const {
        const auto extra_task = gradients.empty() ? no_task : gradients[k][option].extra;
        return extra_task == no_task ? gradient[k] : extra_task;
    }
    /// Whether gradient k uses a stash of this option. `always` if gradients are equal under all options.
    [[nodiscard]] literal chosen_of(std::size_t k, std::size_t option) const {
        return gradients.empty() ? always : gradients[k][option].chosen;
    }
};

/// The tasks of one stage. There is one task of each kind for each microbatch (see `microbatch_order`).
struct stage_tasks {
    std::vector<task_index> forward{};
    /// The tasks of I, or of B if the backward isn't split.
    std::vector<task_index> gradient{};
    /// The tasks of W. Empty if the backward isn't split.
    std::vector<task_index> weight{};
    /// For each gradient, whether the gradient and its W are fused into a full backward. Empty if no stash can grow in
    /// its gradient, if memory is ample, or if the backward isn't split. Never true in problems without full backwards.
    std::vector<literal> full{};
    storage_tasks storage{};
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
                // The tasks on a path must be present whenever the first and the last task of the path are present.
                const bool there = t == source || m.implies(m.tasks[to].presence, m.tasks[t].presence);
                if (there) row[to] = std::max(row[to], row[t] + m.differences[d].gap);
            }
        }
    }

    std::size_t count_ = 0;
    std::vector<ticks> paths_;
};

} // namespace optpipe::cp
