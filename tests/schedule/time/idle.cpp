#include "optpipe/schedule/time/idle.hpp"

#include "optpipe/core/format.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/spelled.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace {

using optpipe::idle_cause;
using optpipe::idle_times;
using optpipe::rank;
using optpipe::stage;
using oracle::spelled_schedule;
using namespace optpipe::literals;

optpipe::problem two_ranks(std::size_t microbatches, optpipe::memory_size limit) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{2, microbatches};
    const optpipe::stage_costs unit{1_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, {}};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{unit});
    p.memory_limit[rank{0}] = limit;
    return p;
}

/// "start 0-1 1F0, neighbour 2-3 1F1": the gaps of a rank.
std::string gaps(const optpipe::problem& p, const std::string& text, rank r) {
    const auto s = spelled_schedule(p, text);
    REQUIRE(optpipe::validate(p, s).empty());
    std::string all;
    for (const auto& gap : idle_times(p, s)) {
        if (gap.rank != r) continue;
        all += (all.empty() ? "" : ", ") + std::string{name_of(gap.cause)} + " " + optpipe::format_number(gap.from) +
               "-" + optpipe::format_number(gap.to);
        if (gap.next) all += " " + to_string(*gap.next);
    }
    return all;
}

} // namespace

TEST_CASE("a rank waits for its neighbour if nothing else has its input, and for memory if only that is missing") {
    const std::string narrow = "0F0@0 1F0@1 1B0@2 0B0@4 0F1@6 1F1@7 1B1@8 0B1@10";
    CHECK(gaps(two_ranks(2, 1_gb), narrow, rank{0}) == "memory 1-4 0B0, neighbour 7-10 0B1");
    CHECK(gaps(two_ranks(2, 1_gb), narrow, rank{1}) == "start 0-1 1F0, neighbour 4-7 1F1, end 10-12");
    // With room for both, the same order waits because of the order.
    CHECK(gaps(two_ranks(2, 2_gb), narrow, rank{0}) == "sequence 1-4 0B0, neighbour 7-10 0B1");
}

TEST_CASE("the time of a message is a wait for the neighbour") {
    auto p = two_ranks(1, 1_gb);
    p.p2p = optpipe::hop_times<>{0.5_ms};
    CHECK(gaps(p, "0F0@0 1F0@1.5 1B0@2.5 0B0@5", rank{0}) == "neighbour 1-5 0B0");
}

TEST_CASE("a gap is divided where a transfer takes over from the neighbour, and where an offload frees memory") {
    auto p = two_ranks(2, 1_gb);
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = optpipe::transfer_times{2_ms, 3_ms}; });
    // 0F1 has its input from the start, and fits once 0F0 is on the host.
    const std::string text = "0F0@0 0OFFLOAD0@1 0F1@3 1F0@1 1B0@2 1F1@4 1B1@5 0B1@7 0RELOAD0@9 0B0@12";
    CHECK(gaps(p, text, rank{0}) == "memory 1-3 0F1, neighbour 4-7 0B1, copy 9-12 0B0");
}

TEST_CASE("differences of rounded times are no gaps") {
    const auto p = two_ranks(2, 2_gb);
    CHECK(gaps(p, "0F0@0 0F1@1 1F0@1 1B0@2 1F1@4 1B1@5 0B0@4.000000000000001 0B1@7", rank{0}) ==
          "neighbour 2-4 0B0, neighbour 6-7 0B1");
    CHECK(gaps(p, "0F0@0 0F1@1.0000000000000002 1F0@1 1B0@2 1F1@4 1B1@5 0B0@4 0B1@7", rank{0}) ==
          "neighbour 2-4 0B0, neighbour 6-7 0B1");
}

TEST_CASE("of each rank the gaps are apart from each other and from all computations, and add up to the idle time") {
    constexpr std::uint64_t seed = 61'000;
    std::array<std::size_t, optpipe::all_idle_causes.size()> seen{};
    for (std::uint64_t i = 0; i < oracle::random_cases(500); ++i) {
        CAPTURE(i);
        oracle::random_numbers random{seed + i};
        const auto given = oracle::make_random_problem(
            random, {.offloading_percent = 50, .span_percent = 20, .storage_percent = i % 2 == 0 ? 100U : 0U});
        const auto& p = given.problem;
        const auto s = oracle::random_schedule(random, given);
        const auto m = measure(p, s);
        const auto all = idle_times(p, s);
        const auto sums = optpipe::sum_by_cause(p.graph.ranks(), all);
        const auto lanes = operations_by_rank(s);
        for (const rank r : p.graph.all_ranks())
            CHECK(sums[r].total().value() == doctest::Approx((m.makespan - m.busy[r]).value()).epsilon(1e-9));
        for (std::size_t k = 0; k < all.size(); ++k) {
            CHECK(all[k].from < all[k].to);
            ++seen[static_cast<std::size_t>(all[k].cause)];
            const bool continues = k > 0 && all[k - 1].rank == all[k].rank;
            if (continues) CHECK(all[k - 1].to <= all[k].from);
            for (const auto& timed : lanes[all[k].rank]) {
                const bool is_apart = timed.end <= all[k].from || all[k].to <= timed.start;
                if (!is_transfer(timed.op.kind)) CHECK(is_apart);
            }
        }
    }
    for (const auto cause : optpipe::all_idle_causes) {
        CAPTURE(name_of(cause));
        CHECK(seen[static_cast<std::size_t>(cause)] > 0);
    }
}
