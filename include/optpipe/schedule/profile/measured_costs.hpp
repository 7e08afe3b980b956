#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"

namespace optpipe {

/// The problem with the medians of the measurements. Memory and costs that weren't measured stay as planned. A full
/// backward measured as a whole is divided into I and W in the planned proportion. Unmeasured recomputations scale like
/// the forward, transfers like the stage's largest measured transfer, and pairs like the sum of their parts. No pair
/// becomes shorter than either of its operations. Factors of microbatches and sizes of edges stay as planned: samples
/// were divided by them.
[[nodiscard]] problem with_measured_costs(problem p, const cost_profile& profile);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>

namespace optpipe {
namespace detail {

/// The medians of a profile. If a transfer was measured alone on its link, only these samples count, because planned
/// transfers don't overlap on a link.
class measured_medians {
public:
    explicit measured_medians(const cost_profile& profile) {
        for (const auto& [key, e] : profile.operations())
            of_[key] = e.median;
    }
    /// The median; empty without measurements, or if the median is 0.
    [[nodiscard]] std::optional<duration> operator()(stage s, operation_kind kind,
                                                     std::optional<storage_index> storage = {}) const {
        for (const bool shared : {false, true})
            if (const auto at = of_.find({s, kind, storage, shared}); at != of_.end() && at->second > duration{})
                return at->second;
        return std::nullopt;
    }

    [[nodiscard]] std::optional<duration> operator()(const overlap& pair) const {
        const bool is_full = pair.kind == overlap_kind::backward;
        const auto kind = is_full ? operation_kind::backward : operation_kind::backward_input;
        const auto at = of_.find({pair.backward, kind, {}, false, pair.forward});
        return at != of_.end() && at->second > duration{} ? std::optional{at->second} : std::nullopt;
    }

private:
    std::map<cost_key, duration> of_{};
};

/// Sets the durations of pairs. `planned` has the costs of the pairs' parts before measured costs replaced them.
inline void measure_pairs(problem& p, const per_stage<stage_costs>& planned, const measured_medians& measured) {
    decltype(p.overlaps) pairs;
    for (auto each : p.overlaps) {
        const auto length = [&](const per_stage<stage_costs>& costs) {
            return costs[each.forward].forward + length_of(costs[each.backward], each.kind);
        };
        const auto before = length(planned);
        const double factor = before > duration{} ? length(p.costs) / before : 1.0;
        each.duration = std::max({measured(each).value_or(factor * each.duration), p.costs[each.forward].forward,
                                  length_of(p.costs[each.backward], each.kind)});
        pairs.add(each);
    }
    p.overlaps = std::move(pairs);
}

/// Sets the costs of backwards that don't recompute, from measured full and split backwards.
inline void measure_backwards(stage_costs& costs, const measured_medians& measured, stage s) {
    const auto input = measured(s, operation_kind::backward_input);
    const auto weight = measured(s, operation_kind::backward_weight);
    const auto full = measured(s, operation_kind::backward);
    const double input_share = costs.backward_input / costs.backward();
    if (full && !(input && weight)) {
        costs.backward_input = input && *input < *full     ? *input
                               : weight && *weight < *full ? *full - *weight
                                                           : input_share * *full;
        costs.backward_weight = *full - costs.backward_input;
        return;
    }
    costs.backward_input = input.value_or(costs.backward_input);
    costs.backward_weight = weight.value_or(costs.backward_weight);
}

/// Sets `backward_extra` of a storage option. If the costs without recomputation are unknown, the measured time is
/// divided in the planned proportion.
inline void measure_recomputing_backward(stage_costs& costs, storage_option& option, const measured_medians& measured,
                                         stage s, storage_index at, double forward_factor, bool& base_is_known) {
    // The least share of the planned `backward_extra`. Not 0, because an option with a `backward_extra` of 0 doesn't
    // recompute.
    constexpr double least_share = 1e-3;
    const auto input = measured(s, operation_kind::backward_input, at);
    const auto full = measured(s, operation_kind::backward, at);
    if (!input && !full) {
        option.backward_extra = forward_factor * option.backward_extra;
        return;
    }
    const auto took = input ? *input : *full;
    const auto without = input ? costs.backward_input : costs.backward();
    if (base_is_known) {
        option.backward_extra = std::max(least_share * option.backward_extra, took - without);
        return;
    }
    const double factor = took / (without + option.backward_extra);
    costs.backward_input = factor * costs.backward_input;
    if (!input) costs.backward_weight = factor * costs.backward_weight;
    option.backward_extra = factor * option.backward_extra;
    base_is_known = true;
}

/// Sets the durations of all offloads, or of all reloads, in a stage's storage options. Unmeasured transfers change by
/// the factor of the largest measured transfer.
template <class Options>
void measure_transfers(Options& options, const measured_medians& measured, stage s, operation_kind kind,
                       duration transfer_times::*way) {
    double factor = 1.0;
    memory_size largest{};
    for (std::size_t i = 0; i < options.size(); ++i) {
        const auto took = measured(s, kind, static_cast<storage_index>(i));
        if (!took || !options[i].offloads() || options[i].transfer_size < largest) continue;
        if (const auto planned = (*options[i].transfer).*way; planned > duration{}) factor = *took / planned;
        largest = options[i].transfer_size;
    }
    for (std::size_t i = 0; i < options.size(); ++i) {
        if (!options[i].offloads()) continue;
        auto& time = (*options[i].transfer).*way;
        time = measured(s, kind, static_cast<storage_index>(i)).value_or(factor * time);
    }
}

} // namespace detail

OPTPIPE_INLINE problem with_measured_costs(problem p, const cost_profile& profile) {
    const detail::measured_medians measured{profile};
    const auto planned = p.costs;
    for (const stage s : p.graph.all_stages()) {
        auto& costs = p.costs[s];
        const auto planned_forward = costs.forward;
        costs.forward = measured(s, operation_kind::forward).value_or(planned_forward);
        const double forward_factor = planned_forward > duration{} ? costs.forward / planned_forward : 1.0;
        detail::measure_backwards(costs, measured, s);
        detail::measure_transfers(p.storage[s], measured, s, operation_kind::offload, &transfer_times::offload);
        detail::measure_transfers(p.storage[s], measured, s, operation_kind::reload, &transfer_times::reload);
        bool base_is_known = measured(s, operation_kind::backward_input) || measured(s, operation_kind::backward);
        for (std::size_t i = 0; i < p.storage[s].size(); ++i) {
            auto& option = p.storage[s][i];
            const auto at = static_cast<storage_index>(i);
            detail::measure_recomputing_backward(costs, option, measured, s, at, forward_factor, base_is_known);
            option.recompute = measured(s, operation_kind::recompute, at).value_or(forward_factor * option.recompute);
        }
    }
    detail::measure_pairs(p, planned, measured);
    const auto messages = profile.messages();
    if (messages.empty()) return p;
    bounded_vector<duration, dynamic> times;
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            times.push_back(p.p2p(a, b));
    for (const auto& [pair, e] : messages)
        times[pair.from.position() * p.graph.ranks() + pair.to.position()] = e.median;
    p.p2p = hop_times<>{p.graph.ranks(), std::move(times)};
    return p;
}

} // namespace optpipe
#endif
