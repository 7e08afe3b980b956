#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

/// The device memory that a rank needs to run one microbatch at a time.
struct least_memory_result {
    /// The least device memory that suffices if some stashes are on the host from their forward to their gradient.
    /// Unlimited if a stage has only options that offload, and the host is too small for them.
    memory_size needed{};
    /// The smallest set of stages (by memory) to offload so that the rank meets its limit, or, if none does, so that it
    /// needs only `needed`; and the device memory it then takes.
    std::vector<stage> offloaded{};
    memory_size with_offloaded{};
    /// With lists of storage options, instead of `offloaded`: the option chosen for each of the rank's stages, in model
    /// order.
    std::vector<std::size_t> options{};
    /// A lower bound on the device memory of every valid schedule. Without lists of storage options it is below
    /// `needed` only if the host is small, where a schedule might offload different stashes at different times.
    memory_size lower_bound{};
};

namespace detail {

/// Walks through the forwards of one microbatch on one rank, and remembers the lowest peak for every sum of stashes on
/// the host.
template <pipeline_graph Graph> class host_choices {
public:
    constexpr host_choices(const basic_problem<Graph>& p, rank r, std::size_t most_states)
        : p_{p}, rank_{r}, slack_{tolerance{}.at(p.memory_scale())}, most_states_{most_states} {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) stages_.push_back(s);
        for (std::size_t i = 0; i < stages_.size(); ++i)
            step(i);
    }

    [[nodiscard]] constexpr least_memory_result result() const {
        least_memory_result result;
        if (stages_.empty()) return result;
        const auto& last = layers_.back();
        result.lower_bound = lower_bound_;
        result.needed = std::min_element(last.begin(), last.end(), [](const state& a, const state& b) {
                            return a.peak < b.peak;
                        })->peak;
        // The smallest memory on the host among the states that fit; if none fits, the lowest peak.
        const auto best = std::min_element(last.begin(), last.end(), [&](const state& a, const state& b) {
            if (fits(a) != fits(b)) return fits(a);
            return fits(a) ? a.on_host < b.on_host : a.peak < b.peak;
        });
        result.with_offloaded = best->peak;
        const state* at = &*best;
        for (std::size_t i = stages_.size(); i-- > 0;) {
            if (at->offloaded) result.offloaded.push_back(stages_[i]);
            at = &layers_[i][at->parent];
        }
        return result;
    }

private:
    struct state {
        memory_size on_host{};
        memory_size peak{};
        std::size_t parent = 0;
        bool offloaded = false;
    };

    constexpr bool fits(const state& s) const { return s.peak <= p_.memory_limit[rank_] + slack_; }

    constexpr void step(std::size_t i) {
        const auto& costs = p_.costs[stages_[i]];
        const auto& from = layers_.back();
        const auto host_limit = p_.host_memory_limit[rank_] + slack_;
        const auto own = p_.held_in_backward(stages_[i], costs.activation);
        raise_lower_bound(own, host_limit);
        std::vector<state> next;
        for (std::size_t k = 0; k < from.size(); ++k) {
            const auto peak = std::max(from[k].peak, before_ - from[k].on_host + own);
            next.push_back({from[k].on_host, peak, k, false});
            const auto on_host = from[k].on_host + costs.activation;
            // Offloading the stash of a rank's last stage never lowers the peak.
            if (p_.plain_transfer(stages_[i]) && i + 1 < stages_.size() && on_host <= host_limit)
                next.push_back({on_host, peak, k, true});
        }
        before_ += costs.activation;
        if (p_.plain_transfer(stages_[i])) could_leave_ += costs.activation;
        keep_best(next);
        layers_.push_back(std::move(next));
    }
    constexpr void raise_lower_bound(memory_size own, memory_size host_limit) {
        const auto& from = layers_.back();
        auto most_on_host = std::min(could_leave_, host_limit);
        if (!cut_)
            most_on_host = std::max_element(from.begin(), from.end(), [](const state& a, const state& b) {
                               return a.on_host < b.on_host;
                           })->on_host;
        lower_bound_ = std::max(lower_bound_, before_ - most_on_host + own);
    }
    constexpr void keep_best(std::vector<state>& next) {
        std::sort(next.begin(), next.end(), [](const state& a, const state& b) {
            return a.on_host != b.on_host ? a.on_host < b.on_host : a.peak < b.peak;
        });
        const auto same_sum = [](const state& a, const state& b) { return a.on_host == b.on_host; };
        next.erase(std::unique(next.begin(), next.end(), same_sum), next.end());
        if (next.size() <= most_states_) return;
        cut_ = true;
        // Ties go to the state that has moved most to the host, so pruning stays exact if the host is unlimited.
        std::sort(next.begin(), next.end(), [](const state& a, const state& b) {
            return a.peak != b.peak ? a.peak < b.peak : a.on_host > b.on_host;
        });
        next.resize(most_states_);
    }

