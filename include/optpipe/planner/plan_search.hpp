#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/adaptive_part.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/builders_part.hpp"
#include "optpipe/planner/cache.hpp"
#include "optpipe/planner/canonical.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/plan_options.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/planner/race.hpp"
#include "optpipe/planner/rounds.hpp"
#include "optpipe/planner/run_log.hpp"
#include "optpipe/planner/standard_parts.hpp"
#include "optpipe/schedule/bounds.hpp"

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(OPTPIPE_PLANNER_COMPILED)
#define OPTPIPE_COMPILED_ONCE
#else
#define OPTPIPE_COMPILED_ONCE inline
#endif

namespace optpipe {
namespace detail {

/// More threads than cores would only wait for each other.
inline std::size_t thread_count(const plan_options& options) {
    const auto cores = static_cast<std::size_t>(std::max(1, oneapi::tbb::info::default_concurrency()));
    return options.threads > 0 ? std::min(options.threads, cores) : cores;
}

/// No deadline for a limit that no clock will see.
inline search_limits limits_of(const plan_options& options) {
    search_limits limits;
    limits.stop = options.stop;
    limits.gap = options.gap;
    constexpr std::chrono::duration<double> century{3.2e9};
    if (options.time_limit && *options.time_limit < century)
        limits.deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(*options.time_limit);
    return limits;
}

inline void check_options(const plan_options& options, const std::vector<any_search_part>& parts) {
    std::vector<violation> found;
    if (options.time_limit && !(options.time_limit->count() >= 0.0))
        found.push_back({"time_limit", "must not be negative"});
    if (!(options.gap >= 0.0)) found.push_back({"gap", "must not be negative"});
    std::vector<std::string> names;
    for_each_builder([&](const auto& build) { names.emplace_back(build.name); });
    for (const auto& part : parts)
        if (std::find(names.begin(), names.end(), part.name()) == names.end()) names.push_back(part.name());
    for (const auto& name : options.without) {
        if (std::find(names.begin(), names.end(), name) != names.end()) continue;
        std::string list;
        for (const auto& known : names)
            list += (list.empty() ? "" : ", ") + known;
        found.push_back({"without", "there is no \"" + name + "\"; there are " + list});
    }
    if (!found.empty()) throw input_error{"plan options", std::move(found)};
}

/// One search for a plan: what is cheap first, then all parts.
class plan_search {
public:
    plan_search(const problem& p, const plan_options& options, std::vector<any_search_part> parts)
        : options_{options}, threads_{thread_count(options)}, board_{p, limits_of(options), options.progress} {
        for (auto& part : parts)
            if (std::find(options.without.begin(), options.without.end(), part.name()) == options.without.end())
                parts_.push_back(std::move(part));
    }

    [[nodiscard]] search_board& board() { return board_; }

    outcome<plan_result> run() {
        oneapi::tbb::task_arena arena{static_cast<int>(threads_)};
        arena.execute([&] { search(); });
        if (const auto why = fall_back()) return *why;
        auto found = result();
        if (!options_.cache.empty() && !is_cached_) keep_in_cache(found);
        return found;
    }

private:
    void search() {
        const stopwatch watch;
        board_.raise_bound(bounds_of(board_.to_solve()).best(), structure);
        log_.add(structure, watch.seconds());
        if (!options_.cache.empty() && begin_with_cache()) return;
        builders_ = run_published_builders(board_, options_.without, threads_, log_);
        // A first schedule for the parts to begin with.
        if (const auto* part = part_named(adaptive_part::name); part && !board_.done())
            run_part(*part, {options_.seed, part->first_effort(board_.to_solve()), 1});
        if (board_.done()) return;
        if (!options_.time_limit)
            search_in_rounds(board_, parts_, {.seed = options_.seed, .threads = threads_, .rounds = short_rounds},
                             log_);
        else if (options_.deterministic)
            search_in_rounds(board_, parts_, {.seed = options_.seed, .threads = threads_}, log_);
        else
            race_parts(board_, parts_, {.seed = options_.seed, .threads = threads_}, log_);
    }

