#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace optpipe {

/// The device memory that a rank needs to run one microbatch at a time.
struct least_memory_result {
    /// The least device memory that suffices if all microbatches of a stage use the same storage option. Unlimited if
    /// the host is too small for stages that must offload.
    memory_size needed{};
    /// `options` has the storage option of each of the rank's stages, in model order. `with_options` is the device
    /// memory that the rank takes with these options. Among all options that meet the rank's limit, `options` takes the
    /// least host memory. If no options meet the limit, the rank takes `needed`.
    std::vector<std::size_t> options{};
    memory_size with_options{};
    /// A lower bound on the device memory of every valid schedule. May be less than `needed`.
    memory_size lower_bound{};
};

namespace detail {

/// Chooses the storage option of every stage, in the order of one microbatch's forwards on a rank. Drops combinations
/// that are dominated in peak, remaining device memory and host memory.
template <pipeline_graph Graph> class storage_choices {
public:
    constexpr storage_choices(const basic_problem<Graph>& p, rank r, std::size_t most_states)
        : p_{p}, most_states_{most_states}, slack_{tolerance{}.at(p.memory_scale())},
          limit_{p.memory_limit[r] + slack_}, host_limit_{p.host_memory_limit[r] + slack_} {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) step(s);
    }

    [[nodiscard]] constexpr least_memory_result result() const {
        least_memory_result result;
        result.lower_bound = lower_bound_;
        const auto& last = layers_.back();
        result.needed = std::min_element(last.begin(), last.end(), [](const state& a, const state& b) {
                            return a.peak < b.peak;
                        })->peak;
        const auto* best = &*std::min_element(last.begin(), last.end(), [&](const state& a, const state& b) {
            if (fits(a) != fits(b)) return fits(a);
            if (!fits(a) && a.peak != b.peak) return a.peak < b.peak;
            return a.on_host != b.on_host ? a.on_host < b.on_host : a.peak < b.peak;
        });
        result.with_options = best->peak;
        result.options.assign(layers_.size() - 1, 0);
        for (std::size_t i = layers_.size() - 1; i > 0; best = &layers_[--i][best->parent])
            result.options[i - 1] = best->option;
        return result;
    }

private:
    struct state {
        memory_size peak{};
        memory_size left{};
        memory_size on_host{};
        std::size_t parent = 0;
        std::size_t option = 0;
    };
    constexpr bool fits(const state& s) const { return s.peak <= limit_; }

    constexpr void step(stage s) {
        std::vector<state> next;
        std::vector<state> at_once;
        auto least_own = memory_size::unlimited();
        auto least_left = memory_size::unlimited();
        auto least_held = memory_size::unlimited();
        for (std::size_t o = 0; o < p_.storage_options(s); ++o) {
            const auto& option = p_.storage_of(s, o);
            if (option.transfer_size > host_limit_) continue;
            const auto own = std::max(option.held, p_.held_in_backward(s, option.restored(p_.costs[s])));
            least_own = std::min(least_own, own);
            least_left = std::min(least_left, option.left_on_device());
            least_held = std::min(least_held, option.held);
            for (std::size_t k = 0; k < layers_.back().size(); ++k) {
                const auto& from = layers_.back()[k];
                add(next, {std::max(from.peak, from.left + own), from.left + option.left_on_device(),
                           from.on_host + option.transfer_size, k, o});
            }
            for (const auto& from : at_once_) {
                add(at_once, {{}, from.left + option.left_on_device(), from.on_host + option.transfer_size});
                add(at_once, {{}, from.left + option.held, from.on_host}); // the stash isn't offloaded yet, or has been
                                                                           // reloaded
            }
        }
        lower_bound_ = std::max(lower_bound_, left_at_least() + least_own);
        least_left_ += least_left;
        least_held_ += least_held;
        keep_best(next);
        if (next.empty()) next.push_back({memory_size::unlimited(), memory_size::unlimited()});
        layers_.push_back(std::move(next));
        at_once_is_cut_ = keep_best(at_once) || at_once_is_cut_;
        at_once_ = std::move(at_once);
    }
    /// A lower bound on the device memory that the visited stages' stashes take after offloading.
    constexpr memory_size left_at_least() const {
        if (at_once_is_cut_) return std::max(least_left_, least_held_ - std::min(least_held_, host_limit_));
        auto least = memory_size::unlimited();
        for (const auto& each : at_once_)
            least = std::min(least, each.left);
        return least;
    }
    constexpr void add(std::vector<state>& states, const state& now) const {
        if (now.on_host <= host_limit_) states.push_back(now);
    }
    /// Keeps the states that no other state dominates. If more than `most_states_` states remain, keeps the states with
    /// the lowest peaks and returns true.
    constexpr bool keep_best(std::vector<state>& states) const {
        keep_frontier(states);
        if (states.size() <= most_states_) return false;
        // Ties go to the least memory on the device, so that pruning stays exact if the host is unlimited.
        std::sort(states.begin(), states.end(),
                  [](const state& a, const state& b) { return a.peak != b.peak ? a.peak < b.peak : a.left < b.left; });
        states.resize(most_states_);
        return true;
    }
    /// Drops each state that another state dominates. A state dominates another if none of its amounts is larger. Takes
    /// O(n log n) comparisons.
    static constexpr void keep_frontier(std::vector<state>& states) {
        std::sort(states.begin(), states.end(), [](const state& a, const state& b) {
            if (a.on_host != b.on_host) return a.on_host < b.on_host;
            return a.peak != b.peak ? a.peak < b.peak : a.left < b.left;
        });
        // The states that no other kept state dominates, if host memory is ignored. States in `steps` with higher peaks
        // leave less memory on the device.
        std::vector<state> steps;
        std::erase_if(states, [&](const state& each) {
            auto behind = std::upper_bound(steps.begin(), steps.end(), each,
                                           [](const state& a, const state& b) { return a.peak < b.peak; });
            if (behind != steps.begin() && std::prev(behind)->left <= each.left) return true;
            const auto first_lower =
                std::find_if(behind, steps.end(), [&](const state& s) { return s.left < each.left; });
            steps.insert(steps.erase(behind, first_lower), each);
            return false;
        });
    }

