#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/schedule/dispatch/safe_memory.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

namespace optpipe::detail {

/// Storage options for sequences that run one after the other. Every sequence runs all its forwards, then its gradients
/// in reverse. During a cell's forward and during its backward, the only other stashes on the rank thus belong to
/// earlier cells. Options are chosen cell by cell. Each cell gets the option that leaves the least memory on the device
/// among the options that fit. If host memory is unlimited and some choice of options fits on the device, the options
/// chosen here fit, too.
template <pipeline_graph Graph> class single_sequence_storage {
public:
    explicit single_sequence_storage(const basic_problem<Graph>& p)
        : p_{&p}, limits_{tolerated_limits(p)}, slack_{tolerance{}.at(p.memory_scale())}, cells_(p.graph.cells()) {
        for (const auto& slices : sequences_of(p)) {
            find_levels(slices);
            on_device_ = on_host_ = per_rank<memory_size>(p.graph.ranks());
            for (const microbatch m : slices)
                for (const stage s : p.graph.all_stages())
                    choose(s, m);
        }
    }
    [[nodiscard]] storage_index operator()(stage s, microbatch m) const { return cells_[at(s, m)].option; }

private:
    struct cell {
        /// The rank's memory without stashes, during the cell's forward and during its gradient.
        memory_size in_forward{};
        memory_size in_gradient{};
        storage_index option = 0;
    };
    [[nodiscard]] std::size_t at(stage s, microbatch m) const {
        return m.position() * p_->graph.stages() + s.position();
    }

    void find_levels(const std::vector<microbatch>& slices) {
        per_rank<memory_size> level(p_->graph.ranks());
        const auto level_during = [&](const operation& op) {
            auto& own = level[p_->rank_of(op.stage)];
            const auto effect = memory_effect_beside_stash(*p_, op);
            own += effect.acquired_at_start;
            const auto during = own;
            own -= effect.released_at_end;
            for_each_release_of_others(*p_, op, [&](rank r, memory_size amount) { level[r] -= amount; });
            return during;
        };
        for (const microbatch m : slices)
            for (const stage s : p_->graph.all_stages())
                cells_[at(s, m)].in_forward = level_during(forward(s, m));
        for (auto k = slices.size(); k-- > 0;)
            for (std::size_t i = p_->graph.stages(); i-- > 0;)
                if (const stage s{i}; p_->costs[s].gradients != gradient_kind::none)
                    cells_[at(s, slices[k])].in_gradient = level_during(backward_input(s, slices[k]));
    }
    void choose(stage s, microbatch m) {
        const rank r = p_->rank_of(s);
        const auto factor = p_->microbatches.factors(s, m).memory;
        const auto& list = p_->storage[s];
        const auto rating = [&](const storage_option& o) {
            const auto device = on_device_[r] + needed(s, m, o);
            const auto host = on_host_[r] + factor * o.transfer_size;
            return std::tuple{host > p_->host_memory_limit[r] + slack_, std::max(device, limits_[r]),
                              o.left_on_device(), o.extra_time()};
        };
        const auto best = std::min_element(list.begin(), list.end(),
                                           [&](const auto& a, const auto& b) { return rating(a) < rating(b); });
        cells_[at(s, m)].option = static_cast<storage_index>(best - list.begin());
        if (p_->costs[s].gradients == gradient_kind::none) return;
        on_device_[r] += factor * best->left_on_device();
        on_host_[r] += factor * best->transfer_size;
    }
    /// The most memory that the rank holds during the cell's operations, without the stashes of other cells.
    [[nodiscard]] memory_size needed(stage s, microbatch m, const storage_option& o) const {
        const auto factor = p_->microbatches.factors(s, m).memory;
        const auto& own = cells_[at(s, m)];
        return std::max(own.in_forward + factor * o.held,
                        own.in_gradient + factor * p_->held_in_backward(s, o.restored(p_->costs[s])));
    }

    const basic_problem<Graph>* p_;
    per_rank<memory_size, Graph::rank_extent> limits_;
    memory_size slack_; ///< the tolerance of the host memory limit
    std::vector<cell> cells_;
    /// The stash memory of the cells already chosen in this sequence.
    per_rank<memory_size> on_device_{};
    per_rank<memory_size> on_host_{};
};

/// An order that runs one sequence after the other. `option_of(stage, microbatch)` is the storage option of a cell.
template <pipeline_graph Graph, class OptionOf>
[[nodiscard]] basic_order<Graph> one_sequence_at_a_time(const basic_problem<Graph>& p, const OptionOf& option_of) {
    basic_order<Graph> all{p.graph, {}};
    const auto add = [&](operation op) {
        op.storage = option_of(op.stage, op.microbatch);
        if (is_possible(p, op)) all.operations.push_back(op);
    };
    for (const auto& slices : sequences_of(p)) {
        for (const microbatch m : slices)
            for (const stage s : p.graph.all_stages()) {
                add(forward(s, m));
                add(offload_of(s, m));
            }
        for (auto k = slices.size(); k-- > 0;)
            for (std::size_t i = p.graph.stages(); i-- > 0;) {
                const stage s{i};
                const microbatch m = slices[k];
                if (p.costs[s].gradients == gradient_kind::none) continue;
                const bool is_full = p.costs[s].gradients == gradient_kind::full && p.full_backward;
                add(reload_of(s, m));
                add(recompute_of(s, m));
                add(is_full ? backward(s, m) : backward_input(s, m));
                if (!is_full) add(backward_weight(s, m));
            }
    }
    return all;
}

/// An order that runs one sequence after the other, with the options of `single_sequence_storage`.
template <pipeline_graph Graph> [[nodiscard]] basic_order<Graph> one_sequence_at_a_time(const basic_problem<Graph>& p) {
    const single_sequence_storage<Graph> chosen{p};
    return one_sequence_at_a_time(p, [&](stage s, microbatch m) { return chosen(s, m); });
}

} // namespace optpipe::detail
