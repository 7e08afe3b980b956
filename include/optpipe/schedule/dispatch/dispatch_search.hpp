#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/schedule/dispatch/dispatcher.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace optpipe {

/// Keeps the best order offered.
template <pipeline_graph Graph> class best_order {
public:
    constexpr explicit best_order(const basic_problem<Graph>& p) : p_{&p} {}

    /// Returns the objective of the candidate; unlimited if it isn't executable or doesn't fit.
    constexpr duration offer(basic_order<Graph> candidate) {
        const auto timed = time_order(*p_, candidate);
        if (!timed) return duration::unlimited();
        const auto value = objective_of(*p_, *timed);
        if (value < value_) {
            best_ = std::move(candidate);
            value_ = value;
        }
        return value;
    }
    /// Offers a schedule in which each operation starts as early as its order allows. Returns the objective of the
    /// schedule. Only a schedule that seems to be the best is simulated once more. The result is unlimited if
    /// `simulate` refuses the schedule.
    constexpr duration offer_earliest(const basic_schedule<Graph>& earliest) {
        const auto value = objective_with_late_warm_up(*p_, earliest);
        return value < value_ ? offer(listed_order(earliest)) : value;
    }
    [[nodiscard]] constexpr bool found() const { return best_.has_value(); }
    [[nodiscard]] constexpr duration value() const { return value_; }
    [[nodiscard]] constexpr const basic_order<Graph>& operator*() const { return *best_; }
    [[nodiscard]] constexpr basic_order<Graph> take() && { return *std::move(best_); }

private:
    const basic_problem<Graph>* p_;
    std::optional<basic_order<Graph>> best_{};
    duration value_ = duration::unlimited();
};

/// The values that `dispatch_search` tries. The values of each parameter cover its range, and are denser where
/// schedules change most. The values are set by hand, are the same for every problem, and aren't tuned.
struct dispatch_search_parameters {
    /// The first trials combine depths, offload shares and stagings, which interact most.
    std::array<double, 3> first_depths{2.0, 1.0, dispatch_options::no_limit};
    std::array<double, 3> first_offload_shares{1.0, 0.5, 0.0};
    std::array<double, 3> first_stagings{1.0, 3.0, -1.0};
    /// Later trials change one parameter at a time, as long as the schedule gets better.
    std::array<double, 9> depths{1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, dispatch_options::no_limit};
    std::array<double, 7> stagings{-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0};
    std::array<double, 5> offload_shares{0.0, 0.25, 0.5, 0.75, 1.0};
    std::array<double, 6> leads{0.0, 0.5, 1.0, 2.0, 4.0, 8.0};
    std::array<double, 5> weight_fits{0.0, 0.25, 0.5, 0.75, 1.0};
    std::array<double, 3> forward_waits{0.0, 0.5, 1.0};
    std::array<double, 5> memory_shares{1.0, 0.9, 0.8, 0.65, 0.5};
    /// Number of trials made even without effort left, as a schedule is needed.
    std::size_t least_trials = 8;
    /// After this number of trials in a row without gain, the walk restarts from the tuned parameters. With a larger
    /// number, a walk goes farther from the tuned parameters, and fewer changes are tried twice.
    std::size_t most_failures = 400;
    /// Largest number of changes in one step of the walk.
    std::size_t most_changes = 3;
    /// The walk draws depths from 1, 1.25, 1.5, …, shares from 0, 0.25, 0.5, …, and integers for stagings and leads.
    /// `depth_quarters` and the next three members count the values to draw from, least first.
    std::size_t depth_quarters = 9;
    std::size_t share_quarters = 5;
    std::size_t most_staging = 8;
    std::size_t most_lead = 9;
};

