#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/schedule/construct/lone_sequence.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

namespace optpipe {
namespace detail {

/// Storage options for sequences that run one at a time. Every sequence runs all its forwards, then its gradients in
/// reverse. While a cell runs, the other stashes on the rank belong to earlier cells. Options are chosen cell by cell.
/// Each cell gets the fitting option that leaves the least memory on the device. If host memory is unlimited and some
/// choice of options fits on the device, the options chosen here fit, too.
template <pipeline_graph Graph> class single_sequence_storage {
public:
    constexpr explicit single_sequence_storage(const basic_problem<Graph>& p)
        : p_{&p}, slack_{tolerance{}.at(p.memory_scale())}, cells_(p.graph.cells()) {
        for (const auto& slices : sequences_of(p)) {
            find_levels(slices);
            on_device_ = on_host_ = per_rank<memory_size>(p.graph.ranks());
            for (const microbatch m : slices)
                for (const stage s : p.graph.all_stages())
                    choose(s, m);
        }
    }
    [[nodiscard]] constexpr storage_index operator()(stage s, microbatch m) const { return cells_[at(s, m)].option; }

private:
    struct cell {
        /// The rank's memory without stashes, during the cell's forward and during its gradient.
        memory_size in_forward{};
        memory_size in_gradient{};
        storage_index option = 0;
    };
    [[nodiscard]] constexpr std::size_t at(stage s, microbatch m) const {
        return m.position() * p_->graph.stages() + s.position();
    }

    constexpr void find_levels(const std::vector<microbatch>& slices) {
        per_rank<memory_size> level(p_->graph.ranks());
        const auto first_option = [](stage, microbatch) { return storage_index{}; };
        run_alone(*p_, slices, first_option, [&](const operation& op) {
            auto& own = level[p_->rank_of(op.stage)];
            const auto effect = memory_effect_beside_stash(*p_, op);
            own += effect.acquired_at_start;
            if (op.kind == operation_kind::forward) cells_[at(op.stage, op.microbatch)].in_forward = own;
            if (is_gradient(op.kind)) cells_[at(op.stage, op.microbatch)].in_gradient = own;
            own -= effect.released_at_end;
            for_each_release_of_others(*p_, op, [&](rank r, memory_size amount) { level[r] -= amount; });
        });
    }
    constexpr void choose(stage s, microbatch m) {
        const rank r = p_->rank_of(s);
        const auto factor = p_->microbatches.factors(s, m).memory;
        const auto& list = p_->storage[s];
        const auto rating = [&](const storage_option& o) {
            const auto device = on_device_[r] + needed(s, m, o);
            const auto host = on_host_[r] + factor * o.transfer_size;
            return std::tuple{host > p_->host_memory_limit[r] + slack_, std::max(device, p_->memory_limit[r] + slack_),
                              o.left_on_device(), o.extra_time()};
        };
        const auto best = std::min_element(list.begin(), list.end(),
                                           [&](const auto& a, const auto& b) { return rating(a) < rating(b); });
        cells_[at(s, m)].option = static_cast<storage_index>(best - list.begin());
        if (p_->costs[s].gradients == gradient_kind::none) return;
        on_device_[r] += factor * best->left_on_device();
        on_host_[r] += factor * best->transfer_size;
    }
    /// The most memory during the cell's operations, without other cells' stashes.
    [[nodiscard]] constexpr memory_size needed(stage s, microbatch m, const storage_option& o) const {
        const auto factor = p_->microbatches.factors(s, m).memory;
        const auto& own = cells_[at(s, m)];
        return std::max(own.in_forward + factor * o.held,
                        own.in_gradient + factor * p_->held_in_backward(s, o.restored(p_->costs[s])));
    }

    const basic_problem<Graph>* p_;
    memory_size slack_;
    std::vector<cell> cells_;
    /// The stash memory of the cells already chosen in this sequence.
    per_rank<memory_size> on_device_{};
    per_rank<memory_size> on_host_{};
};

/// The serial order: sequences run one at a time (`run_alone`). `option_of(stage, microbatch)` is the storage option of
/// a cell.
template <pipeline_graph Graph, class OptionOf>
[[nodiscard]] constexpr basic_order<Graph> one_at_a_time(const basic_problem<Graph>& p, const OptionOf& option_of) {
    basic_order<Graph> result{p.graph, {}};
    for (const auto& slices : sequences_of(p))
        run_alone(p, slices, option_of, [&](const operation& op) { result.operations.push_back(op); });
    return result;
}

} // namespace detail

/// The serial order in which the stashes of each stage s use the option `option[s]`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> one_at_a_time(const basic_problem<Graph>& p,
                                                         const per_stage<std::size_t, Graph::stage_extent>& option) {
    return detail::one_at_a_time(p, [&](stage s, microbatch) { return option[s]; });
}
/// The serial order with the storage options of `least`. The order is valid if no rank's `needed` exceeds its limit.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> one_at_a_time(const basic_problem<Graph>& p,
                                                         const least_memory_by_rank& least) {
    per_stage<std::size_t, Graph::stage_extent> option(p.graph.stages());
    per_rank<std::size_t, Graph::rank_extent> next(p.graph.ranks());
    for (const stage s : p.graph.all_stages()) {
        const rank r = p.rank_of(s);
        option[s] = least[r].options[next[r]++];
    }
    return one_at_a_time(p, option);
}
/// The serial order with the options of `least_memory`, or of `single_sequence_storage` if the problem isn't plain.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> one_at_a_time(const basic_problem<Graph>& p) {
    return is_plain(p) ? one_at_a_time(p, least_memory(p))
                       : detail::one_at_a_time(p, detail::single_sequence_storage<Graph>{p});
}

} // namespace optpipe
