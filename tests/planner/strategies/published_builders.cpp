#include "optpipe/planner/strategies/published_builders.hpp"

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/portfolio/run_log.hpp"
#include "optpipe/planner/portfolio/search_state.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/method_name.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace std::chrono_literals;

namespace {

problem problem_with_options(std::uint64_t seed) {
    oracle::problem_ranges ranges{.ranks = 4, .microbatches = 8, .cells = 32};
    ranges.storage_percent = 100;
    random_numbers random{seed};
    return oracle::make_random_problem(random, ranges).problem;
}

/// The result of each builder in a search whose deadline is far away.
std::vector<builder_result> results_in_time(const problem& p) {
    search_limits limits;
    limits.deadline = std::chrono::steady_clock::now() + 1h;
    search_state state{p, limits};
    run_log log;
    return run_published_builders(state, {}, 1, log, {[] {}, [] {}}).results;
}

duration result_of(const std::vector<builder_result>& results, const std::string& method) {
    const auto found =
        std::find_if(results.begin(), results.end(), [&](const builder_result& each) { return each.method == method; });
    REQUIRE(found != results.end());
    return found->objective.value_or(duration::unlimited());
}

/// The objective of the constructive planner with one storage option and 1 / `part` of its effort.
duration constructed(const problem& p, const uniform_choice<dynamic>& choice, std::size_t part) {
    adaptive_builder<> build;
    build.effort /= part;
    const auto made = build_uniform_schedule(p, build, choice.options);
    return made ? objective_of(p, *made) : duration::unlimited();
}

} // namespace

TEST_CASE("in time, the constructive planner with a storage option is as good as alone, not only after a few trials") {
    std::size_t few_are_worse = 0;
    for (std::uint64_t seed = 9; seed <= 12; ++seed) { // with seed 12, a few trials find less
        CAPTURE(seed);
        const auto p = problem_with_options(seed);
        const auto choices = uniform_choices(p);
        if (is_described_by_costs(p) || choices.empty()) continue;
        const auto results = results_in_time(p);
        for (const auto& choice : choices) {
            const std::string option{choice.name.view()};
            CAPTURE(option);
            const auto alone = constructed(p, choice, choices.size());
            CHECK(result_of(results, method_with_storage("adaptive", option)) <= alone);
            const auto after_few = constructed(p, choice, adaptive_builder<>{}.effort);
            few_are_worse += alone < after_few ? 1 : 0;
        }
    }
    CHECK(few_are_worse > 0);
}

namespace {

/// Two ranks and four microbatches, with a choice between keeping stashes, and recomputing a part or all of them. More
/// recomputation makes steps longer.
problem problem_with_recomputation() {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = unit.weight_stash = memory_size{1.0};
    problem p{to_any_graph(graph<2, 4>{}), per_stage<stage_costs>(2, unit)};
    for (auto& options : p.storage)
        options = {keep_stash(unit),
                   {.name = "full", .held = memory_size{0.25}, .recompute = duration{1.0}},
                   {.name = "part", .held = memory_size{0.5}, .recompute = duration{0.5}}};
    return p;
}

/// Jobs that add their names to a list when they run. A job makes the schedule of 1F1B with its option, or none.
class recorded_jobs {
public:
    void add(const std::string& kind, const std::string& option, bool succeeds = true) {
        detail::builder_job job;
        job.name = method_with_storage(kind, option);
        job.build = recorded(job.name, option, succeeds);
        job.stoppable = kind != "fast";
        job.searches = kind == "search" || kind == "trial";
        job.quick = kind == "trial";
        if (job.quick) job.build_fully = recorded(method_with_storage("full-effort", option), option, succeeds);
        job.option = option;
        jobs_.push_back(std::move(job));
    }
    /// The names of all jobs in the order in which they ran on one thread, in a search whose deadline is far away.
    std::vector<std::string> run(const problem& p) {
        search_limits limits;
        limits.deadline = std::chrono::steady_clock::now() + 1h;
        search_state state{p, limits};
        run_log log;
        detail::builder_runner runner{state, jobs_, log};
        runner.run(1, {[] {}, [this] { ran_.push_back("constructive"); }});
        return std::move(ran_);
    }

private:
    std::function<outcome<schedule>(const problem&, stop_check)> recorded(std::string name, const std::string& option,
                                                                          bool succeeds) {
        return [this, name = std::move(name), option, succeeds](const problem& p, stop_check) -> outcome<schedule> {
            ran_.push_back(name);
            if (!succeeds) return refusal{.sentence = "none"};
            return build_uniform_schedule(p, one_forward_one_backward, *find_common_option(p, option));
        };
    }

    std::vector<detail::builder_job> jobs_{};
    std::vector<std::string> ran_{};
};

} // namespace

TEST_CASE("builders that search run last, and first with the option of the best schedule that others made") {
    recorded_jobs jobs;
    for (const auto* option : {"full", "part", "keep"}) {
        const std::string name{option};
        jobs.add("fast", name, name == "full"); // so nothing is known about the other options
        jobs.add("slow", name, name != "part");
        jobs.add("search", name);
        jobs.add("trial", name);
    }
    const std::vector<std::string> expected{"fast:storage=full",
                                            "fast:storage=part",
                                            "fast:storage=keep", // as listed
                                            "slow:storage=part",
                                            "slow:storage=keep",
                                            "slow:storage=full", // options without schedule first
                                            "trial:storage=part",
                                            "trial:storage=keep",
                                            "trial:storage=full", // the same
                                            "constructive",
                                            "full-effort:storage=keep",
                                            "search:storage=keep", // the best option first
                                            "full-effort:storage=part",
                                            "search:storage=part",
                                            "full-effort:storage=full",
                                            "search:storage=full"};
    CHECK(jobs.run(problem_with_recomputation()) == expected);
}
