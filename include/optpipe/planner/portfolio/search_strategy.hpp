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
    /// The seed of the call's random numbers.
    std::uint64_t seed = 1;
    /// The amount of work, in the strategy's own units. The same effort is the same work on every machine.
    std::size_t effort = std::numeric_limits<std::size_t>::max();
    /// Number of threads that the call may use, including the caller's thread.
    std::size_t threads = 1;
};

/// Properties of a strategy for a problem. A portfolio reads the properties before it calls the strategy. The defaults
/// suit a strategy that is deterministic, quick to start and as likely to help as others. Set only the traits that
/// differ from the defaults.
struct strategy_traits {
    /// Whether the strategy is applicable to the problem.
    bool applicable = true;
    /// Whether the strategy can ever be applied to problems that aren't plain (`is_plain`).
    bool knows_graphs = false;
    /// Whether the strategy can ever be applied to problems with pairs.
    bool knows_pairs = false;
    /// Whether the strategy may be applied to problems with storage options other than `keep` and `offload`.
    bool knows_storage_options = false;
    /// Whether the result depends on the seed, so that several concurrent calls make sense.
    bool randomized = false;
    /// Whether a clock measures the strategy's effort. The same effort may then be different work. The deterministic
    /// portfolio leaves timed strategies out.
    bool timed = false;
    /// Whether concurrent calls use each other's results (`search_state::shared`). Several calls of a cooperative
    /// strategy make sense even if the seed hardly matters. The deterministic portfolio calls a cooperative strategy
    /// only once: its calls share nothing.
    bool cooperative = false;
    /// Whether a call resumes where the last call on the same state stopped. If false, the strategy starts anew in
    /// every call.
    bool resumes = false;
    /// The effort of the first call, which should take some tens of milliseconds. Later calls have more effort. Must be
    /// 0 if every call takes longer. A strategy with a `first_effort` of 0 runs only if there is time.
    std::size_t first_effort = 100'000;
    /// The initial time share, relative to other strategies.
    double share = 1.0;
    /// The longest time by which a call may exceed its deadline, in passes through the problem
    /// (`search_state::pass_seconds`).
    double least_passes = 0.0;
};

template <class P>
concept has_search = requires(const P& strategy, search_state& state, const strategy_options& options) {
    { strategy(state, options) } -> std::same_as<void>;
};
template <class P> concept has_traits = requires(const P& strategy, const problem& p) {
    { strategy.traits(p) } -> std::same_as<strategy_traits>;
};

namespace detail {
template <class P> concept names_traits = requires { &P::traits; };
} // namespace detail

/// A strategy of a portfolio: a search for better schedules or bounds.
///
/// Semantics: `strategy(state, options)` looks for schedules and bounds of `state.problem()` and offers them to the
/// state. The call returns when `state.done()` is true, when the effort is used up, or when nothing is left to try. A
/// strategy only offers proven bounds. Copies may run concurrently on several threads. Unless time runs out, the result
/// depends only on problem, state, options, and other strategies' offers during the call. The plan lists the strategy's
/// contribution under `name`. Optional: `strategy_traits traits(const problem&) const`.
template <class P>
concept search_strategy = std::copyable<P> && has_name<P> && has_search<P> &&
    (has_traits<P> || !detail::names_traits<P>);

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class P> consteval bool check_search_strategy() {
    static_assert(std::copyable<P>, "search strategy: must be copyable");
    static_assert(has_name<P>, "search strategy: needs `static constexpr std::string_view name`");
    static_assert(has_search<P>,
                  "search strategy: needs `void operator()(search_state&, const strategy_options&) const`");
    static_assert(has_traits<P> || !detail::names_traits<P>,
                  "search strategy: `traits` must be `strategy_traits traits(const problem&) const`");
    return search_strategy<P>;
}

/// A strategy of any type (type erasure).
class any_search_strategy {
public:
    template <class P>
    requires(!std::same_as<P, any_search_strategy>)
        any_search_strategy(P strategy) // NOLINT(google-explicit-constructor)
        : name_{P::name} {
        static_assert(check_search_strategy<P>());
        if constexpr (has_traits<P>) traits_ = [strategy](const problem& p) { return strategy.traits(p); };
        search_ = [strategy = std::move(strategy)](search_state& state, const strategy_options& options) {
            strategy(state, options);
        };
    }

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] strategy_traits traits(const problem& p) const {
        auto known = traits_ ? traits_(p) : strategy_traits{};
        known.applicable = known.applicable && (known.knows_graphs || is_plain(p)) &&
                           (known.knows_pairs || p.overlaps.empty()) &&
                           (known.knows_storage_options || is_described_by_costs(p));
        return known;
    }
    void operator()(search_state& state, const strategy_options& options) const { search_(state, options); }

private:
    std::string name_;
    std::function<strategy_traits(const problem&)> traits_{};
    std::function<void(search_state&, const strategy_options&)> search_{};
};

} // namespace optpipe
