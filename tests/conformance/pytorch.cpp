// Every builder on every problem file, as a PyTorch file with all messages. To stay fast, with fewer microbatches than
// the problem files have; under the sanitizers with fewer files.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/pytorch_rendezvous.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/io/pytorch_csv.hpp"
#include "oracle/problem_files.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/compiled/for_each_schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace {

TEST_CASE("what every builder makes of every problem file runs in PyTorch where every send waits for its receive") {
    std::size_t written = 0;
    for (const auto& file : oracle::problem_files()) {
        auto p = optpipe::read_problem(file);
        CAPTURE(p.name);
        if (p.graph.stages() > 8) continue;
        const auto fewer = std::min(p.graph.microbatches(), std::max<std::size_t>(6, p.graph.ranks()));
        p.graph = optpipe::any_graph{p.graph.ranks(), fewer, p.graph.placement()};
        compiled::for_each_schedule(p, [&](const std::string& method, const optpipe::schedule& s) {
            CAPTURE(method);
            const auto rows = optpipe::to_pytorch(p, s, {optpipe::pytorch_format::compute_comms, true});
            REQUIRE_MESSAGE(rows.has_value(), optpipe::describe(rows.why()));
            CHECK(rendezvous::run_of{*rows}.stuck() == std::vector<std::string>{});
            CHECK(rendezvous::unmatched_waits(*rows) == std::vector<std::string>{});
            CHECK(optpipe::parse_pytorch_csv(optpipe::to_csv(*rows), "own") == *rows);
            ++written;
        });
    }
    MESSAGE(written << " schedules");
    CHECK(written > oracle::random_cases(100));
}

} // namespace

#endif
