#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace optpipe {

/// A storage option in canonical units, without its name.
struct canonical_option {
    double held = 0.0;
    double transfer_size = 0.0;
    double recompute = 0.0;
    double backward_extra = 0.0;
    /// The times of the transfers. Infinite if nothing is offloaded.
    double offload = std::numeric_limits<double>::infinity();
    double reload = std::numeric_limits<double>::infinity();

    static constexpr std::size_t size = 6;
    [[nodiscard]] constexpr std::array<double, size> numbers() const {
        return {held, transfer_size, recompute, backward_extra, offload, reload};
    }
    [[nodiscard]] constexpr bool offloads() const { return offload < std::numeric_limits<double>::infinity(); }
    [[nodiscard]] constexpr double left_on_device() const { return held - transfer_size; }
    friend constexpr auto operator<=>(const canonical_option&, const canonical_option&) = default;
};
using canonical_options = std::vector<canonical_option>;

/// The canonical form of a problem. The form has no names and no units. Ranks and links are numbered in the order of
/// their first appearance. Storage options are sorted. Irrelevant numbers are left out. Problems with equal forms have
/// the same schedules, up to units and option indices.
struct canonical_problem {
    /// The discrete properties of the problem, except the number of microbatches and the storage options.
    std::string shape{};
    std::size_t stages = 0;
    std::size_t microbatches = 0;
    /// Times, in units of the work of one microbatch without factors. The list starts with the times of F, I and W of
    /// each stage. The times of messages (per edge and direction), the delays of groups and the durations of pairs
    /// follow.
    std::vector<double> times{};
    /// Sizes, in units of the largest stash. The list starts with the activation and the weight stash of each stage.
    /// Further entries are `kv` of each stage if there are slices, `held` of each edge if the stages aren't a chain,
    /// and the memory of each pair.
    std::vector<double> stashes{};
    /// Limits of each rank, in units of the largest stash. A limit is infinite if all microbatches together fit in
    /// memory.
    std::vector<double> limits{};
    std::vector<double> host_limits{};
    /// The scale for the tolerance when memory sizes are compared.
    double memory_scale = 0.0;
    /// The storage options of each stage, in ascending order.
    std::vector<canonical_options> storage{};
    /// `slices` has the number of slices of each sequence. The list is empty if no sequence has several slices.
    /// `factor_rows` has each stage's row of `factors`, and is empty if all factors are 1.
    std::vector<std::size_t> slices{};
    std::vector<std::size_t> factor_rows{};
    /// Five tables, with the factors of F, I, W, messages and memory. Each row of a table has one number per
    /// microbatch.
    std::vector<double> factors{};

    /// Whether microbatches differ, or are slices.
    [[nodiscard]] bool has_draw() const { return !slices.empty() || !factors.empty(); }
    [[nodiscard]] bool has_pairs() const { return shape.find(", pairs") != std::string::npos; }

    friend bool operator==(const canonical_problem&, const canonical_problem&) = default;
};
/// The number of tables in `canonical_problem::factors`, and the number of tables for times. The tables of times come
/// first.
inline constexpr std::size_t factor_tables = 5;
inline constexpr std::size_t factor_tables_of_times = 4;

/// The units of a problem's canonical form.
struct canonical_units {
    duration time{1.0};
    memory_size memory{1.0};
};

[[nodiscard]] canonical_problem canonical_form(const problem& p);
[[nodiscard]] canonical_units canonical_units_of(const problem& p);
/// The storage options in canonical units, in the order of the problem.
[[nodiscard]] std::vector<canonical_options> canonical_storage(const problem& p);
/// The computing time of each microbatch, in canonical units.
[[nodiscard]] std::vector<double> canonical_work(const canonical_problem& form);

