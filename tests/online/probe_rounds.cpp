#include "optpipe/online/probe_rounds.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

constexpr lowering_options lowering{.bytes_per_unit = 64.0, .message_bytes = 24};

problem four_ranks(memory_size limit) {
    const duration unit{1};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, transfer_times{0.5 * unit, 0.5 * unit}};
    return to_problem(make_problem(graph<4, 8>{}, uniform_memory{costs}, limit));
}
problem roomy() { return four_ranks(memory_size::unlimited()); }
/// The steps among the first `steps` before which a rank probes.
std::vector<std::uint64_t> probed_steps(probe_rounds& rounds, const rank_program& in_use, std::uint64_t steps) {
    std::vector<std::uint64_t> found;
    for (std::uint64_t step = 0; step < steps; ++step)
        if (const auto next = rounds.next(step, in_use)) {
            CHECK(next->offload.kind == operation_kind::offload);
            CHECK(next->offload.stage == stage{in_use.self.position()});
            CHECK(next->size == memory_size{1});
            found.push_back(step);
        }
    return found;
}
using steps = std::vector<std::uint64_t>;

} // namespace

TEST_CASE("transfers that a program doesn't have are probed, and no others") {
    const auto p = roomy();
    const auto without = *build_schedule(p, zero_bubble_h1);
    const auto programs = *lower(p, without, lowering);
    const auto tight = four_ranks(memory_size{2});
    const auto offloads = *lower(tight, *build_schedule(tight, adaptive), lowering);
    for (const rank r : p.graph.all_ranks()) {
        // The offload and the reload take 1 of about 30.
        const auto share = 1.0 / (10.0 * objective_of(p, without).value());
        probe_rounds rounds{p, without, r, share, 0.25};
        CHECK(rounds.steps_between() == 10);
        CHECK(probed_steps(rounds, programs[r], 40) == steps{0, 9, 19, 29, 39});
        const bool has_transfers = offloads[r].host_bytes > 0;
        CHECK(probed_steps(rounds, offloads[r], 40).empty() == has_transfers);
        probe_rounds never{p, without, r, 0.0, 0.25};
        CHECK(probed_steps(never, programs[r], 1000).empty());
    }
    auto fixed = p;
    fixed.change_stages([&](auto& costs) { costs.transfer = {}; });
    probe_rounds nothing{fixed, without, rank{0}, 0.01, 0.25};
    CHECK(probed_steps(nothing, programs[rank{0}], 1000).empty());
}

TEST_CASE("ranks that share a link probe one after the other") {
    auto p = roomy();
    p.transfer.link[rank{2}] = p.transfer.link[rank{1}];
    const auto s = *build_schedule(p, zero_bubble_h1);
    const auto programs = *lower(p, s, lowering);
    const auto share = 1.0 / (5.0 * objective_of(p, s).value());
    const auto found = [&](rank r) {
        probe_rounds rounds{p, s, r, share, 0.25};
        return probed_steps(rounds, programs[r], 20);
    };
    CHECK(found(rank{0}) == steps{0, 4, 9, 14, 19});
    CHECK(found(rank{1}) == steps{0, 4, 14});
    CHECK(found(rank{2}) == steps{2, 9, 19});
    CHECK(found(rank{3}) == steps{0, 4, 9, 14, 19});
}

TEST_CASE("a slow transfer is probed more rarely, so that it takes no larger share") {
    const auto p = roomy();
    const auto s = *build_schedule(p, zero_bubble_h1);
    const auto programs = *lower(p, s, lowering);
    probe_rounds rounds{p, s, rank{1}, 1.0 / (2.0 * objective_of(p, s).value()), 100.0};
    REQUIRE(rounds.steps_between() == 2);
    const auto first = rounds.next(3, programs[rank{1}]);
    REQUIRE(first);
    rounds.took(3, first->offload, {duration{1.0}, duration{3.0}}); // 1 as planned
    CHECK(probed_steps(rounds, programs[rank{1}], 16) == steps{0, 11, 13, 15});
}

TEST_CASE("a transfer that has changed is probed once more") {
    const auto p = roomy();
    const auto s = *build_schedule(p, zero_bubble_h1);
    const auto programs = *lower(p, s, lowering);
    const auto& program = programs[rank{1}];
    probe_rounds rounds{p, s, rank{1}, 1.0 / (10.0 * objective_of(p, s).value()), 0.25};
    const auto probe = [&](std::uint64_t step, double time) {
        const auto next = rounds.next(step, program);
        REQUIRE(next);
        rounds.took(step, next->offload, {duration{time}, duration{time}});
    };
    probe(0, 0.9);
    probe(1, 0.5); // once more, at once
    CHECK(!rounds.next(2, program));
    probe(9, 0.55); // as planned, nearly
    CHECK(!rounds.next(10, program));
    probe(19, 0.25);
    probe(20, 0.25); // once more
    CHECK(!rounds.next(21, program));
    probe(29, 0.25); // known by now
    CHECK(!rounds.next(30, program));
    probe(39, 0.5);
    probe(40, 0.25); // another change, but not a third probe
    CHECK(!rounds.next(41, program));
}

TEST_CASE("at first the largest transfer of each stage is probed") {
    const duration unit{1};
    auto p = to_problem(make_problem(graph<2, 4, placement::loop<2>>{},
                                     uniform_memory{stage_costs{unit, unit, unit, memory_size{1}, memory_size{0.5}}}));
    const auto offload = [&](const char* name, double size) {
        return storage_option{name, memory_size{1},    {},
                              {},   memory_size{size}, transfer_times{size * unit, size * unit}};
    };
    for (const stage s : p.graph.all_stages())
        p.storage[s] = {keep_stash(p.costs[s]), offload("half", 0.5), offload("all", 1.0), offload("some", 0.7)};
    p.transfer.share_link(rank{0}, rank{1});
    const auto s = *build_uniform_schedule(p, interleaved, *find_common_option(p, "keep"));
    const auto programs = *lower(p, s, lowering);
    for (const rank r : p.graph.all_ranks()) {
        probe_rounds rounds{p, s, r, 0.001, 0.25};
        CHECK(rounds.first_steps() == 8);
        std::vector<std::pair<std::uint64_t, operation>> found;
        for (std::uint64_t step = 0; step < rounds.first_steps(); ++step)
            if (const auto next = rounds.next(step, programs[r])) found.emplace_back(step, next->offload);
        const auto at = 2 * r.position();
        const auto probe = [&](std::size_t of) {
            return operation{stage{of}, operation_kind::offload, microbatch{0}, storage_index{2}};
        };
        CHECK(found == std::vector<std::pair<std::uint64_t, operation>>{{at, probe(r.position())},
                                                                        {at + 4, probe(r.position() + 2)}});
    }
}