    /// Whether what is there is all that was asked for.
    bool begin_with_cache() {
        const stopwatch watch;
        const auto& p = board_.to_solve();
        const auto finds = plan_cache{options_.cache, options_.warn}.find(canonical_form(p));
        const auto units = canonical_units_of(p);
        for (const auto& entry : finds.near)
            if (offer_adapted(entry)) cached_ = cache_use::near;
        if (finds.exact && offer_adapted(*finds.exact)) {
            cached_ = cache_use::exact;
            const auto as_kept = finds.exact->objective * units.time + board_.slack();
            const bool holds = board_.objective() <= as_kept;
            is_cached_ = holds && finds.exact->budget >= budget();
            if (holds) kept_method_ = finds.exact->method;
        }
        board_.raise_bound(std::min(finds.bound * units.time, board_.objective()), cached);
        is_cached_ = is_cached_ || (cached_ == cache_use::exact && board_.settled());
        log_.add(cached, watch.seconds());
        return is_cached_ || board_.done();
    }
    /// Whether any of the orders that can be made of it is executable.
    bool offer_adapted(const cache_entry& entry) {
        constexpr std::size_t enough = 3;
        std::size_t executable = 0;
        for (const auto& adapted : adapted_orders(entry.operations, entry.of.microbatches, board_.to_solve())) {
            order candidate{board_.to_solve().graph, {}};
            candidate.operations.assign(adapted.begin(), adapted.end());
            if (!board_.offer(candidate, cached).is_unlimited() && ++executable == enough) break;
        }
        return executable > 0;
    }
    void keep_in_cache(const plan_result& found) const {
        const bool complete = found.why == plan_end::effort_spent || found.why == plan_end::time_limit;
        const double spent = found.why == plan_end::optimal         ? std::numeric_limits<double>::infinity()
                             : complete && options_.without.empty() ? budget()
                                                                    : 0.0;
        plan_cache{options_.cache, options_.warn}.store(
            make_cache_entry(board_.to_solve(), found.schedule, found.objective, found.bound, spent, found.method));
    }
    /// What the search is given, in seconds.
    [[nodiscard]] double budget() const { return options_.time_limit ? options_.time_limit->count() : 1.0; }

    [[nodiscard]] const any_search_part* part_named(std::string_view name) const {
        const auto found = std::find_if(parts_.begin(), parts_.end(),
                                        [&](const any_search_part& part) { return part.name() == name; });
        return found == parts_.end() ? nullptr : &*found;
    }
    void run_part(const any_search_part& part, const part_options& given) {
        const stopwatch watch;
        part(board_, given);
        log_.add(part.name(), watch.seconds());
    }

    /// Where nobody found a schedule, the constructive planner's first few trials do, or it says what is missing.
    std::optional<refusal> fall_back() {
        if (board_.incumbent()) return std::nullopt;
        const stopwatch watch;
        const auto built = adaptive(board_.to_solve(), [] { return true; });
        log_.add(adaptive.name, watch.seconds());
        if (built) board_.offer(*built, adaptive.name);
        if (board_.incumbent()) return std::nullopt;
        if (!built) return built.why();
        return simulate(board_.to_solve(), *built).why();
    }

    plan_result result() {
        plan_result r;
        r.schedule = *board_.incumbent();
        r.objective = board_.objective();
        r.bound = std::min(board_.bound(), r.objective);
        r.gap = r.objective > duration{} ? (r.objective - r.bound) / r.objective : 0.0;
        r.why = why();
        r.seconds = board_.seconds();
        r.history = board_.history();
        r.method = finder(r.history);
        if (r.method == cached && !kept_method_.empty()) r.method = kept_method_;
        r.parts = log_.with(r.history);
        r.builders = std::move(builders_);
        r.cached = cached_;
        return r;
    }
    [[nodiscard]] plan_end why() const {
        if (board_.proven()) return plan_end::optimal;
        if (board_.settled()) return plan_end::gap;
        if (options_.stop.stop_requested()) return plan_end::stop_request;
        return board_.done() ? plan_end::time_limit : plan_end::effort_spent;
    }
    static std::string finder(const std::vector<search_step>& history) {
        std::string name;
        duration best = duration::unlimited();
        for (const auto& step : history) {
            if (step.objective < best) name = step.part;
            best = std::min(best, step.objective);
        }
        return name;
    }

    static constexpr std::string_view structure = "structure";
    static constexpr std::string_view cached = "cache";

    const plan_options& options_;
    std::size_t threads_;
    search_board board_;
    std::vector<any_search_part> parts_{};
    run_log log_{};
    std::vector<builder_result> builders_{};
    cache_use cached_ = cache_use::none;
    bool is_cached_ = false;
    std::string kept_method_{};
};

} // namespace detail

// The search behind plain functions. Where OPTPIPE_PLANNER_COMPILED is defined, one file of the program includes this
// header, and all others only see the declarations in plan.hpp.

OPTPIPE_COMPILED_ONCE std::vector<any_search_part> standard_parts() {
    return {propagation_part{}, exact_part{},   local_search_part{}, window_part{},
            periodic_part{},    widened_part{}, timed_milp_part{},   adaptive_part{}};
}

OPTPIPE_COMPILED_ONCE outcome<plan_result> plan(const problem& p, const plan_options& options,
                                                std::vector<any_search_part> parts) {
    if (auto violations = validate(p); !violations.empty())
        throw input_error{p.name.empty() ? "problem" : p.name, std::move(violations)};
    detail::check_options(options, parts);
    return detail::plan_search{p, options, std::move(parts)}.run();
}

OPTPIPE_COMPILED_ONCE outcome<plan_result> plan(const problem& p, const plan_options& options) {
    return plan(p, options, standard_parts());
}

} // namespace optpipe

#undef OPTPIPE_COMPILED_ONCE