/// A short name of `form`. Equal forms have the same name. Forms that differ only by rounding almost always have equal
/// names.
[[nodiscard]] std::string fingerprint_of(const canonical_problem& form);

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/overlaps.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/planner/cache/fingerprint.hpp"
#include "optpipe/schedule/pair.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace optpipe {
namespace detail {

class canonical_maker {
public:
    explicit canonical_maker(const problem& p) : p_{p}, number_of_(p.graph.ranks(), p.graph.ranks()) {
        for (const stage s : p.graph.all_stages()) {
            auto& number = number_of_[p.rank_of(s)];
            if (number < p.graph.ranks()) continue;
            number = ranks_.size();
            ranks_.push_back(p.rank_of(s));
        }
        units_.time = duration{};
        units_.memory = memory_size{};
        for (const stage s : p.graph.all_stages()) {
            const auto& c = p.costs[s];
            units_.time += c.work();
            units_.memory = std::max({units_.memory, c.activation, c.weight_stash});
            if (p.microbatches.has_slices()) units_.memory = std::max(units_.memory, c.kv);
            p.graph.for_each_edge_out_of(s, [&](const edge& e) { units_.memory = std::max(units_.memory, e.held); });
        }
        for (const overlap& each : p.overlaps)
            units_.memory = std::max(units_.memory, each.memory);
        for (const stage s : p.graph.all_stages())
            can_offload_ = can_offload_ || most_offloaded(s).has_value();
        // If nothing is stashed, limits don't matter.
        if (!(units_.memory > memory_size{})) units_.memory = memory_size::unlimited();
    }