/// Searches for the run of a dispatcher that gives the shortest step. The search first changes the dispatcher's
/// parameters one at a time, while the step gets shorter. Random exceptions to the dispatcher's rules follow. An
/// exception is kept unless the step gets longer. `stop` is polled between runs and within them.
template <pipeline_graph Graph> class dispatch_search {
public:
    constexpr dispatch_search(const basic_problem<Graph>& p, const dispatch_facts<Graph>& facts,
                              best_order<Graph>& best, stop_check stop, std::size_t effort, std::uint64_t seed)
        : p_{p}, facts_{facts}, best_{best}, stop_{stop}, effort_{effort}, random_{seed}, hints_{p.graph} {
        for (const auto decision : facts.decision)
            offloads_ = offloads_ || decision != offload_decision::forbid;
    }

    constexpr void run() {
        value_ = trial(options_, hints_);
        scan();
        while (!exhausted() && tune_parameters()) {
        }
        const auto parameters = options_;
        const auto settled = value_;
        // After many failures, the walk leaves its local optimum and restarts from the parameters alone.
        while (!exhausted()) {
            options_ = parameters;
            value_ = settled;
            hints_ = hints{p_.graph};
            walk();
        }
    }

private:
    using hints = dispatch_hints<Graph>;

    constexpr bool exhausted() const { return stop_() || (spent_ >= effort_ && trials_ >= with_.least_trials); }
    constexpr duration trial(const dispatch_options& options, const hints& exceptions) {
        if (exhausted()) return duration::unlimited();
        dispatcher<Graph> run{p_, facts_, options, exceptions};
        auto made = run.run(stop_);
        spent_ += run.work();
        if (stop_()) return duration::unlimited();
        const auto value = best_.offer({p_.graph, std::move(made)});
        ++trials_;
        return value;
    }
    /// Tries combinations of depths and offloads, because these parameters interact most.
    constexpr void scan() {
        for (const double depth : with_.first_depths) {
            if (!offloads_) adopt({.depth = depth});
            for (const double share : with_.first_offload_shares)
                for (const double staging : with_.first_stagings)
                    if (offloads_) adopt({.depth = depth, .offload_share = share, .staging = staging});
        }
    }
    constexpr bool adopt(const dispatch_options& options) {
        if (options == options_) return false;
        const auto value = trial(options, hints_);
        if (!(value < value_)) return false;
        options_ = options;
        value_ = value;
        return true;
    }

    template <class Value, std::size_t Count>
    constexpr bool tune(Value dispatch_options::*parameter, const std::array<Value, Count>& values) {
        bool better = false;
        for (const auto value : values) {
            auto options = options_;
            options.*parameter = value;
            if (adopt(options)) better = true;
        }
        return better;
    }
    constexpr bool tune_parameters() {
        using o = dispatch_options;
        bool better = tune(&o::depth, with_.depths);
        if (offloads_) {
            better |= tune(&o::staging, with_.stagings);
            better |= tune(&o::offload_share, with_.offload_shares);
            better |= tune(&o::lead, with_.leads);
        }
        better |= tune(&o::weight_fit, with_.weight_fits);
        if (p_.graph.stages() != p_.graph.ranks())
            better |=
                tune(&o::forwards, std::array{forward_preference::deepest_stage, forward_preference::shallowest_stage,
                                              forward_preference::oldest_microbatch});
        better |= tune(&o::forward_wait, with_.forward_waits);
        better |= tune(&o::memory_share, with_.memory_shares);
        return better;
    }

    constexpr void walk() {
        for (std::size_t failures = 0; failures < with_.most_failures && !exhausted(); ++failures) {
            auto options = options_;
            auto exceptions = hints_;
            for (auto changes = 1 + random_.below(with_.most_changes); changes > 0; --changes)
                change(options, exceptions);
            const auto value = trial(options, exceptions);
            if (value > value_) continue;
            if (value < value_) failures = 0;
            options_ = options;
            hints_ = std::move(exceptions);
            value_ = value;
        }
    }
    constexpr void change(dispatch_options& options, hints& exceptions) {
        const auto cell = random_.below(exceptions.stashes.size());
        const auto s = random_.below(p_.graph.stages());
        switch (random_.below(offloads_ ? 8 : 4)) {
        case 0: exceptions.depth[s] += random_.below(2) == 0 ? 1 : -1; break;
        case 1:
        case 2: exceptions.weights[cell] = static_cast<typename hints::weight>(random_.below(3)); break;
        case 3: change_at_random(options); break;
        default: exceptions.stashes[cell] = static_cast<typename hints::stash>(random_.below(3)); break;
        }
    }
    constexpr void change_at_random(dispatch_options& options) {
        constexpr double quarter = 0.25;
        const auto quarters = [&](std::size_t count) { return quarter * static_cast<double>(random_.below(count)); };
        switch (random_.below(offloads_ ? 6 : 3)) {
        case 0: options.depth = 1.0 + quarters(with_.depth_quarters); break;
        case 1: options.weight_fit = quarters(with_.share_quarters); break;
        case 2: options.forward_wait = quarters(with_.share_quarters); break;
        case 3: options.staging = static_cast<double>(random_.below(with_.most_staging)) - 1.0; break;
        case 4: options.offload_share = quarters(with_.share_quarters); break;
        default: options.lead = static_cast<double>(random_.below(with_.most_lead)); break;
        }
    }

    static constexpr dispatch_search_parameters with_{};

    const basic_problem<Graph>& p_;
    const dispatch_facts<Graph>& facts_;
    best_order<Graph>& best_;
    stop_check stop_;
    std::size_t effort_;
    random_numbers random_;
    bool offloads_ = false;
    dispatch_options options_{};
    hints hints_;
    duration value_ = duration::unlimited();
    std::size_t spent_ = 0;
    std::size_t trials_ = 0;
};

} // namespace optpipe
