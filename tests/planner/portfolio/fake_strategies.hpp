#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"
#include "optpipe/planner/strategies/standard_strategies.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

/// Small strategies with known behaviour, for tests of portfolios.
namespace fake {

/// Swaps random neighbours of the best order `effort` times and keeps improvements.
struct shuffler {
    static constexpr std::string_view name = "shuffler";
    static optpipe::strategy_traits traits(const optpipe::problem&) {
        return {.randomized = true, .first_effort = 200};
    }

    void operator()(optpipe::search_state& state, const optpipe::strategy_options& options) const {
        const auto start = state.incumbent();
        if (!start) return;
        auto best = order_of(*start);
        auto value = objective_of(state.problem(), *start);
        optpipe::random_numbers random{options.seed};
        for (std::size_t i = 0; i < options.effort && !state.done(); ++i) {
            auto changed = best;
            const auto from = random.below(changed.operations.size() - 1);
            std::swap(changed.operations[from], changed.operations[from + 1]);
            const auto timed = time_order(state.problem(), changed);
            if (!timed || objective_of(state.problem(), *timed) > value) continue;
            value = state.offer(changed, name);
            best = std::move(changed);
        }
    }
};

/// Proves a given bound once it has enough effort.
struct prover {
    static constexpr std::string_view name = "prover";
    static optpipe::strategy_traits traits(const optpipe::problem&) { return {.first_effort = 1}; }
    optpipe::duration knows{};
    std::size_t needs = 1;

    void operator()(optpipe::search_state& state, const optpipe::strategy_options& options) const {
        if (options.effort >= needs) state.raise_bound(std::min(knows, state.objective()), name);
    }
};

/// Offers a given optimal schedule and its proof.
struct oracle {
    static constexpr std::string_view name = "oracle";
    optpipe::order knows{};
    void operator()(optpipe::search_state& state, const optpipe::strategy_options&) const {
        state.raise_bound(state.offer(knows, name), name);
    }
};

struct thrower {
    static constexpr std::string_view name = "thrower";
    void operator()(optpipe::search_state&, const optpipe::strategy_options&) const {
        throw std::runtime_error{"thrown"};
    }
};

/// Runs until it is stopped, whatever its effort, and counts the stops.
struct endless {
    static constexpr std::string_view name = "endless";
    std::atomic<std::size_t>* stopped = nullptr;
    void operator()(optpipe::search_state& state, const optpipe::strategy_options&) const {
        while (!state.done()) {
        }
        if (stopped) ++*stopped;
    }
};

/// Requests a stop as soon as it runs.
struct stopper {
    static constexpr std::string_view name = "stopper";
    std::stop_source source{};
    void operator()(optpipe::search_state&, const optpipe::strategy_options&) const {
        auto own = source;
        own.request_stop();
    }
};

/// Counts its calls.
struct counter {
    static constexpr std::string_view name = "counter";
    std::atomic<std::size_t>* calls = nullptr;
    bool applicable = true;
    [[nodiscard]] optpipe::strategy_traits traits(const optpipe::problem&) const { return {.applicable = applicable}; }
    void operator()(optpipe::search_state&, const optpipe::strategy_options&) const { ++*calls; }
};

/// Has the name of another strategy, and does nothing.
template <class Strategy> struct idle {
    static constexpr std::string_view name = Strategy::name;
    static optpipe::strategy_traits traits(const optpipe::problem&) { return {.applicable = false}; }
    void operator()(optpipe::search_state&, const optpipe::strategy_options&) const {}
};

template <class... Strategies> std::vector<optpipe::any_search_strategy> all_idle() { return {idle<Strategies>{}...}; }

/// The usual strategies by name: the given ones, and others that do nothing.
inline std::vector<optpipe::any_search_strategy> usual_with(std::vector<optpipe::any_search_strategy> given) {
    using namespace optpipe;
    const auto usual = all_idle<propagation_strategy, cp_strategy, local_search_strategy, rescheduling_strategy,
                                modulo_strategy, milp_strategy, adaptive_strategy, order_strategy>();
    for (const auto& each : usual)
        if (std::none_of(given.begin(), given.end(), [&](const auto& one) { return one.name() == each.name(); }))
            given.push_back(each);
    return given;
}

} // namespace fake
