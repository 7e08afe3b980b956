#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/construct/distinct_pairs.hpp"
#include "optpipe/schedule/construct/merge_pairs.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The problem without the storage options that offload. `original` converts an order of this problem to an order of
/// the original problem.
class problem_without_offloads {
public:
    explicit problem_without_offloads(const problem& p) : reduced_{p} {
        for (const stage s : p.graph.all_stages()) {
            storage_list<false> kept;
            auto& places = places_.emplace_back();
            for (std::size_t i = 0; i < p.storage_options(s); ++i)
                if (!p.storage_of(s, i).offloads()) {
                    kept.push_back(p.storage_of(s, i));
                    places.push_back(static_cast<storage_index>(i));
                }
            // If all options of a stage offload, the stage's options are left unchanged, and `pair_search` does
            // nothing.
            if (!kept.empty()) reduced_.set_stage(s, p.costs[s], kept);
            can_do_without_ = can_do_without_ && !kept.empty();
        }
    }

    [[nodiscard]] const problem& reduced() const { return reduced_; }
    [[nodiscard]] bool can_do_without() const { return can_do_without_; }
    /// The inverse of `original`. Empty if an operation has a storage option that offloads.
    [[nodiscard]] std::optional<order> reduced(order of_original) const {
        for (auto& op : of_original.operations) {
            const auto& places = places_[op.stage.position()];
            const auto found = std::find(places.begin(), places.end(), op.storage);
            if (found == places.end()) return std::nullopt;
            op.storage = static_cast<storage_index>(found - places.begin());
        }
        return of_original;
    }
    [[nodiscard]] order original(order of_reduced) const {
        for (auto& op : of_reduced.operations)
            op.storage = places_[op.stage.position()][op.storage];
        return of_reduced;
    }

private:
    problem reduced_;
    std::vector<std::vector<storage_index>> places_{};
    bool can_do_without_ = true;
};

/// The order `of`, with one storage option for all microbatches of a stage. The storage option has index `option` in
/// the stage's list. If the list is shorter, the last option is used. A recomputation comes right before its backward,
/// or before the backward's pair. Contract: `of` has no recomputations and no transfers.
[[nodiscard]] inline order with_one_option(const problem& p, const order& of, std::size_t option) {
    order made{p.graph, {}};
    const auto stored = [&](operation op) {
        op.storage = static_cast<storage_index>(std::min(option, p.storage_options(op.stage) - 1));
        return op;
    };
    const auto add_recompute = [&](const operation& op) {
        const auto recompute = sibling(stored(op), operation_kind::recompute);
        if (is_gradient(op.kind) && is_possible(p, recompute)) made.operations.push_back(recompute);
    };
    per_rank<const operation*> open(p.graph.ranks(), nullptr);
    for (const auto& op : of.operations) {
        auto& first = open[p.rank_of(op.stage)];
        if (op.is_paired && !first) {
            first = &op;
            continue;
        }
        add_recompute(op);
        if (first) {
            add_recompute(*first);
            made.operations.push_back(stored(*first));
            first = nullptr;
        }
        made.operations.push_back(stored(op));
    }
    return made;
}

/// A schedule to improve, perhaps above the memory limits, and the best schedule found from it.
struct pair_start {
    schedule made{};
    /// The objective of `best`. While `best` is empty, `value` is the objective of `made`, plus a penalty for memory
    /// above a limit. The penalty is 1/2 × (objective of `made`) × (largest excess of a rank, as a share of its limit).
    /// The factor 1/2 is a guess.
    double value = 0.0;
    /// The best schedule found until now that meets the memory limits. Empty until a schedule that meets the memory
    /// limits is found.
    schedule best{};
};

/// Makes the starts. The starts come from the published builders that neither search nor poll for a stop. Each builder
/// makes one order without memory limits. An order without recomputations and transfers gives one start for each
/// storage option. The start with the least `value` comes first.
class pair_start_maker {
public:
    pair_start_maker(const problem& reduced, std::size_t most_pairs)
        : p_{&reduced}, relaxed_{reduced}, most_pairs_{most_pairs} {
        for (auto& limit : relaxed_.memory_limit)
            limit = memory_size::unlimited();
        for (const stage s : reduced.graph.all_stages())
            options_ = std::max(options_, reduced.storage_options(s));
    }
    std::vector<pair_start> make(stop_check stop) && {
        const auto add_of = [&](const auto& build) {
            constexpr bool is_search = requires { build.effort; };
            if constexpr (!is_search && !has_stoppable_build<std::decay_t<decltype(build)>>)
                if (!stop.is_requested())
                    if (const auto built = build_schedule(relaxed_, build, stop)) add(order_of(*built), stop);
        };
        for_each_builder(add_of);
        for_each_graph_builder(add_of);
        std::stable_sort(all_.begin(), all_.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
        return std::move(all_);
    }

private:
    void add(const order& built, stop_check stop) {
        for (const auto& op : built.operations)
            if (is_transfer(op.kind) || op.kind == operation_kind::recompute) return;
        for (std::size_t option = 0; option < options_ && !stop.is_requested(); ++option) {
            auto timed = time_order(relaxed_, with_one_option(relaxed_, built, option));
            if (timed) timed = with_most_distinct_pairs(relaxed_, *timed, most_pairs_);
            if (!timed) continue;
            const double objective = objective_of(relaxed_, *timed).value();
            const double value = objective * (1.0 + 0.5 * excess(*timed));
            const bool is_new = std::none_of(all_.begin(), all_.end(), [&](const auto& x) { return x.value == value; });
            if (is_new) all_.push_back({*std::move(timed), value, {}});
        }
    }
    /// The largest (peak memory − limit) / limit of a rank, or 0 if all ranks meet their limits.
    [[nodiscard]] double excess(const schedule& s) const {
        const auto peaks = measure(relaxed_, s).peak_memory;
        double most = 0.0;
        for (const rank r : p_->graph.all_ranks())
            if (peaks[r] > p_->memory_limit[r] && p_->memory_limit[r] > memory_size{})
                most = std::max(most, peaks[r] / p_->memory_limit[r] - 1.0);
        return most;
    }

    const problem* p_;
    problem relaxed_;
    std::size_t most_pairs_;
    std::size_t options_ = 1;
    std::vector<pair_start> all_{};
};

} // namespace optpipe::detail
