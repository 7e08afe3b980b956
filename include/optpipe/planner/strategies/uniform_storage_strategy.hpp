#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Problems with one storage option for all microbatches (`uniform_problem`), each with its own search. All strategies
/// share the searches.
class uniform_searches {
public:
    explicit uniform_searches(const problem& p, const search_limits& limits) {
        for (auto& [name, options] : uniform_choices(p))
            if (auto classic = uniform_problem(p, options); validate(classic).empty())
                searches_.emplace_back(std::move(options), std::move(classic), limits);
    }

    struct search {
        search(storage_by_stage<dynamic> o, problem p, const search_limits& limits)
            : options{std::move(o)}, state{std::move(p), limits} {}

        storage_by_stage<dynamic> options;
        search_state state;
        /// The objective that was last passed on to the search of the original problem.
        duration handed_on = duration::unlimited();
    };

    /// The searches to which the strategy is applicable.
    [[nodiscard]] std::vector<search*> applicable_to(const any_search_strategy& strategy) {
        std::vector<search*> applicable;
        for (auto& s : searches_)
            if (strategy.traits(s.state.problem()).applicable) applicable.push_back(&s);
        return applicable;
    }
    /// Picks a search that isn't settled. Picks the best search with probability 1/2, the next best with 1/4, and so
    /// on. Searches without a schedule come last. Null if all searches are settled.
    [[nodiscard]] static search* choose(const std::vector<search*>& applicable, std::uint64_t seed) {
        std::vector<std::pair<duration, search*>> by_objective;
        for (auto* s : applicable)
            if (!s->state.settled()) by_objective.emplace_back(s->state.objective(), s);
        if (by_objective.empty()) return nullptr;
        std::stable_sort(by_objective.begin(), by_objective.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        random_numbers random{seed};
        std::size_t chosen = 0;
        constexpr unsigned half = 50; // percent
        while (chosen + 1 < by_objective.size() && random.chance(half))
            ++chosen;
        return by_objective[chosen].second;
    }
    /// Offers the incumbent of `from` to the original problem's search, if the incumbent is new.
    void hand_on(search& from, search_state& to, std::string_view name) {
        {
            const std::scoped_lock lock{mutex_};
            const auto objective = from.state.objective();
            if (!(objective < from.handed_on)) return;
            from.handed_on = objective;
        }
        const auto found = from.state.incumbent();
        to.offer(with_storage(to.problem(), from.options, order_of(*found)), name);
    }

private:
    std::deque<search> searches_{};
    std::mutex mutex_{};
};

} // namespace detail

/// Adapts strategies to a problem with other storage options than `keep` and `offload`. An adapted strategy uses one
/// option for all microbatches, mostly the best option. Bounds of an adapted strategy don't hold for the original
/// problem. Strategies are adapted if they don't know storage options or request the adaptation
/// (`searches_uniform_storage`).
[[nodiscard]] inline std::vector<any_search_strategy>
on_uniform_storage(const problem& p, const search_limits& limits, const std::vector<any_search_strategy>& strategies) {
    // The share is small, because different options for different microbatches can gain more. Not tuned.
    constexpr double share = 0.25;
    const auto searches = std::make_shared<detail::uniform_searches>(p, limits);
    std::vector<any_search_strategy> adapted;
    for (const auto& strategy : strategies) {
        if (const auto known = strategy.traits(p); known.knows_storage_options && !known.searches_uniform_storage)
            continue;
        const auto applicable = searches->applicable_to(strategy);
        if (applicable.empty()) continue;
        auto traits = strategy.traits(applicable.front()->state.problem());
        traits.knows_storage_options = true;
        traits.cooperative = false;
        traits.resumes = false;
        traits.share *= share;
        const auto search = [searches, applicable, strategy](search_state& state, const strategy_options& options) {
            auto* chosen = detail::uniform_searches::choose(applicable, options.seed + options.effort);
            if (!chosen) return;
            search_state view{chosen->state, state.limits(), strategy.name()};
            strategy(view, options);
            searches->hand_on(*chosen, state, strategy.name());
        };
        adapted.push_back(strategy.adapted([traits](const problem&) { return traits; }, search));
    }
    return adapted;
}

} // namespace optpipe
