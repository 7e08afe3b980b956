// Every builder on every problem file, from the schedule to a step on virtual time. To stay fast, with fewer
// microbatches than the files have, unless OPTPIPE_FULL_PROBLEMS=1; under the sanitizers with fewer files.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "execution/follow.hpp"
#include "optpipe/io/json_problem.hpp"
#include "oracle/problem_files.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/compiled/for_each_schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

TEST_CASE("every builder on every problem file lowers, passes the check, and follows its schedule on virtual time") {
    const bool full = std::getenv("OPTPIPE_FULL_PROBLEMS") != nullptr;
    const auto files = oracle::problem_files();
    std::size_t followed = 0;
    std::size_t offloads = 0;
    for (const auto& file : files) {
        auto p = optpipe::read_problem(file);
        CAPTURE(p.name);
        if (p.graph.stages() > 32) continue;
        if (!full) {
            const auto fewer = std::min(p.graph.microbatches(), std::max<std::size_t>(6, p.graph.ranks()));
            p.graph = optpipe::any_graph{p.graph.ranks(), fewer, p.graph.placement()};
        }
        compiled::for_each_schedule(p, [&](const std::string& method, const optpipe::schedule& s) {
            CAPTURE(method);
            ++followed;
            offloads += measure(p, s).offloads > 0 ? 1 : 0;
            bool lowered = false;
            CHECK(follow::follower{p, s, 1e3}.follow(optpipe::message_lanes::separate, lowered) == "");
        });
    }
    MESSAGE(followed << " schedules, " << offloads << " of them with offloading");
    CHECK(files.size() >= oracle::random_cases(oracle::all_problem_files));
    CHECK(followed > oracle::random_cases(150));
}

} // namespace

#endif