    [[nodiscard]] canonical_units units() const { return units_; }
    [[nodiscard]] canonical_problem make() const {
        canonical_problem form;
        form.shape = shape();
        form.stages = p_.graph.stages();
        form.microbatches = p_.graph.microbatches();
        form.memory_scale = p_.memory_scale() / units_.memory;
        add_stages(form);
        add_connections(form);
        add_draw(form);
        for (const rank r : ranks_) {
            form.limits.push_back(limit(p_.memory_limit[r], r, false));
            form.host_limits.push_back(limit(p_.host_memory_limit[r], r, true));
        }
        form.storage = storage();
        for (auto& options : form.storage)
            std::sort(options.begin(), options.end());
        return form;
    }
    [[nodiscard]] std::vector<canonical_options> storage() const {
        std::vector<canonical_options> result;
        for (const stage s : p_.graph.all_stages()) {
            auto& options = result.emplace_back();
            for (std::size_t i = 0; i < p_.storage_options(s); ++i)
                options.push_back(canonical(p_.storage_of(s, i)));
        }
        return result;
    }

private:
    /// "4 on 0 1 2 3, split, makespan, offload, 1 engine, full duplex, links 0 1 2 3"
    [[nodiscard]] std::string shape() const {
        std::string text = std::to_string(ranks_.size()) + " on";
        for (const stage s : p_.graph.all_stages())
            text += " " + std::to_string(number_of_[p_.rank_of(s)]);
        text += !p_.split_backward ? ", whole" : p_.full_backward ? ", split" : ", split only";
        text += p_.objective == objective_kind::span ? ", span" : ", makespan";
        text += graph_text();
        if (!can_offload_) return text;
        text += ", offload";
        text += p_.transfer.engines == 2 ? ", 2 engines" : ", 1 engine";
        text += p_.transfer.duplex == duplex_kind::half ? ", half duplex, links" : ", full duplex, links";
        std::vector<std::uint32_t> seen;
        for (const rank r : ranks_) {
            const auto link = p_.transfer.link[r];
            const auto at = std::find(seen.begin(), seen.end(), link);
            text += " " + std::to_string(at - seen.begin());
            if (at == seen.end()) seen.push_back(link);
        }
        return text;
    }
    /// ", backward none input full, edges 0-2 1-2, group 1 2, pairs 0B0 1I0". Empty for a chain of stages with full
    /// backwards.
    [[nodiscard]] std::string graph_text() const {
        std::string text;
        const auto is_trained = [](const stage_costs& c) { return c.gradients == gradient_kind::full; };
        if (!std::all_of(p_.costs.begin(), p_.costs.end(), is_trained)) {
            text += ", backward";
            for (const auto& c : p_.costs)
                text += is_trained(c) ? " full" : c.gradients == gradient_kind::input ? " input" : " none";
        }
        if (!p_.graph.is_chain()) {
            text += ", edges";
            for_each_edge([&](const edge& e) {
                text += ' ' + std::to_string(e.from.value()) + '-' + std::to_string(e.to.value());
            });
        }
        p_.groups.for_each_group([&](const std::vector<stage>& members, duration) {
            text += ", group";
            for (const stage s : members)
                text += ' ' + std::to_string(s.value());
        });
        if (!p_.overlaps.empty()) text += ", pairs";
        for (const auto& each : sorted_pairs())
            text += ' ' + std::to_string(each.forward.value()) + (each.kind == overlap_kind::backward ? 'B' : 'I') +
                    std::to_string(each.backward.value());
        return text;
    }
    [[nodiscard]] std::vector<overlap> sorted_pairs() const {
        std::vector<overlap> pairs(p_.overlaps.begin(), p_.overlaps.end());
        std::sort(pairs.begin(), pairs.end(), [](const overlap& a, const overlap& b) {
            return std::tie(a.forward, a.backward, a.kind) < std::tie(b.forward, b.backward, b.kind);
        });
        return pairs;
    }
    template <class Visit> void for_each_edge(const Visit& visit) const {
        for (const stage s : p_.graph.all_stages())
            p_.graph.for_each_edge_out_of(s, visit);
    }
    [[nodiscard]] canonical_option canonical(const storage_option& option) const {
        canonical_option result{option.held / units_.memory, option.transfer_size / units_.memory,
                                option.recompute / units_.time, option.backward_extra / units_.time};
        if (option.transfer) {
            result.offload = option.transfer->offload / units_.time;
            result.reload = option.transfer->reload / units_.time;
        }
        return result;
    }
    void add_stages(canonical_problem& form) const {
        for (const auto& c : p_.costs) {
            for (const auto time : {c.forward, c.backward_input, c.backward_weight})
                form.times.push_back(time / units_.time);
            form.stashes.push_back(c.activation / units_.memory);
            form.stashes.push_back(c.weight_stash / units_.memory);
        }
        if (!p_.microbatches.has_slices()) return;
        for (const auto& c : p_.costs)
            form.stashes.push_back(c.kv / units_.memory);
    }
    void add_connections(canonical_problem& form) const {
        for_each_edge([&](const edge& e) {
            form.times.push_back(e.size * p_.hop(e.from, e.to) / units_.time);
            form.times.push_back(e.size * p_.hop(e.to, e.from) / units_.time);
            if (!p_.graph.is_chain()) form.stashes.push_back(e.held / units_.memory);
        });
        p_.groups.for_each_group(
            [&](const std::vector<stage>&, duration delay) { form.times.push_back(delay / units_.time); });
        for (const auto& each : sorted_pairs()) {
            form.times.push_back(each.duration / units_.time);
            form.stashes.push_back(each.memory / units_.memory);
        }
    }
    void add_draw(canonical_problem& form) const {
        if (p_.microbatches.has_slices())
            for (const auto& slices : sequences_of(p_))
                form.slices.push_back(slices.size());
        if (!p_.microbatches.has_factors()) return;
        std::vector<stage> rows;
        for (const stage s : p_.graph.all_stages()) {
            const auto is_same = [&](stage other) { return have_equal_factors(s, other); };
            const auto row = std::find_if(rows.begin(), rows.end(), is_same);
            form.factor_rows.push_back(static_cast<std::size_t>(row - rows.begin()));
            if (row == rows.end()) rows.push_back(s);
        }
        for (const auto factor : {&cost_factors::forward, &cost_factors::backward_input, &cost_factors::backward_weight,
                                  &cost_factors::message, &cost_factors::memory})
            for (const stage s : rows)
                for (const microbatch m : p_.graph.all_microbatches())
                    form.factors.push_back(p_.microbatches.factors(s, m).*factor);
    }
    [[nodiscard]] bool have_equal_factors(stage a, stage b) const {
        bool equal = true;
        for (const microbatch m : p_.graph.all_microbatches())
            equal = equal && p_.microbatches.factors(a, m) == p_.microbatches.factors(b, m);
        return equal;
    }
    /// The limit of rank `r` in canonical units. Infinite if the rank can never hold more memory than the limit.
    [[nodiscard]] double limit(memory_size given, rank r, bool host) const {
        memory_size most{};
        memory_size beside{};
        for (const stage s : p_.graph.all_stages()) {
            const auto& c = p_.costs[s];
            const auto count = memory_factors(s);
            if (!host)
                p_.graph.for_each_edge_out_of(s, [&](const edge& e) {
                    if (p_.rank_of(s) == r || p_.rank_of(e.to) == r) beside += count * e.held;
                });
            if (p_.rank_of(s) != r) continue;
            const auto one = host ? most_offloaded(s).value_or(memory_size{}) : std::max(c.activation, c.weight_stash);
            constexpr double with_gradients = 2.0;
            if (!host && p_.microbatches.has_slices()) beside += with_gradients * count * c.kv;
            if (p_.microbatches.has_factors())
                beside += count * one;
            else
                most += one;
        }
        if (!host) beside += most_memory_of_pair(p_, r);
        const bool is_ample = given >= static_cast<double>(p_.graph.microbatches()) * most + beside;
        return is_ample ? std::numeric_limits<double>::infinity() : given / units_.memory;
    }
    /// The sum of the memory factors of all microbatches.
    [[nodiscard]] double memory_factors(stage s) const {
        double sum = 0.0;
        for (const microbatch m : p_.graph.all_microbatches())
            sum += p_.microbatches.factors(s, m).memory;
        return sum;
    }
    /// The largest size that a storage option of the stage offloads. Empty if no option offloads.
    [[nodiscard]] std::optional<memory_size> most_offloaded(stage s) const {
        std::optional<memory_size> most;
        for (std::size_t i = 0; i < p_.storage_options(s); ++i)
            if (const auto option = p_.storage_of(s, i); option.offloads())
                most = std::max(most.value_or(memory_size{}), option.transfer_size);
        return most;
    }

