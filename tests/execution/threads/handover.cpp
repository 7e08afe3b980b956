#include "optpipe/execution/handover.hpp"

#include "execution/check_handovers.hpp"
#include "execution/handovers.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/execution/transfer_probe.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::testing::tracing_model;
namespace threads = optpipe::threads;

constexpr std::size_t ranks = 4;
constexpr auto patience = 60s;

/// Exactly the arenas that the largest of the plans needs; there is no other memory.
threads::options exact_memory(const std::vector<optpipe::per_rank<optpipe::rank_program>>& plans) {
    threads::options how{.patience = patience};
    how.device_memory = optpipe::per_rank<std::size_t>(ranks);
    how.host_memory = how.device_memory;
    for (const rank r : optpipe::index_range<rank>{ranks}) {
        const auto room = handovers::room_for(plans, r);
        how.device_memory[r] = room.device + room.message;
        how.host_memory[r] = room.host;
    }
    return how;
}

TEST_CASE("random handovers: all ranks exchange their programs between the same steps, or none does") {
    const auto plans = handovers::plans(ranks);
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(3); ++seed) {
        CAPTURE(seed);
        threads::cluster cluster{ranks, exact_memory(plans)};
        std::vector<handovers::record> seen(ranks);
        threads::on_all_ranks(cluster, [&](threads::executor& here) {
            const auto r = here.self();
            tracing_model model{ranks};
            seen[r.position()] = handovers::run_rank(here, cluster.control(r), model, plans, 70, seed);
        });
        handovers::check(seen, 70);
    }
}

/// Rank 0's result for a plan that every rank makes by `make`, while 2 ranks run the first of `plans`.
template <class Make>
optpipe::handover_result result_of(const std::vector<optpipe::per_rank<optpipe::rank_program>>& plans,
                                   const Make& make) {
    threads::cluster cluster{2, {.patience = patience}};
    optpipe::handover_result result;
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        const auto r = here.self();
        tracing_model model{plans[0][r].stages};
        optpipe::handover run{plans[0][r], here, model, cluster.control(r), optpipe::program_maker{make}};
        if (r == rank{0}) run.publish("the plan");
        while (run.settled() == 0)
            run.step();
        run.step();
        CHECK(run.version() == (run.last_result().accepted ? 1 : 0));
        CHECK(!run.is_ready());
        if (r == rank{0}) result = run.last_result();
    });
    std::sort(result.refusals.begin(), result.refusals.end());
    return result;
}

TEST_CASE("plans that don't belong to a run are refused, in a sentence") {
    const auto plans = handovers::plans(2);
    const auto refusals = [&](const optpipe::per_rank<optpipe::rank_program>& plan) {
        const auto result = result_of(plans, [&](const std::string& text) {
            CHECK(text == "the plan");
            return plan;
        });
        CHECK(!result.accepted);
        return result.refusals;
    };
    using texts = std::vector<std::string>;
    CHECK(refusals(handovers::plans(3)[0]) == texts{"rank 0 refuses plan 1: a plan for 3 ranks, of which there are 2",
                                                    "rank 1 refuses plan 1: a plan for 3 ranks, of which there are 2"});
    CHECK(refusals(handovers::plans(2, 4)[0]) ==
          texts{"rank 0 refuses plan 1: it has other stages on this rank, or other microbatches",
                "rank 1 refuses plan 1: it has other stages on this rank, or other microbatches"});
    auto larger = plans[0];
    larger[rank{1}].host_bytes += 10;
    const auto room = plans[0][rank{1}].host_bytes;
    CHECK(refusals(larger) == texts{"rank 1 refuses plan 1: the program needs " + std::to_string(room + 10) +
                                    " bytes in an arena of " + std::to_string(room) + " (host)"});
}

TEST_CASE("a plan that is made is taken") {
    const auto plans = handovers::plans(2);
    const auto result = result_of(plans, [&](const std::string&) { return plans[1]; });
    CHECK(result.accepted);
    CHECK(result.version == 1);
    CHECK(result.refusals.empty());
}

TEST_CASE("a transfer that is probed is over before the step uses its memory") {
    const auto programs = handovers::plans(2)[0];
    constexpr std::size_t stash_bytes = 64;
    threads::options how{.patience = patience};
    how.copies = [](rank, const optpipe::task_label&, std::size_t) { return std::chrono::nanoseconds{5ms}; };
    how.record_times = true;
    threads::cluster cluster{2, how};
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        const auto& program = programs[here.self()];
        tracing_model model{program.stages};
        optpipe::runner<threads::executor, tracing_model> run{program, here, model, {.host = stash_bytes}};
        optpipe::execution::transfer_probe<threads::executor> probe{here};
        const optpipe::operation offload{optpipe::stage{here.self().position()}, optpipe::operation_kind::offload,
                                         optpipe::microbatch{0}};
        CHECK_FALSE(run.probe(probe, offload, program.device_bytes + 1));
        REQUIRE(run.probe(probe, offload, stash_bytes));
        run.step();
        const auto took = probe.times();
        REQUIRE(took);
        CHECK(took->offload.end - took->offload.start >= 5ms);
        CHECK(took->reload.start >= took->offload.end);
        for (std::size_t i = 0; const auto& each : run.times())
            if (program.instructions[i++].kind != optpipe::instruction_kind::exchange)
                CHECK(each.start >= took->reload.end);
        CHECK(model.weights() == program.microbatches);
    });
}

TEST_CASE("a stage that fails during a handover ends it on all ranks, with its error") {
    const auto plans = handovers::plans(2);
    threads::cluster cluster{2, {.patience = patience}};
    std::vector<std::string> said(2);
    std::atomic<bool> fails{false};
    std::vector<std::jthread> hosts;
    for (const rank r : optpipe::index_range<rank>{2})
        hosts.emplace_back([&, r] {
            try {
                tracing_model model{2, [&](const optpipe::operation& op) {
                                        if (fails.load() && op.stage == optpipe::stage{1})
                                            throw std::runtime_error{"division by zero"};
                                    }};
                const auto make = [&](const std::string&) {
                    fails.store(true);
                    return plans[1];
                };
                optpipe::handover run{plans[0][r], cluster[r], model, cluster.control(r), optpipe::program_maker{make}};
                if (r == rank{0}) run.publish("the plan");
                while (true)
                    run.step();
            } catch (const optpipe::execution_error& e) {
                said[r.position()] = e.what();
            }
        });
    hosts.clear();
    CHECK(said[0] == said[1]);
    CHECK(said[0].find("division by zero") != std::string::npos);
}

} // namespace
