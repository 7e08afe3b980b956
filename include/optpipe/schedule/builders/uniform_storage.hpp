#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <utility>

namespace optpipe {

/// The schedule of a builder in which all microbatches of a stage use the same storage option: 1F1B with full
/// recomputation, and so on. The builder plans for `uniform_problem`.
template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>>
build_uniform_schedule(const basic_problem<Graph>& p, const Builder& build,
                       const storage_by_stage<Graph::stage_extent>& options, stop_check stop = {}) {
    const auto classic = uniform_problem(p, options);
    const auto built = build_schedule(classic, build, stop);
    if (built) return time_order(p, with_storage(p, options, order_of(*built)));
    auto why = built.why();
    // Converted to the memory of the problem, of which the builder saw less.
    if (why.reason == refusal_reason::over_memory) {
        why.needed += p.memory_limit[why.rank] - classic.memory_limit[why.rank];
        why.limit = p.memory_limit[why.rank];
        // There may be a schedule with other options.
        if (!why.sentence.empty())
            why.sentence = {why.sentence.view(), ", with this storage option for all microbatches"};
    }
    return why;
}

/// A schedule, and the storage option that all its stages use.
template <pipeline_graph Graph> struct uniform_schedule {
    bounded_text<32> option{};
    outcome<basic_schedule<Graph>> result{};
};

/// The best schedule over the storage options that every stage has. If there is none, the refusal that lacks least
/// memory. A stop request ends the search with the best one found.
template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr uniform_schedule<Graph>
build_best_uniform_schedule(const basic_problem<Graph>& p, const Builder& build, stop_check stop = {}) {
    uniform_schedule<Graph> best;
    best.result = does_not_apply("no storage option is common to all stages");
    const auto lack = [](const refusal& why) {
        return why.reason == refusal_reason::over_memory ? why.needed - why.limit : memory_size::unlimited();
    };
    const auto is_better = [&](const outcome<basic_schedule<Graph>>& made) {
        if (made && best.result) return objective_of(p, *made) < objective_of(p, *best.result);
        if (made || best.result) return made.has_value();
        return lack(made.why()) < lack(best.result.why());
    };
    for (const auto& name : common_option_names(p)) {
        auto made = build_uniform_schedule(p, build, *find_common_option(p, name.view()), stop);
        if (stop.is_requested() && !made) {
            if (!best.result) best.result = was_stopped();
            break;
        }
        if (best.option.empty() || is_better(made)) best = {name, std::move(made)};
    }
    return best;
}

} // namespace optpipe
