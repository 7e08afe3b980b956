// Training on processes measures itself and takes better plans: all processes take them at the same step, and only the
// time of a step depends on them.
#include "optpipe/online/online_run.hpp"

#include "language_model/training.hpp"
#include "mpi/support/world.hpp"
#include "optpipe/execution/mpi/run.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/paced_model.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace std::chrono_literals;
namespace mpi = optpipe::mpi;

namespace {

using model_type = language_model::pipeline_model<double>;

const optpipe::lowering_options lowering{.bytes_per_unit = 1.0,
                                         .alignment = alignof(double),
                                         .message_bytes = sizeof(double) * training::tiny.boundary(),
                                         .placement = optpipe::part_placement::contiguous,
                                         .update = true};

/// The results of training on this process.
struct trained {
    std::vector<double> losses;
    std::vector<double> parameters;
};
trained result_of(const model_type& model, training::stages_type& stages) {
    const auto own = stages[world::self().position()].parameters();
    return {model.losses(), {own.begin(), own.end()}};
}

trained train_without_switch(const optpipe::problem& p, const optpipe::schedule& s, std::size_t steps) {
    auto stages = training::fresh_stages(p.graph.stages());
    model_type model{stages, training::text, training::tiny, p.graph.microbatches()};
    mpi::member here{MPI_COMM_WORLD};
    mpi::run(*lower(p, s, lowering), here, model, steps);
    return result_of(model, stages);
}

/// The version of the program that each step ran; on rank 0 also the log of decisions.
struct online_training {
    trained result;
    std::vector<std::uint64_t> versions;
    std::vector<optpipe::online_event> log;
};

/// Trains until some steps after the first switch, the same number on all ranks.
online_training train_online(const optpipe::problem& p, const optpipe::schedule& first,
                             const optpipe::online_options& options) {
    constexpr std::size_t most_steps = 5000; // far more than any machine needs
    constexpr std::size_t steps_after = 20;
    constexpr auto unit = 500us;
    auto stages = training::fresh_stages(p.graph.stages());
    optpipe::testing::paced_model<model_type> model{
        model_type{stages, training::text, training::tiny, p.graph.microbatches()}, p, unit};
    mpi::member here{MPI_COMM_WORLD, {.record_times = true}};
    optpipe::online_run run{p, first, here.executor(), model, here.control(), {lowering, unit}, options};
    online_training seen;
    for (std::size_t end = most_steps; run.steps() < end;) {
        seen.versions.push_back(run.version());
        run.step();
        if (end == most_steps && run.version() > 0) end = run.steps() + steps_after;
    }
    if (run.controller()) seen.log = run.controller()->log();
    seen.result = result_of(model.model(), stages);
    return seen;
}

/// The steps that ran another program than the step before.
std::string switches_in(const std::vector<std::uint64_t>& versions) {
    std::string text;
    for (std::size_t step = 1; step < versions.size(); ++step)
        if (versions[step] != versions[step - 1])
            text += "version " + std::to_string(versions[step]) + " from step " + std::to_string(step) + "; ";
    return text + std::to_string(versions.size()) + " steps";
}

} // namespace

TEST_CASE("all processes switch between the same steps, and train as without a switch, bit for bit") {
    const auto p = training::problem_with<optpipe::placement::linear>(world::ranks(), 2 * world::ranks());
    const auto first = build_schedule(p, optpipe::gpipe);
    REQUIRE(first);
    optpipe::online_options options;
    options.keep_accumulation_order = true;
    options.calm_steps = 1;
    options.planning.how.gap = 0.05;
    options.planning.how.time_limit = 60s;
    const auto seen = train_online(p, *first, options);
    const auto switches = switches_in(seen.versions);
    for (const auto& each : world::collect(switches))
        CHECK(each == switches);
    CHECK(seen.versions.back() > 0);
    for (const auto& event : seen.log)
        CHECK_MESSAGE(event.kind != optpipe::online_event::kind_type::failure, event.text);

    const auto expected = train_without_switch(p, *first, seen.versions.size());
    CHECK(seen.result.losses == expected.losses);
    CHECK(seen.result.parameters == expected.parameters);
    if (world::self() == optpipe::rank{0}) MESSAGE(switches);
}
