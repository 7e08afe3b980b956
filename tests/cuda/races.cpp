// Work in the streams is ordered by events, not by chance, wherever it uses the same memory: tested by vector clocks
// over all reads and writes, for all builders. Programs with one wait less are detected.
#include "cuda/pipelines.hpp"
#include "cuda/streamed.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/program/check.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using optpipe::message_lanes;
using optpipe::per_rank;
using optpipe::rank_program;
namespace cuda = optpipe::cuda;

namespace {

enum class issued_as { steps, graph, two_graphs };

/// Runs two steps of all ranks from one thread; returns the unordered accesses.
std::vector<std::string> races_of(const per_rank<rank_program>& programs, issued_as how) {
    fake_cuda::reset({.log_accesses = true});
    cuda::cluster cluster{programs.size(), {.patience = 20s}};
    std::vector<std::unique_ptr<streamed::model>> models;
    std::vector<std::unique_ptr<optpipe::runner<cuda::executor, streamed::model>>> runners;
    for (const auto& p : programs) {
        models.push_back(std::make_unique<streamed::model>(p.stages));
        runners.push_back(
            std::make_unique<optpipe::runner<cuda::executor, streamed::model>>(p, cluster[p.self], *models.back()));
    }
    const auto issue_all = [&] {
        for (auto& each : runners)
            each->issue();
    };
    if (how == issued_as::steps) {
        for (int i = 0; i < 2; ++i) {
            issue_all();
            cluster.finish();
        }
    } else {
        const auto first = cluster.capture(issue_all);
        const auto second = how == issued_as::graph ? first : cluster.capture(issue_all);
        cluster.launch(first);
        cluster.launch(second);
        cluster.finish();
    }
    return fake_cuda::races();
}

TEST_CASE("the detector of these tests reports what no event orders, whatever ran first") {
    const auto races_with = [](bool waits) {
        fake_cuda::reset({.log_accesses = true});
        cuda::stream writer;
        cuda::stream reader;
        const cuda::device_slab memory{128};
        const auto from = memory.memory().first(64);
        const auto to = memory.memory().subspan(64);
        const cuda::event written;
        cuda::check(cudaMemsetAsync(from.data(), 1, from.size(), writer.native()), "cudaMemsetAsync");
        writer.record(written);
        if (waits) reader.wait(written);
        reader.copy(to.data(), from.data(), to.size(), cudaMemcpyDeviceToDevice);
        writer.synchronize();
        reader.synchronize();
        // The host has waited for both.
        cuda::check(cudaMemsetAsync(to.data(), 2, to.size(), writer.native()), "cudaMemsetAsync");
        writer.synchronize();
        return fake_cuda::races();
    };
    CHECK(races_with(true) == std::vector<std::string>{});
    CHECK(races_with(false) == std::vector<std::string>{"a memset writes what a copy reads, and nothing orders them"});
}

TEST_CASE("two captured steps are ordered as they were launched") {
    for (const auto& programs : {streamed::small_programs(), streamed::offloading_programs()}) {
        CHECK(races_of(programs, issued_as::two_graphs) == std::vector<std::string>{});
        CHECK(streamed::lines(fake_cuda::complaints()) == "");
    }
}

TEST_CASE("programs of all builders leave nothing to chance") {
    // Both ways, or alternately where a run takes many times as long.
    const bool both = oracle::stride(2) == 1;
    std::size_t turn = 0;
    std::size_t programs_run = 0;
    for (const auto ranks : pipelines::sizes())
        pipelines::for_each_program(ranks,
                                    {message_lanes::separate, message_lanes::single, message_lanes::per_direction},
                                    [&](const per_rank<rank_program>& programs) {
                                        REQUIRE(check_programs(programs).empty());
                                        const auto in_turn = turn++ / 2 % 2 == 0 ? issued_as::steps : issued_as::graph;
                                        for (const auto how : {issued_as::steps, issued_as::graph}) {
                                            if (!both && how != in_turn) continue;
                                            CAPTURE(static_cast<int>(how));
                                            CHECK(races_of(programs, how) == std::vector<std::string>{});
                                            CHECK(streamed::lines(fake_cuda::complaints()) == "");
                                            ++programs_run;
                                        }
                                    });
    MESSAGE(programs_run << " runs");
    CHECK(programs_run * oracle::stride(2) > 150);
}

TEST_CASE("of programs with one wait less, those that need it are found out") {
    const auto all = oracle::random_cases(200);
    std::size_t found = 0;
    std::size_t harmless = 0;
    std::size_t copied_at_once = 0;
    optpipe::random_numbers random{9200};
    std::vector<per_rank<rank_program>> sound;
    for (const std::size_t ranks : {2U, 4U})
        pipelines::for_each_program(ranks,
                                    {message_lanes::separate, message_lanes::single, message_lanes::per_direction},
                                    [&](const per_rank<rank_program>& programs) { sound.push_back(programs); });
    for (std::size_t i = 0; i < all; ++i) {
        CAPTURE(i);
        const auto programs = pipelines::without_one_wait(sound[random.below(sound.size())], random);
        const auto needed = check_programs(programs);
        const bool is_reported = !races_of(programs, issued_as::steps).empty();
        found += is_reported ? 1 : 0;
        if (is_reported) {
            CHECK(!needed.empty());
            continue;
        }
        // A wait is harmless in three cases. Messages may imply it. It may be for the end of a send whose bytes had
        // already been taken, and later work follows from the operation that received them. Or messages imply it only
        // here, where both ends of a message are a single copy, and not where a send may take its bytes before its
        // receive has begun.
        harmless += needed.empty() ? 1 : 0;
        for (const auto& v : needed) {
            INFO(v.text());
            const auto first = v.reason.find(" needs what ");
            REQUIRE(first != std::string::npos);
            copied_at_once += v.reason.find("send of", first) == std::string::npos ? 1 : 0;
        }
    }
    MESSAGE(found << " of " << all << " reported; messages imply " << harmless << " of the others, and here "
                  << copied_at_once << " more");
    CHECK(found > all * 3 / 4);
    CHECK(copied_at_once <= all / 20);
}

} // namespace