    const basic_problem<Graph>& p_;
    std::size_t most_states_;
    memory_size slack_;
    memory_size limit_;
    memory_size host_limit_;
    std::vector<std::vector<state>> layers_{{state{}}};
    /// The possible sums over the stashes of the visited stages: the memory on the device and the memory on the host.
    std::vector<state> at_once_{state{}};
    bool at_once_is_cut_ = false;
    memory_size least_left_{};
    memory_size least_held_{};
    memory_size lower_bound_{};
};

} // namespace detail

/// The least device memory with which `r` can run one microbatch at a time.
///
/// While a stage runs, the stashes of the rank's earlier stages are on the device unless offloaded. The rank needs the
/// maximum over its stages i of Σ_{j<i} l_j + a_i. The option of stage j leaves l_j on the device. The amount a_i is
/// the larger of two amounts: the memory after the forward of stage i, and its restored memory. Without full backwards,
/// a_i is at least the weight stash of stage i. All transfers together must fit in host memory. `needed` is the least
/// need over all combinations of options. After each stage, only the best `most_states` combinations are kept. For
/// `lower_bound`, the options are chosen separately for each stage i.
template <pipeline_graph Graph>
[[nodiscard]] constexpr least_memory_result least_memory(const basic_problem<Graph>& p, rank r,
                                                         std::size_t most_states = 1024) {
    return detail::storage_choices<Graph>{p, r, most_states}.result();
}

/// A lower bound on the device memory of rank `r` for any graph and any microbatches. The bound is the memory of one
/// running stage, plus the memory that the rank's earlier stages must leave on the device. The bound ignores slices,
/// groups and the memory that edges hold.
template <pipeline_graph Graph>
[[nodiscard]] constexpr memory_size least_memory_of_any(const basic_problem<Graph>& p, rank r) {
    const auto stages = p.graph.stages();
    std::vector<unsigned char> feeds(stages * stages, 0); // [s * stages + t]: whether t comes before s
    memory_size most{};
    for (const stage s : p.graph.all_stages()) {
        auto* const before = feeds.data() + s.position() * stages;
        p.graph.for_each_edge_into(s, [&](const edge& e) {
            before[e.from.position()] = 1;
            for (std::size_t t = 0; t < stages; ++t)
                if (feeds[e.from.position() * stages + t] != 0) before[t] = 1;
        });
        if (p.rank_of(s) != r) continue;
        for (const microbatch m : p.graph.all_microbatches()) {
            auto needed = memory_size::unlimited();
            for (const auto& option : p.storage[s])
                needed = std::min(needed, std::max(option.held, option.restored(p.costs[s])));
            needed = p.microbatches.factors(s, m).memory * needed;
            for (const stage t : p.graph.all_stages()) {
                if (before[t.position()] == 0 || p.rank_of(t) != r) continue;
                if (p.costs[t].gradients == gradient_kind::none) continue;
                auto left = memory_size::unlimited();
                for (const auto& option : p.storage[t])
                    left = std::min(left, option.left_on_device());
                needed += p.microbatches.factors(t, m).memory * left;
            }
            most = std::max(most, needed);
            if (!p.microbatches.has_factors()) break;
        }
    }
    return most;
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] least_memory_result least_memory(const problem& p, rank r, std::size_t most_states = 1024);
#endif

/// The extent is dynamic because gcc 12 can't return an array of vectors in a constant expression.
using least_memory_by_rank = per_rank<least_memory_result>;

template <pipeline_graph Graph>
[[nodiscard]] constexpr least_memory_by_rank least_memory(const basic_problem<Graph>& p) {
    least_memory_by_rank least(p.graph.ranks());
    for (const rank r : p.graph.all_ranks())
        least[r] = least_memory(p, r);
    return least;
}

/// Whether every rank has the memory to run one microbatch at a time.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool fits_one_at_a_time(const basic_problem<Graph>& p) {
    const auto slack = tolerance{}.at(p.memory_scale());
    for (const rank r : p.graph.all_ranks()) {
        const auto needed = least_memory(p, r).needed;
        if (needed.is_unlimited() || needed > p.memory_limit[r] + slack) return false;
    }
    return true;
}

/// Host memory of one microbatch on rank `r`, if every stage uses its option with the smallest transfer.
template <pipeline_graph Graph>
[[nodiscard]] constexpr memory_size least_host_memory(const basic_problem<Graph>& p, rank r) {
    memory_size all{};
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        auto least = p.storage_of(s, 0).transfer_size;
        for (std::size_t o = 1; o < p.storage_options(s); ++o)
            least = std::min(least, p.storage_of(s, o).transfer_size);
        all += least;
    }
    return all;
}

} // namespace optpipe
