#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <optional>

namespace optpipe {

/// Bound and schedule of a problem with a single rank, computed from its storage options alone.
struct single_device_result {
    /// A lower bound: no valid schedule is shorter.
    duration bound{};
    /// The order that runs one microbatch after the other, without offloading. Recomputation is as little as memory
    /// allows. Empty if one microbatch at a time doesn't fit in memory without offloading.
    std::optional<order> best{};
};

/// Chooses the storage options of a single rank by solving a knapsack problem. When a microbatch's gradient starts on
/// the last stage, all its stashes are in memory or on the host. When a gradient starts on another stage, the stashes
/// of all earlier stages are in memory or on the host. The stashes in memory fit together. The options' extra work is
/// at least the optimum of a multiple-choice knapsack. With one microbatch, the bound also counts transfers: all
/// reloads start after all offloads.
///
/// The knapsack is solved by lists of Pareto-optimal choices (Nemhauser and Ullmann). A list has at most `most_choices`
/// choices (not tuned). Longer lists are thinned, which lowers the bound. Contract: the problem is plain and has one
/// rank.
[[nodiscard]] single_device_result single_device(const problem& p, stop_check stop = {},
                                                 std::size_t most_choices = 1U << 12U);

} // namespace optpipe

#if OPTPIPE_DEFINES(planner)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Storage options of the first stages for one microbatch, with their total memory and time.
struct knapsack_choice {
    /// Memory of the stashes at the start of the last stage's gradient.
    memory_size held{};
    /// Time of recomputations, before backwards or inside them.
    duration extra{};
    duration offload{};
    duration reload{};
    /// `before` is the index of the choice for the earlier stages. `option` is the option of the stage.
    std::uint32_t before = 0;
    storage_index option = 0;

    [[nodiscard]] bool is_as_good_as(const knapsack_choice& other) const {
        return held <= other.held && extra <= other.extra && offload <= other.offload && reload <= other.reload;
    }
};

class storage_knapsack {
public:
    /// `with_transfers` tells whether stashes may be offloaded.
    storage_knapsack(const problem& p, bool with_transfers, std::size_t most_choices)
        : p_{p}, with_transfers_{with_transfers}, most_choices_{most_choices} {}

    /// Returns false if the search was stopped.
    [[nodiscard]] bool solve(stop_check stop) {
        const auto limit = p_.memory_limit[rank{}] + tolerance{}.at(p_.memory_scale());
        const std::vector<knapsack_choice> nothing{{}};
        for (const stage s : p_.graph.all_stages()) {
            if (stop()) return false;
            const auto& before = lists_.empty() ? nothing : lists_.back();
            const auto own = choices_of(s);
            std::vector<knapsack_choice> next;
            for (std::size_t i = 0; i < before.size(); ++i)
                for (auto each : own) {
                    const auto restored = p_.storage[s][each.option].restored(p_.costs[s]);
                    // With transfers, the limit doesn't hold: stashes may be offloaded during the backwards.
                    if (!with_transfers_ && before[i].held + restored > limit) continue;
                    each.held += before[i].held;
                    if (each.held > limit) continue;
                    each.extra += before[i].extra;
                    // With several microbatches, transfers may run during the work of other microbatches.
                    each.offload = p_.graph.microbatches() > 1 ? duration{} : each.offload + before[i].offload;
                    each.reload = p_.graph.microbatches() > 1 ? duration{} : each.reload + before[i].reload;
                    each.before = static_cast<std::uint32_t>(i);
                    next.push_back(each);
                }
            keep_best(next);
            thin(next);
            lists_.push_back(std::move(next));
        }
        return true;
    }

