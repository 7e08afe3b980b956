#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/safe_memory.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Walks through an order once. An operation that finds too little memory, and all operations that wait for it, are
/// postponed until other operations have freed enough. Forwards of a group's stages keep their order.
template <pipeline_graph Graph> class memory_fitter {
public:
    memory_fitter(const basic_problem<Graph>& p, const std::vector<operation>& given)
        : p_{&p}, given_{&given}, number_{p.graph}, is_placed_(number_.size(), 0), next_forward_(p.graph.stages(), 0),
          forwards_(p.graph.stages()), level_(p.graph.ranks()), limit_{tolerated_limits(p)}, result_{p.graph, {}} {
        for (const auto& op : given)
            if (op.kind == operation_kind::forward) forwards_[op.stage].push_back(op.microbatch);
    }

    /// Empty if ranks end up waiting for each other's memory. If `careful`, this hardly ever happens, because memory is
    /// only taken if every sequence in flight can still be finished.
    std::optional<basic_order<Graph>> run(bool careful) && {
        if (careful) be_careful();
        result_.operations.reserve(given_->size());
        for (const auto& op : *given_)
            if (!try_place(op)) waiting_.push_back(op);
        place_waiting();
        if (!waiting_.empty()) return std::nullopt;
        return std::move(result_);
    }

private:
    /// Makes `safe_`, in which sequences enter in the order of their first forwards.
    void be_careful() {
        const cell_numbering cell{p_->graph};
        std::vector<storage_index> option(cell.size(), 0);
        std::vector<unsigned char> has_entered(p_->graph.microbatches(), 0);
        std::vector<std::vector<microbatch>> sequences;
        for (const auto& op : *given_) {
            if (op.kind != operation_kind::forward) continue;
            option[cell(op)] = op.storage;
            const bool is_new = !p_->microbatches.slice_before(op.microbatch) && !has_entered[op.microbatch.position()];
            if (!is_new) continue;
            has_entered[op.microbatch.position()] = 1;
            sequences.emplace_back();
            for (std::optional m{op.microbatch}; m; m = p_->microbatches.slice_after(*m))
                sequences.back().push_back(*m);
        }
        safe_.emplace(*p_, sequences, [&](operation op) {
            op.storage = option[cell(op)];
            return op;
        });
    }

    bool is_there(const operation& op) const {
        return is_placed_[number_(op)] != 0 || (op.kind == operation_kind::backward_input &&
                                                is_placed_[number_(sibling(op, operation_kind::backward))]);
    }
    bool is_ready(const operation& op) const {
        const bool has_order = op.kind == operation_kind::forward && p_->groups.has(op.stage);
        if (has_order && forwards_[op.stage][next_forward_[op.stage]] != op.microbatch) return false;
        bool ready = true;
        for_each_dependency(*p_, op, stash_way_of(*p_, op),
                            [&](const operation& before, duration) { ready = ready && is_there(before); });
        return ready;
    }
    bool fits(const operation& op, memory_size taken) const {
        const rank r = p_->rank_of(op.stage);
        const auto has_room = [&](memory_size more) { return level_[r] + more <= limit_[r]; };
        if (!(taken > memory_size{}) || limit_[r].is_unlimited()) return true;
        return has_room(taken) && (!safe_ || safe_->is_safe(op, taken, has_room));
    }
    bool try_place(const operation& op) {
        const auto effect = memory_effect_of(*p_, op);
        if (is_placed_[number_(op)] != 0 || !is_ready(op) || !fits(op, effect.acquired_at_start)) return false;
        is_placed_[number_(op)] = 1;
        if (op.kind == operation_kind::forward) ++next_forward_[op.stage];
        level_[p_->rank_of(op.stage)] += effect.acquired_at_start - effect.released_at_end;
        bool frees = effect.released_at_end > memory_size{};
        for_each_release_of_others(*p_, op, [&](rank of, memory_size amount) {
            level_[of] -= amount;
            frees = true;
        });
        if (safe_) safe_->start(op);
        if (safe_) safe_->end(op);
        result_.operations.push_back(op);
        if (frees && !is_placing_) place_waiting();
        return true;
    }
    /// Places waiting operations, the first ones first, until none can be placed.
    void place_waiting() {
        is_placing_ = true;
        for (bool any = true; any && !waiting_.empty();) {
            const auto left =
                std::remove_if(waiting_.begin(), waiting_.end(), [&](const operation& op) { return try_place(op); });
            any = left != waiting_.end();
            waiting_.erase(left, waiting_.end());
        }
        is_placing_ = false;
    }

    const basic_problem<Graph>* p_;
    const std::vector<operation>* given_;
    operation_numbering<Graph> number_;
    std::vector<unsigned char> is_placed_;
    per_stage<std::size_t> next_forward_;
    per_stage<std::vector<microbatch>> forwards_;
    per_rank<memory_size> level_;
    per_rank<memory_size, Graph::rank_extent> limit_;
    std::optional<safe_memory<Graph>> safe_{};
    std::vector<operation> waiting_{};
    bool is_placing_ = false;
    basic_order<Graph> result_;
};

} // namespace detail

/// An order of the same operations within the memory limits: forwards, and operations that wait for them, are postponed
/// until there is memory for them. Empty if an operation appears twice or waits for a missing one, or if ranks end up
/// waiting for each other's memory, even when memory is only taken with care (`safe_memory`). Host memory is ignored.
/// Contract: `p` has these operations and options.
template <pipeline_graph Graph>
[[nodiscard]] std::optional<basic_order<Graph>> fit_memory(const basic_problem<Graph>& p,
                                                           const std::vector<operation>& given) {
    if (auto fitted = detail::memory_fitter<Graph>{p, given}.run(false)) return fitted;
    const bool offloads = std::any_of(given.begin(), given.end(), [](const auto& op) { return is_transfer(op.kind); });
    if (offloads) return std::nullopt;
    return detail::memory_fitter<Graph>{p, given}.run(true);
}

} // namespace optpipe
