#include "execution/follow.hpp"
#include "execution/quick_adaptive.hpp"
#include "execution/trace_run.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace {

constexpr std::uint64_t first_seed = 5200;
constexpr optpipe::testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 32};

TEST_CASE("on virtual time, programs of random schedules follow the schedule exactly") {
    std::size_t followed = 0;
    std::size_t refused = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 100; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        const auto try_it = [&](const auto& build) {
            const auto s = build_schedule(p, build);
            if (!s) return;
            const std::string name{build.name};
            CAPTURE(name);
            bool lowered = false;
            const auto wrong =
                follow::follower{p, *s, 4.0}.follow(static_cast<optpipe::message_lanes>(seed % 3), lowered);
            ++(lowered ? followed : refused);
            if (lowered) CHECK(wrong == "");
        };
        try_it(optpipe::gpipe);
        try_it(optpipe::one_forward_one_backward);
        try_it(optpipe::pipe_offload);
        try_it(quick_adaptive);
    }
    CHECK(followed > 150);
    CHECK(refused < 5);
}

} // namespace
