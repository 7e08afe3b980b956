#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"
#include "optpipe/planner/cp/solver.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::cp {

/// How `neighbourhoods` chooses tasks. Not tuned.
struct neighbourhood_parameters {
    /// The share of tasks in a neighbourhood. Each kind of neighbourhood has its own share, which begins with
    /// `first_share` and is never below `least_share`.
    double first_share = 0.15;
    double least_share = 0.02;
    /// The share is multiplied by this factor after a neighbourhood without better schedules, and divided by this
    /// factor after a search that was stopped.
    double growth = 1.1;
    /// On two ranks alone, windows are longer by this factor.
    double window_of_ranks = 3.0;
};

/// Large neighbourhoods of a schedule (Shaw 1998). A neighbourhood frees some tasks. All other tasks keep their order
/// and their presence.
class neighbourhoods {
public:
    /// `m` must outlive this object.
    neighbourhoods(const pipeline_model& m, std::uint64_t seed)
        : model_{&m}, random_{seed}, places_(m.tasks().tasks.size()), is_free_(places_.size(), false),
          tasks_of_(m.tasks().variables()) {
        const auto& all = m.tasks();
        for (const stage s : m.source().graph.all_stages())
            add_places(s);
        for (task_index t = 0; t < all.tasks.size(); ++t)
            tasks_of_[all.tasks[t].presence.variable()].push_back(t);
        for (std::uint32_t v = 1; v < all.variables(); ++v)
            if (const auto& c = all.choices[v]; c.first != c.second) tasks_of_[v] = {c.first, c.second};
        shares_.fill(with_.first_share);
    }

    /// The literals that hold in all of a random neighbourhood of a schedule.
    [[nodiscard]] std::vector<literal> next(const assignment& of) {
        kind_ = static_cast<kind>(random_.below(kinds));
        free_tasks(of);
        std::vector<literal> kept;
        for (std::uint32_t v = 1; v < tasks_of_.size(); ++v)
            if (is_kept(tasks_of_[v])) kept.push_back({v, !of.values[v]});
        return kept;
    }
    /// Adapts the size of neighbourhoods to the answer of the search in the last one.
    void adapt(search_status answer) {
        auto& share = share_of_kind();
        if (answer == search_status::refuted) share = std::min(1.0, share * with_.growth);
        if (answer == search_status::stopped) share = std::max(with_.least_share, share / with_.growth);
    }

private:
    /// What a neighbourhood frees: tasks that start in a window of time, on all ranks or on two, or all tasks of
    /// successive microbatches.
    enum class kind { window, window_of_ranks, microbatches };
    static constexpr std::size_t kinds = 3;

    struct place {
        /// The forward or gradient whose start stands for that of an absent task.
        task_index base = 0;
        std::size_t microbatch = 0;
        std::size_t rank = 0;
    };

    [[nodiscard]] double& share_of_kind() { return shares_[static_cast<std::size_t>(kind_)]; }
    /// Variables without tasks follow from other variables.
    [[nodiscard]] bool is_kept(const std::vector<task_index>& tasks) const {
        return !tasks.empty() && std::none_of(tasks.begin(), tasks.end(), [&](task_index t) { return is_free_[t]; });
    }
    void add_places(stage s) {
        const auto& own = model_->stages()[s];
        const auto r = model_->source().rank_of(s).position();
        const auto add = [&](task_index t, task_index base, std::size_t k) {
            if (t != no_task) places_[t] = {base, k, r};
        };
        for (const auto* const tasks : {&own.forward, &own.gradient, &own.weight})
            for (std::size_t k = 0; k < tasks->size(); ++k)
                add((*tasks)[k], (*tasks)[k], k);
        for (std::size_t k = 0; k < own.storage.stashes.size(); ++k) {
            const auto use = own.gradient.empty() ? own.forward[k] : own.gradient[k];
            for (const auto& each : own.storage.stashes[k]) {
                add(each.offload, own.forward[k], k);
                add(each.reload, use, k);
                add(each.recompute, use, k);
            }
        }
        for (std::size_t k = 0; k < own.storage.gradients.size(); ++k)
            for (const auto& each : own.storage.gradients[k])
                add(each.extra, own.gradient[k], k);
    }
    [[nodiscard]] ticks start_of(task_index t, const assignment& of) const {
        return of.starts[of.is_true(model_->tasks().tasks[t].presence) ? t : places_[t].base];
    }
    void free_tasks(const assignment& of) {
        if (kind_ == kind::microbatches)
            free_microbatches();
        else
            free_window(of);
    }
    void free_microbatches() {
        const auto count = model_->source().graph.microbatches();
        const auto free =
            std::max<std::size_t>(1, static_cast<std::size_t>(share_of_kind() * static_cast<double>(count)));
        const auto first = random_.below(count - free + 1);
        for (task_index t = 0; t < places_.size(); ++t)
            is_free_[t] = places_[t].microbatch >= first && places_[t].microbatch < first + free;
    }
    void free_window(const assignment& of) {
        const bool on_all = kind_ == kind::window;
        const auto ranks = model_->source().graph.ranks();
        const auto first = random_.below(ranks);
        const auto share = std::min(1.0, on_all ? share_of_kind() : with_.window_of_ranks * share_of_kind());
        const auto last_start = static_cast<double>(*std::max_element(of.starts.begin(), of.starts.end()));
        const auto begin = static_cast<ticks>(last_start * (random_.share() * (1.0 + share) - share));
        const auto end = begin + static_cast<ticks>(last_start * share);
        for (task_index t = 0; t < places_.size(); ++t) {
            const auto at = start_of(t, of);
            const auto r = places_[t].rank;
            is_free_[t] = begin <= at && at <= end && (on_all || r == first || r == (first + 1) % ranks);
        }
    }

    static constexpr neighbourhood_parameters with_{};

    const pipeline_model* model_;
    random_numbers random_;
    std::vector<place> places_;
    std::vector<bool> is_free_;
    /// For each variable, the two tasks whose order it is, or the tasks whose presence it is.
    std::vector<std::vector<task_index>> tasks_of_;
    kind kind_ = kind::window;
    std::array<double, kinds> shares_{};
};

} // namespace optpipe::cp
