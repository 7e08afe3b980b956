#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/equal_sequences.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/needed_options.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// The index of the work of one stage on one microbatch. Indices are sorted by stage, then by microbatch.
using cell = std::size_t;
/// The index of an operation of the model. Indices are sorted by role, then by cell.
using operation_id = std::size_t;

/// `gradient` is I, or B if the backward isn't split. `weight` is W. If a backward may be split, the second half of a B
/// also counts as `weight`. Roles of computations come first.
enum class role : unsigned char { forward, gradient, weight, recompute, offload, reload };
inline constexpr std::size_t roles = 6;

/// The operations of a problem as the model represents them.
///
/// A full backward is an I followed directly by its W. Splitting is never worse if `weight_stash` is at most
/// `activation`. Proof: a split backward needs the same time and no more memory, and passes its gradient on earlier. If
/// `weight_stash` is larger, I and W may need too much memory, and the model also allows one B (`may_be_full`). A
/// constraint excludes B if the problem forbids full backwards.
///
/// The model leaves out the storage options that no stage needs (`needed_options`).
class operation_table {
public:
    explicit operation_table(optpipe::problem p);

    [[nodiscard]] const optpipe::problem& problem() const { return problem_; }
    [[nodiscard]] std::size_t microbatches() const { return count_; }
    [[nodiscard]] std::size_t ranks() const { return by_rank_.size(); }
    [[nodiscard]] std::size_t cells() const { return stages_ * count_; }
    [[nodiscard]] std::size_t size() const { return roles * cells(); }
    [[nodiscard]] memory_size memory_slack() const { return memory_slack_; }

    [[nodiscard]] cell cell_at(stage s, std::size_t m) const { return s.position() * count_ + m; }
    [[nodiscard]] operation_id id(role what, cell at) const { return static_cast<std::size_t>(what) * cells() + at; }
    [[nodiscard]] role role_of(operation_id a) const { return static_cast<role>(a / cells()); }
    [[nodiscard]] cell cell_of(operation_id a) const { return a % cells(); }
    [[nodiscard]] stage stage_of(operation_id a) const { return stage{cell_of(a) / count_}; }
    [[nodiscard]] std::size_t microbatch_of(operation_id a) const { return a % count_; }
    [[nodiscard]] rank rank_of(operation_id a) const { return problem_.rank_of(stage_of(a)); }
    /// The costs of a cell, with the factors of its microbatch.
    [[nodiscard]] stage_costs costs_of(cell c) const {
        return problem_.cost(stage_of(c), microbatch{microbatch_of(c)});
    }
    [[nodiscard]] const std::vector<stage>& stages_on(rank r) const { return by_rank_[r.position()]; }

    /// Lists of interchangeable microbatches, each in ascending order. Every microbatch is in one list.
    [[nodiscard]] const std::vector<std::vector<microbatch>>& interchangeable() const { return interchangeable_; }
    /// The same operation of the next interchangeable microbatch.
    [[nodiscard]] std::optional<operation_id> next_interchangeable(operation_id a) const {
        const auto next = next_microbatch_[microbatch_of(a)];
        return next == microbatch_of(a) ? std::nullopt : std::optional{a - microbatch_of(a) + next};
    }
    /// Whether the weight gradients of two cells of one stage cost the same.
    [[nodiscard]] bool have_equal_weights(cell a, cell b) const {
        const auto& f = factors(a);
        const auto& g = factors(b);
        return f.backward_weight == g.backward_weight && f.memory == g.memory;
    }

    [[nodiscard]] bool has_gradient(stage s) const { return problem_.costs[s].gradients != gradient_kind::none; }
    /// Whether the backward of the stage has a separate W.
    [[nodiscard]] bool has_weight(stage s) const {
        return problem_.split_backward && problem_.costs[s].gradients == gradient_kind::full;
    }