    const problem& p_;
    per_rank<std::size_t> number_of_;
    std::vector<rank> ranks_{};
    canonical_units units_{};
    bool can_offload_ = false;
};

/// Numbers that differ by less than the tolerance have equal or adjacent buckets.
inline std::uint64_t bucket_of(double value) {
    if (!(value > 0.0)) return 0;
    if (std::isinf(value)) return 1;
    return static_cast<std::uint64_t>(std::llround(std::log(value) / tolerance{}.relative)) + 2;
}

} // namespace detail

OPTPIPE_INLINE canonical_problem canonical_form(const problem& p) { return detail::canonical_maker{p}.make(); }

OPTPIPE_INLINE canonical_units canonical_units_of(const problem& p) { return detail::canonical_maker{p}.units(); }

OPTPIPE_INLINE std::vector<canonical_options> canonical_storage(const problem& p) {
    return detail::canonical_maker{p}.storage();
}

OPTPIPE_INLINE std::vector<double> canonical_work(const canonical_problem& form) {
    std::vector<double> work(form.microbatches, 0.0);
    constexpr std::size_t times = 3; // the first tables: forward, I and W
    const auto table = form.factors.size() / factor_tables;
    for (std::size_t s = 0; s < form.stages; ++s)
        for (std::size_t k = 0; k < times; ++k)
            for (std::size_t m = 0; m < form.microbatches; ++m) {
                const auto at = form.factors.empty() ? 0 : k * table + form.factor_rows[s] * form.microbatches + m;
                work[m] += form.times[times * s + k] * (form.factors.empty() ? 1.0 : form.factors[at]);
            }
    return work;
}

OPTPIPE_INLINE std::string fingerprint_of(const canonical_problem& form) {
    detail::fingerprint print;
    print.add(form.shape);
    print.add(form.microbatches);
    for (const auto* list : {&form.times, &form.stashes, &form.limits, &form.host_limits, &form.factors}) {
        print.add(list->size());
        for (const double value : *list)
            print.add(detail::bucket_of(value));
    }
    for (const auto* list : {&form.slices, &form.factor_rows}) {
        print.add(list->size());
        for (const auto number : *list)
            print.add(number);
    }
    for (const auto& options : form.storage) {
        print.add(options.size());
        for (const auto& option : options)
            for (const double value : option.numbers())
                print.add(detail::bucket_of(value));
    }
    return print.text();
}

} // namespace optpipe
#endif