    const basic_problem<Graph>& p_;
    rank rank_;
    memory_size slack_;
    std::size_t most_states_;
    std::vector<stage> stages_{};
    std::vector<std::vector<state>> layers_{{state{}}};
    memory_size before_{};
    memory_size could_leave_{};
    memory_size lower_bound_{};
    bool cut_ = false;
};

/// Chooses the storage option of every stage, in problems with lists of storage options. Remembers the combinations of
/// peak, remaining device memory and host memory that no other combination dominates.
template <pipeline_graph Graph> class storage_choices {
public:
    constexpr storage_choices(const basic_problem<Graph>& p, rank r, std::size_t most_states)
        : p_{p}, most_states_{most_states}, host_limit_{p.host_memory_limit[r] + tolerance{}.at(p.memory_scale())} {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) step(s);
    }

    [[nodiscard]] constexpr least_memory_result result() const {
        least_memory_result result;
        result.lower_bound = lower_bound_;
        const auto* best = &layers_.back().front();
        for (const auto& at : layers_.back())
            if (at.peak < best->peak) best = &at;
        result.needed = result.with_offloaded = best->peak;
        for (std::size_t i = layers_.size() - 1; i > 0; best = &layers_[--i][best->parent])
            result.options.insert(result.options.begin(), best->option);
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
    static constexpr bool dominates(const state& a, const state& b) {
        return a.peak <= b.peak && a.left <= b.left && a.on_host <= b.on_host;
    }

    constexpr void step(stage s) {
        std::vector<state> next;
        auto least_own = memory_size::unlimited();
        auto least_left = memory_size::unlimited();
        for (std::size_t o = 0; o < p_.storage_options(s); ++o) {
            const auto option = p_.storage_of(s, o);
            if (option.transfer_size > host_limit_) continue;
            const auto own = std::max(option.held, p_.held_in_backward(s, option.restored(p_.costs[s])));
            least_own = std::min(least_own, own);
            least_left = std::min(least_left, option.left_on_device());
            for (std::size_t k = 0; k < layers_.back().size(); ++k) {
                const auto& from = layers_.back()[k];
                const state now{std::max(from.peak, from.left + own), from.left + option.left_on_device(),
                                from.on_host + option.transfer_size, k, o};
                if (now.on_host <= host_limit_) add(next, now);
            }
        }
        lower_bound_ = std::max(lower_bound_, left_at_least_ + least_own);
        left_at_least_ += least_left;
        if (next.empty()) next.push_back({memory_size::unlimited(), memory_size::unlimited(), {}, 0, 0});
        if (next.size() > most_states_) {
            std::sort(next.begin(), next.end(), [](const state& a, const state& b) {
                return std::max(a.peak, a.left) < std::max(b.peak, b.left);
            });
            next.resize(most_states_);
        }
        layers_.push_back(std::move(next));
    }
    static constexpr void add(std::vector<state>& states, const state& now) {
        for (const auto& other : states)
            if (dominates(other, now)) return;
        std::erase_if(states, [&](const state& other) { return dominates(now, other); });
        states.push_back(now);
    }

    const basic_problem<Graph>& p_;
    std::size_t most_states_;
    memory_size host_limit_;
    std::vector<std::vector<state>> layers_{{state{}}};
    memory_size lower_bound_{};
    memory_size left_at_least_{};
};

} // namespace detail

/// The least device memory with which `r` can run the microbatches one after the other.
///
/// While F of a stage runs, the stashes of the rank's earlier stages are on the device unless they were offloaded; on
/// the way back it is the same. So with offloaded set O the need is max over the rank's stages i of
/// Σ_{j<i, j∉O} a_j + a_i, and Σ_O a_j must fit the host. `needed` is the best over all O (up to `most_states`
/// different sums per stage; beyond that the best of them are kept); the lower bound takes another O for every i. With
/// lists of storage options, Σ is over the memory that each option leaves on the device, and a_i is the larger of two
/// amounts: the memory that the forward leaves, and the restored memory. Without full backwards the last a_i is at
/// least the weight stash.
template <pipeline_graph Graph>
[[nodiscard]] constexpr least_memory_result least_memory(const basic_problem<Graph>& p, rank r,
                                                         std::size_t most_states = 1024) {
    if (p.has_storage_options()) return detail::storage_choices<Graph>{p, r, most_states}.result();
    return detail::host_choices<Graph>{p, r, most_states}.result();
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] least_memory_result least_memory(const problem& p, rank r, std::size_t most_states = 1024);
#endif

/// Whether every rank has the memory to run one microbatch at a time.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool fits_one_at_a_time(const basic_problem<Graph>& p) {
    const auto slack = tolerance{}.at(p.memory_scale());
    for (const rank r : p.graph.all_ranks()) {
        const auto needed = least_memory(p, r).needed;
        if (needed.is_unlimited() || needed > p.memory_limit[r] + slack) return false;
    }
    return true;
}

/// Host memory that one microbatch takes on rank `r` if every stage uses the option with the smallest transfer.
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