    [[nodiscard]] bool is_transfer(operation_id a) const { return role_of(a) >= role::offload; }
    /// Whether the rank's memory is smaller than all of its stashes together.
    [[nodiscard]] bool is_limited(rank r) const { return needed_.is_limited(r); }
    /// The memory that the rank would hold if nothing were freed.
    [[nodiscard]] memory_size all_memory(rank r) const { return needed_.all_memory(r); }
    [[nodiscard]] bool may_offload(stage s) const { return stored(s, options(s).back()).offloads(); }
    [[nodiscard]] bool may_be_full(stage s) const {
        return any_option(s, [&](storage_index o) { return is_full_better(s, o); });
    }
    /// Whether I and W may need more memory than B.
    [[nodiscard]] bool is_full_better(stage s, storage_index o) const {
        const auto& c = problem_.costs[s];
        return problem_.split_backward && c.weight_stash > stored(s, o).restored(c);
    }
    [[nodiscard]] bool may_recompute(stage s) const {
        return any_option(s, [&](storage_index o) { return stored(s, o).recomputes(); });
    }
    template <class Condition> [[nodiscard]] bool any_stage(const Condition& holds) const {
        for (const stage s : problem_.graph.all_stages())
            if (holds(s)) return true;
        return false;
    }
    [[nodiscard]] bool any_may_offload() const {
        return any_stage([&](stage s) { return may_offload(s); });
    }
    [[nodiscard]] bool exists(operation_id a) const;

    /// The storage options of a stage in the model. Options that offload come last.
    [[nodiscard]] const std::vector<storage_index>& options(stage s) const { return options_[s.position()]; }
    /// The option of the model that is no worse than option `o`. If the model has option `o`, the result is `o`.
    [[nodiscard]] storage_index replacement(stage s, storage_index o) const { return needed_.replacement(s, o); }
    [[nodiscard]] storage_option stored(stage s, storage_index o) const { return problem_.storage_of(s, o); }
    template <class Condition> [[nodiscard]] bool any_option(stage s, const Condition& holds) const {
        return std::any_of(options(s).begin(), options(s).end(), holds);
    }
    /// The option of a cell, with the factors of its microbatch.
    [[nodiscard]] storage_option stored_in(cell c, storage_index o) const;
    /// The least duration over all storage options. For a transfer, options without this transfer are ignored.
    [[nodiscard]] double length(operation_id a) const { return least_[a]; }
    /// The duration with option `o`, or 0 if the option lacks this operation.
    [[nodiscard]] double length(operation_id a, storage_index o) const;
    [[nodiscard]] operation operation_of(operation_id a) const;
    [[nodiscard]] operation_id id_of(const operation& op) const;
    [[nodiscard]] std::string name_of(operation_id a) const { return to_string(operation_of(a)); }

    [[nodiscard]] std::vector<operation_id> computations_on(rank r) const {
        return on(r, {role::forward, role::gradient, role::weight, role::recompute});
    }
    /// The first index after those of all computations.
    [[nodiscard]] std::size_t end_of_computations() const {
        return id(has_recompute_ ? role::offload : role::recompute, 0);
    }
    [[nodiscard]] std::vector<cell> cells_on(rank r) const;

private:
    [[nodiscard]] std::vector<operation_id> on(rank r, std::initializer_list<role> which) const;
    [[nodiscard]] double least_length(operation_id a) const;
    [[nodiscard]] const cost_factors& factors(cell c) const {
        return problem_.microbatches.factors(stage_of(c), microbatch{microbatch_of(c)});
    }
    void find_interchangeable();

