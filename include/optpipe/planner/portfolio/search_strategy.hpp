#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/builder.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace optpipe {

/// The options of one call of a strategy.
struct strategy_options {
    /// The seed of its random numbers.
    std::uint64_t seed = 1;
    /// The amount of work, in units of the strategy's own; the same effort is the same work on every machine.
    std::size_t effort = std::numeric_limits<std::size_t>::max();
    /// Threads that it may use, including the caller's.
    std::size_t threads = 1;
};

template <class P>
concept has_search = requires(const P& strategy, search_state& state, const strategy_options& options) {
    { strategy(state, options) } -> std::same_as<void>;
};
/// Whether the strategy is applicable to a problem.
template <class P> concept has_applies_to = requires(const P& strategy, const problem& p) {
    { strategy.applies_to(p) } -> std::same_as<bool>;
};
/// An effort that takes some tens of milliseconds; larger ones are tried later. 0: any call takes longer, and
/// it runs only if there is time.
template <class P> concept has_first_effort = requires(const P& strategy, const problem& p) {
    { strategy.first_effort(p) } -> std::same_as<std::size_t>;
};
/// `randomized`: whether the outcome depends on the seed, so that several concurrent calls make sense.
template <class P> concept has_randomized = requires {
    { P::randomized } -> std::convertible_to<bool>;
};
/// The initial time share, relative to that of other strategies.
template <class P> concept has_share = requires {
    { P::share } -> std::convertible_to<double>;
};
/// `timed`: whether its effort is measured by a clock, so that the same effort isn't always the same work. The
/// deterministic portfolio leaves it out.
template <class P> concept has_timed = requires {
    { P::timed } -> std::convertible_to<bool>;
};
/// `knows_storage_options`: whether the strategy is applicable to problems with lists of storage options.
template <class P> concept has_knows_storage_options = requires {
    { P::knows_storage_options } -> std::convertible_to<bool>;
};
/// Whether the strategy should keep a thread: it loses its learned state when a call ends, and may finish a problem of
/// this size.
template <class P> concept has_dedicated_thread = requires(const P& strategy, const problem& p) {
    { strategy.dedicated_thread(p) } -> std::same_as<bool>;
};

/// How long a call may run beyond its deadline, in passes through the problem (`search_state::pass_seconds`).
template <class P> concept has_least_passes = requires {
    { P::least_passes } -> std::convertible_to<double>;
};

/// A strategy of a portfolio: a search for better schedules or bounds.
///
/// Semantics: `strategy(state, options)` looks for schedules and bounds of `state.problem()` and offers them to the
/// state. It returns when `state.done()`, when the effort is spent, or when nothing is left to try. Bounds that it
/// offers are proven. Copies may run concurrently on several threads. Unless time runs out, the result depends only on
/// the problem, the state at the call, the options, and what other strategies offer meanwhile. The plan lists its
/// contribution under `name`.
template <class P> concept search_strategy = std::copyable<P> && has_name<P> && has_search<P>;

/// Reports which requirement of a search strategy a type doesn't meet.
template <class P> consteval bool check_search_strategy() {
    static_assert(std::copyable<P>, "search strategy: must be copyable");
    static_assert(has_name<P>, "search strategy: needs `static constexpr std::string_view name`");
    static_assert(has_search<P>,
                  "search strategy: needs `void operator()(search_state&, const strategy_options&) const`");
    return search_strategy<P>;
}

/// A type-erased strategy.
class any_search_strategy {
public:
    template <class P>
    requires(!std::same_as<P, any_search_strategy>)
        any_search_strategy(P strategy) // NOLINT(google-explicit-constructor)
        : name_{P::name} {
        static_assert(check_search_strategy<P>());
        if constexpr (has_randomized<P>) randomized_ = P::randomized;
        if constexpr (has_share<P>) share_ = P::share;
        if constexpr (has_timed<P>) timed_ = P::timed;
        if constexpr (has_knows_storage_options<P>) knows_storage_options_ = P::knows_storage_options;
        if constexpr (has_least_passes<P>) least_passes_ = P::least_passes;
        if constexpr (has_applies_to<P>) applies_to_ = [strategy](const problem& p) { return strategy.applies_to(p); };
        if constexpr (has_dedicated_thread<P>)
            dedicated_thread_ = [strategy](const problem& p) { return strategy.dedicated_thread(p); };
        if constexpr (has_first_effort<P>)
            first_effort_ = [strategy](const problem& p) { return strategy.first_effort(p); };
        search_ = [strategy = std::move(strategy)](search_state& state, const strategy_options& options) {
            strategy(state, options);
        };
    }

    /// The same strategy for problems of another kind: with another search, which calls this one. It knows storage
    /// options, shares a thread, and has this part of the share.
    template <class Applies, class Search>
    [[nodiscard]] any_search_strategy adapted(Applies applies_to, Search search, double share) const {
        auto result = *this;
        result.knows_storage_options_ = true;
        result.share_ *= share;
        result.applies_to_ = std::move(applies_to);
        result.dedicated_thread_ = {};
        result.search_ = std::move(search);
        return result;
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] bool knows_storage_options() const { return knows_storage_options_; }
    void operator()(search_state& state, const strategy_options& options) const { search_(state, options); }
    [[nodiscard]] bool applies_to(const problem& p) const {
        return (knows_storage_options_ || !p.has_storage_options()) && (!applies_to_ || applies_to_(p));
    }
    [[nodiscard]] bool randomized() const { return randomized_; }
    [[nodiscard]] double share() const { return share_; }
    [[nodiscard]] bool timed() const { return timed_; }
    [[nodiscard]] double least_passes() const { return least_passes_; }
    [[nodiscard]] bool dedicated_thread(const problem& p) const { return dedicated_thread_ && dedicated_thread_(p); }
    [[nodiscard]] std::size_t first_effort(const problem& p) const {
        constexpr std::size_t usual = 100'000;
        return first_effort_ ? first_effort_(p) : usual;
    }

private:
    std::string name_;
    bool randomized_ = false;
    double share_ = 1.0;
    bool timed_ = false;
    bool knows_storage_options_ = false;
    double least_passes_ = 0.0;
    std::function<bool(const problem&)> applies_to_{};
    std::function<bool(const problem&)> dedicated_thread_{};
    std::function<std::size_t(const problem&)> first_effort_{};
    std::function<void(search_state&, const strategy_options&)> search_{};
};

} // namespace optpipe
