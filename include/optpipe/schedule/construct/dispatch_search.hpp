#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/schedule/construct/dispatch.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace optpipe {

/// Keeps the best order offered.
template <pipeline_graph Graph> class best_order {
public:
    constexpr explicit best_order(const basic_problem<Graph>& p) : p_{&p} {}

    /// The objective of the candidate; unlimited if it isn't executable or doesn't fit.
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
    [[nodiscard]] constexpr bool found() const { return best_.has_value(); }
    [[nodiscard]] constexpr duration value() const { return value_; }
    [[nodiscard]] constexpr const basic_order<Graph>& operator*() const { return *best_; }
    [[nodiscard]] constexpr basic_order<Graph> take() && { return *std::move(best_); }

private:
    const basic_problem<Graph>* p_;
    std::optional<basic_order<Graph>> best_{};
    duration value_ = duration::unlimited();
};

/// Searches for the run of a dispatcher that gives the shortest step: first its parameters, one after the other, as
/// long as that helps; then random exceptions to its rules, kept unless they are worse. `Stop` is polled between runs,
/// and in them.
template <pipeline_graph Graph, class Stop> class dispatch_search {
public:
    constexpr dispatch_search(const basic_problem<Graph>& p, const dispatch_facts<Graph>& facts,
                              best_order<Graph>& best, const Stop& stop, std::size_t effort, std::uint64_t seed)
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
        // Exceptions lead into local optima: after many failures the walk restarts from the parameters alone.
        while (!exhausted()) {
            options_ = parameters;
            value_ = settled;
            hints_ = hints{p_.graph};
            walk();
        }
    }

private:
    using hints = dispatch_hints<Graph>;

    constexpr bool exhausted() const {
        constexpr std::size_t least_trials = 8;
        return stop_() || (spent_ >= effort_ && trials_ >= least_trials);
    }
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
    /// The parameters that interact most, together: depth and offloads.
    constexpr void scan() {
        for (const double depth : {2.0, 1.0, 1e9}) {
            if (!offloads_) adopt({.depth = depth});
            for (const double share : {1.0, 0.5, 0.0})
                for (const double staging : {1.0, 3.0, -1.0})
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

    template <class Value, class... Values> constexpr bool tune(Value dispatch_options::*parameter, Values... values) {
        bool better = false;
        const auto attempt = [&](Value value) {
            auto options = options_;
            options.*parameter = value;
            if (adopt(options)) better = true;
        };
        (attempt(values), ...);
        return better;
    }
    constexpr bool tune_parameters() {
        using o = dispatch_options;
        bool better = tune(&o::depth, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 1e9);
        if (offloads_) {
            better |= tune(&o::staging, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 6.0);
            better |= tune(&o::offload_share, 0.0, 0.25, 0.5, 0.75, 1.0);
            better |= tune(&o::lead, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0);
        }
        better |= tune(&o::weight_fit, 0.0, 0.25, 0.5, 0.75, 1.0);
        if (p_.graph.stages() != p_.graph.ranks())
            better |= tune(&o::forwards, forward_preference::deepest_stage, forward_preference::shallowest_stage,
                           forward_preference::oldest_microbatch);
        better |= tune(&o::forward_wait, 0.0, 0.5, 1.0);
        better |= tune(&o::memory_share, 1.0, 0.9, 0.8, 0.65, 0.5);
        return better;
    }

    constexpr void walk() {
        constexpr std::size_t max_failures = 400;
        for (std::size_t failures = 0; failures < max_failures && !exhausted(); ++failures) {
            auto options = options_;
            auto exceptions = hints_;
            for (auto changes = 1 + random_.below(3); changes > 0; --changes)
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
        const auto quarters = [&](std::size_t count) { return 0.25 * static_cast<double>(random_.below(count)); };
        switch (random_.below(offloads_ ? 6 : 3)) {
        case 0: options.depth = 1.0 + quarters(9); break;
        case 1: options.weight_fit = quarters(5); break;
        case 2: options.forward_wait = quarters(5); break;
        case 3: options.staging = 4.0 * quarters(8) - 1.0; break;
        case 4: options.offload_share = quarters(5); break;
        default: options.lead = 4.0 * quarters(9); break;
        }
    }

    const basic_problem<Graph>& p_;
    const dispatch_facts<Graph>& facts_;
    best_order<Graph>& best_;
    const Stop& stop_;
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
