#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/lower.hpp"
#include "optpipe/schedule/program_check.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "optpipe/testing/trace_run.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using optpipe::memory_arena;
using optpipe::message_lanes;
using optpipe::rank;
using optpipe::testing::tracing_model;

constexpr std::uint64_t first_seed = 5200;
constexpr double bytes_per_unit = 4.0;
constexpr optpipe::testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 32};

/// Traces the lowered schedule and looks at every operation: none starts later than planned, and if the lanes are held
/// back to the plan, each at its time and all memory as planned.
void follow(const optpipe::problem& p, const optpipe::schedule& s, message_lanes lanes) {
    const auto programs = lower(p, s, {.bytes_per_unit = bytes_per_unit, .message_bytes = 16, .lanes = lanes});
    if (!programs) return;
    REQUIRE(check_programs(*programs).empty());
    const auto planned = measure(p, s);
    const optpipe::operation_numbering<optpipe::any_graph> number{p.graph};
    std::vector<optpipe::duration> start(number.size(), optpipe::duration::unlimited());
    for (const auto& timed : s.operations)
        start[number(timed.op)] = timed.start;
    for (const bool paced : {true, false}) {
        CAPTURE(paced);
        std::vector<tracing_model> models(p.graph.ranks(), tracing_model{p.graph.stages()});
        const auto result = trace(*programs, optpipe::testing::planned_costs(p, paced ? &s : nullptr),
                                  [&](rank r) -> tracing_model& { return models[r.position()]; });
        const std::string failed = result.failed ? result.failed->what() : "";
        REQUIRE(failed == "");
        std::size_t count = 0;
        for (const auto& each : result.times) {
            for (std::size_t i = 0; i < each.times.size(); ++i) {
                const auto& now = each.program->instructions[i];
                if (now.kind == optpipe::instruction_kind::exchange) continue;
                ++count;
                const auto expected = optpipe::testing::to_virtual(start[number(now.op)]);
                const auto later = each.times[i].start - expected;
                CAPTURE(to_string(now.op));
                // A few billionths of a unit: durations are rounded, and add up.
                if (paced)
                    CHECK(std::abs(later.count()) <= 1000);
                else
                    CHECK(later.count() <= 1000);
            }
            const auto r = each.program->self;
            const auto device = static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_memory[r].value()));
            const auto host =
                static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_host_memory[r].value()));
            CHECK(each.program->device_bytes == device);
            if (paced) CHECK(high_water(each, memory_arena::device) == device);
            if (paced) CHECK(high_water(each, memory_arena::host) == host);
            CHECK(high_water(each, memory_arena::device) <= each.program->device_bytes);
            CHECK(high_water(each, memory_arena::host) <= each.program->host_bytes);
        }
        CHECK(count == s.operations.size());
    }
}

TEST_CASE("on virtual time, programs of random schedules follow the schedule exactly") {
    std::size_t runs = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 120; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        const auto try_it = [&](const auto& build) {
            const std::string name{build.name};
            CAPTURE(name);
            if (const auto s = build_schedule(p, build)) {
                ++runs;
                follow(p, *s, static_cast<message_lanes>(seed % 3));
            }
        };
        try_it(optpipe::gpipe);
        try_it(optpipe::one_forward_one_backward);
        try_it(optpipe::pipe_offload);
        try_it(optpipe::adaptive);
    }
    CHECK(runs > 200);
}

} // namespace