    [[nodiscard]] const std::vector<knapsack_choice>& choices() const { return lists_.back(); }
    /// The option of each stage.
    [[nodiscard]] storage_by_stage<dynamic> options_of(std::size_t choice) const {
        storage_by_stage<dynamic> options(p_.graph.stages());
        for (std::size_t s = p_.graph.stages(); s-- > 0;) {
            const auto& each = lists_[s][choice];
            options[stage{s}] = each.option;
            choice = each.before;
        }
        return options;
    }

private:
    /// The choices of one stage. An offloadable stash may still be on the device when the last stage's gradient starts.
    [[nodiscard]] std::vector<knapsack_choice> choices_of(stage s) const {
        const bool is_last = s.position() + 1 == p_.graph.stages();
        std::vector<knapsack_choice> choices;
        for (std::size_t o = 0; o < p_.storage[s].size(); ++o) {
            const auto& option = p_.storage[s][o];
            const auto at = static_cast<storage_index>(o);
            if (option.offloads() && !with_transfers_) continue;
            const auto held = is_last ? option.restored(p_.costs[s]) : option.held;
            choices.push_back({held, option.extra_work(), {}, {}, 0, at});
            if (option.offloads() && !is_last)
                choices.push_back({option.left_on_device(), option.extra_work(), option.transfer->offload,
                                   option.transfer->reload, 0, at});
        }
        return choices;
    }
    /// Drops each choice that is no better than another choice. Choices are sorted by memory. Without transfer times,
    /// each choice is compared only with the last kept choice.
    void keep_best(std::vector<knapsack_choice>& choices) const {
        std::stable_sort(choices.begin(), choices.end(), [](const knapsack_choice& a, const knapsack_choice& b) {
            return a.held != b.held ? a.held < b.held : a.extra < b.extra;
        });
        std::vector<knapsack_choice> best;
        const bool has_times = with_transfers_ && p_.graph.microbatches() == 1;
        for (const auto& each : choices) {
            const auto first = has_times || best.empty() ? best.begin() : std::prev(best.end());
            if (std::none_of(first, best.end(),
                             [&](const knapsack_choice& other) { return other.is_as_good_as(each); }))
                best.push_back(each);
        }
        choices = std::move(best);
    }
    /// Merges pairs of neighbouring choices until at most `most_choices_` are left. A merged choice is at least as good
    /// as the two choices it replaces.
    void thin(std::vector<knapsack_choice>& choices) {
        while (choices.size() > most_choices_) {
            std::vector<knapsack_choice> merged;
            for (std::size_t i = 0; i < choices.size(); i += 2) {
                merged.push_back(choices[i]);
                if (i + 1 == choices.size()) break;
                auto& into = merged.back();
                const auto& other = choices[i + 1];
                into.held = std::min(into.held, other.held);
                into.extra = std::min(into.extra, other.extra);
                into.offload = std::min(into.offload, other.offload);
                into.reload = std::min(into.reload, other.reload);
            }
            choices = std::move(merged);
        }
    }

    const problem& p_;
    bool with_transfers_;
    std::size_t most_choices_;
    std::vector<std::vector<knapsack_choice>> lists_;
};

/// The least time of a step in which all microbatches have the same choice (see `single_device`).
class single_device_times {
public:
    explicit single_device_times(const problem& p) : microbatches_{static_cast<double>(p.graph.microbatches())} {
        shortest_backward_ = duration::unlimited();
        for (const stage s : p.graph.all_stages()) {
            forwards_ += p.costs[s].forward;
            backwards_ += p.costs[s].backward();
            shortest_backward_ = std::min(shortest_backward_, p.costs[s].backward_input);
        }
        first_forward_ = p.costs[stage{}].forward;
    }
    [[nodiscard]] duration operator()(const knapsack_choice& choice) const {
        const auto busy = microbatches_ * (forwards_ + backwards_ + choice.extra);
        if (microbatches_ > 1.0) return busy;
        const auto out = first_forward_ + choice.offload;
        const auto back = choice.reload + shortest_backward_;
        return std::max({busy, out + backwards_, forwards_ + back, out + back});
    }

private:
    double microbatches_;
    duration forwards_{};
    duration backwards_{};
    duration first_forward_{};
    duration shortest_backward_{};
};

inline bool may_offload(const problem& p) {
    for (const stage s : p.graph.all_stages())
        for (const auto& option : p.storage[s])
            if (option.offloads()) return true;
    return false;
}

} // namespace detail

OPTPIPE_INLINE single_device_result single_device(const problem& p, stop_check stop, std::size_t most_choices) {
    OPTPIPE_EXPECT(is_plain(p) && p.graph.ranks() == 1, "single_device: needs a plain problem with one rank");
    single_device_result result;
    const detail::single_device_times time{p};
    const auto is_less = [&](const detail::knapsack_choice& a, const detail::knapsack_choice& b) {
        return time(a) < time(b);
    };
    const auto best_of = [&](const std::vector<detail::knapsack_choice>& choices) {
        return static_cast<std::size_t>(std::min_element(choices.begin(), choices.end(), is_less) - choices.begin());
    };
    detail::storage_knapsack kept{p, false, most_choices};
    if (!kept.solve(stop)) return result;
    const auto& choices = kept.choices();
    if (!choices.empty()) result.best = one_at_a_time(p, kept.options_of(best_of(choices)));
    if (!detail::may_offload(p)) {
        if (!choices.empty()) result.bound = time(choices[best_of(choices)]);
        return result;
    }
    detail::storage_knapsack all{p, true, most_choices};
    if (all.solve(stop) && !all.choices().empty()) result.bound = time(all.choices()[best_of(all.choices())]);
    return result;
}

} // namespace optpipe
#endif