    optpipe::problem problem_;
    std::size_t stages_;
    std::size_t count_;
    memory_size memory_slack_;
    needed_options needed_;
    std::vector<std::vector<storage_index>> options_; ///< indexed by stage
    bool has_recompute_ = false;
    std::vector<double> least_; ///< indexed by operation
    std::vector<std::vector<stage>> by_rank_;
    std::vector<std::vector<microbatch>> interchangeable_;
    std::vector<std::size_t> next_microbatch_; ///< successor of each microbatch in its list; the last microbatch is its
                                               ///< own successor
};

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/core/tolerance.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace optpipe::formulation {

OPTPIPE_INLINE operation_table::operation_table(optpipe::problem p)
    : problem_{std::move(p)}, stages_{problem_.graph.stages()}, count_{problem_.graph.microbatches()},
      memory_slack_{tolerance{}.at(problem_.memory_scale())}, needed_{problem_}, by_rank_(problem_.graph.ranks()),
      next_microbatch_(count_) {
    for (const stage s : problem_.graph.all_stages())
        by_rank_[problem_.rank_of(s).position()].push_back(s);
    find_interchangeable();
    for (const stage s : problem_.graph.all_stages()) {
        auto& own = options_.emplace_back(needed_.of(s));
        std::stable_partition(own.begin(), own.end(), [&](storage_index o) { return !stored(s, o).offloads(); });
    }
    has_recompute_ = any_stage([&](stage s) { return may_recompute(s); });
    for (operation_id a = 0; a < size(); ++a)
        least_.push_back(problem_.microbatches.are_equal() && microbatch_of(a) > 0 ? least_.back() : least_length(a));
}

OPTPIPE_INLINE void operation_table::find_interchangeable() {
    interchangeable_ = interchangeable_microbatches(problem_);
    for (const auto& list : interchangeable_)
        for (std::size_t i = 0; i < list.size(); ++i)
            next_microbatch_[list[i].position()] = list[std::min(i + 1, list.size() - 1)].position();
}

OPTPIPE_INLINE bool operation_table::exists(operation_id a) const {
    switch (role_of(a)) {
    case role::forward: return true;
    case role::gradient: return has_gradient(stage_of(a));
    case role::weight: return has_weight(stage_of(a));
    case role::recompute: return may_recompute(stage_of(a));
    case role::offload:
    case role::reload: return may_offload(stage_of(a));
    }
    return false;
}

OPTPIPE_INLINE storage_option operation_table::stored_in(cell c, storage_index o) const {
    return scaled(stored(stage_of(c), o), factors(c));
}

OPTPIPE_INLINE double operation_table::least_length(operation_id a) const {
    double least = std::numeric_limits<double>::infinity();
    const stage s = stage_of(a);
    for (const auto o : options(s))
        if (!is_transfer(a) || stored(s, o).offloads()) least = std::min(least, length(a, o));
    return std::isfinite(least) ? least : 0.0;
}

OPTPIPE_INLINE double operation_table::length(operation_id a, storage_index o) const {
    const auto c = costs_of(cell_of(a));
    const auto option = stored_in(cell_of(a), o);
    switch (role_of(a)) {
    case role::forward: return c.forward.value();
    case role::gradient: {
        const auto gradient = may_split(problem_, stage_of(a)) ? c.backward_input : c.backward();
        return (gradient + option.backward_extra).value();
    }
    case role::weight: return c.backward_weight.value();
    case role::recompute: return option.recompute.value();
    case role::offload: return option.transfer ? option.transfer->offload.value() : 0.0;
    case role::reload: return option.transfer ? option.transfer->reload.value() : 0.0;
    }
    return 0.0;
}

OPTPIPE_INLINE operation operation_table::operation_of(operation_id a) const {
    const auto kind = [&] {
        switch (role_of(a)) {
        case role::forward: return operation_kind::forward;
        case role::gradient:
            return may_split(problem_, stage_of(a)) ? operation_kind::backward_input : operation_kind::backward;
        case role::weight: return operation_kind::backward_weight;
        case role::recompute: return operation_kind::recompute;
        case role::offload: return operation_kind::offload;
        case role::reload: return operation_kind::reload;
        }
        return operation_kind::forward;
    };
    return {stage_of(a), kind(), microbatch{microbatch_of(a)}};
}

OPTPIPE_INLINE operation_id operation_table::id_of(const operation& op) const {
    const auto what = [&] {
        switch (op.kind) {
        case operation_kind::forward: return role::forward;
        case operation_kind::backward_input:
        case operation_kind::backward: return role::gradient;
        case operation_kind::backward_weight: return role::weight;
        case operation_kind::offload: return role::offload;
        case operation_kind::reload: return role::reload;
        case operation_kind::recompute: return role::recompute;
        }
        return role::forward;
    };
    return id(what(), cell_at(op.stage, op.microbatch.position()));
}

OPTPIPE_INLINE std::vector<cell> operation_table::cells_on(rank r) const {
    std::vector<cell> found;
    for (const stage s : stages_on(r))
        for (std::size_t m = 0; m < count_; ++m)
            found.push_back(cell_at(s, m));
    return found;
}

OPTPIPE_INLINE std::vector<operation_id> operation_table::on(rank r, std::initializer_list<role> which) const {
    std::vector<operation_id> found;
    for (const role what : which)
        for (const cell c : cells_on(r))
            if (exists(id(what, c))) found.push_back(id(what, c));
    return found;
}

} // namespace optpipe::formulation
#endif
