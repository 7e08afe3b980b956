#include "optpipe/schedule/construct/offload_repair.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/gis.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/construct/merge_lanes.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

problem one_rank(std::size_t microbatches, double limit) {
    auto p = to_problem(make_problem(graph<1, dynamic>{1, microbatches}, unit_memory{}));
    p.set_stage(stage{0}, {1_ms, 1_ms, 1_ms, 1_gb, 1_gb, transfer_times{1_ms, 1_ms}});
    p.memory_limit[rank{0}] = memory_size{limit};
    return p;
}
std::vector<operation> lane_of(const std::string& text) {
    std::vector<operation> lane;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find(' ', at), text.size());
        lane.push_back(*parse_operation(text.substr(at, end - at)));
        at = end + 1;
    }
    return lane;
}
std::string spell(const std::vector<operation>& lane) {
    std::string text;
    for (const auto& op : lane)
        text += (text.empty() ? "" : " ") + to_string(op);
    return text;
}

struct repaired {
    bool fits;
    std::string lane;
};
repaired repair(const problem& p, const std::string& text, const cell_flags& may_offload) {
    auto lane = lane_of(text);
    const bool fits = detail::memory_keeper<any_graph>{p, may_offload}.run(rank{0}, lane);
    return {fits, spell(lane)};
}

} // namespace

TEST_CASE("what fits stays as it is") {
    const std::string text = "0F0 0OFFLOAD0 0F1 0RELOAD0 0I0 0W0 0I1 0W1";
    const auto result = repair(one_rank(2, 2.0), text, {1, 1});
    CHECK(result.fits);
    CHECK(result.lane == text);
}

TEST_CASE("offloads come earlier, reloads later") {
    CHECK(repair(one_rank(2, 1.0), "0F0 0F1 0OFFLOAD0 0OFFLOAD1 0RELOAD0 0RELOAD1 0I0 0W0 0I1 0W1", {1, 1}).lane ==
          "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0RELOAD0 0I0 0W0 0RELOAD1 0I1 0W1");
    CHECK(repair(one_rank(3, 2.0), "0F0 0OFFLOAD0 0F1 0RELOAD0 0F2 0I2 0W2 0I0 0W0 0I1 0W1", {1, 0, 0}).lane ==
          "0F0 0OFFLOAD0 0F1 0F2 0I2 0W2 0RELOAD0 0I0 0W0 0I1 0W1");
}

TEST_CASE("if that isn't enough, more stashes are offloaded, those needed last first") {
    const auto result = repair(one_rank(3, 2.0), "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2", {1, 1, 1});
    CHECK(result.fits);
    CHECK(result.lane == "0F0 0F1 0OFFLOAD1 0F2 0I0 0W0 0RELOAD1 0I1 0W1 0I2 0W2");
    CHECK_FALSE(repair(one_rank(3, 2.0), "0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2", {0, 0, 0}).fits);
}

TEST_CASE("what the host can't hold stays") {
    auto p = one_rank(3, 3.0);
    p.host_memory_limit[rank{0}] = 1_gb;
    const auto result =
        repair(p, "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0F2 0RELOAD0 0I0 0W0 0RELOAD1 0I1 0W1 0I2 0W2", {1, 1, 1});
    CHECK(result.fits);
    CHECK(result.lane == "0F0 0OFFLOAD0 0F1 0F2 0RELOAD0 0I0 0W0 0I1 0W1 0I2 0W2");
}

TEST_CASE("no reload is put off whose place on the host another stash has taken") {
    auto p = one_rank(4, 2.0);
    p.host_memory_limit[rank{0}] = 1_gb;
    const auto result = repair(
        p, "0F0 0OFFLOAD0 0F1 0RELOAD0 0OFFLOAD1 0F2 0F3 0I0 0W0 0RELOAD1 0I1 0W1 0I2 0W2 0I3 0W3", {1, 1, 0, 0});
    CHECK_FALSE(result.fits);
    CHECK(result.lane.find("0RELOAD0") < result.lane.find("0OFFLOAD1"));
}

TEST_CASE("where W needs more than the whole stash, a full backward") {
    auto p = one_rank(1, 1.0);
    p.costs[stage{0}].weight_stash = 2_gb;
    CHECK(repair(p, "0F0 0I0 0W0", {0}).lane == "0F0 0B0");
    p.memory_limit[rank{0}] = 2_gb;
    CHECK(repair(p, "0F0 0I0 0W0", {0}).lane == "0F0 0I0 0W0");
}

TEST_CASE("never more than the limits, and computations in their order, for whatever transfers were planned") {
    constexpr std::uint64_t seed = 96;
    int kept = 0;
    int not_kept = 0;
    for (std::uint64_t i = 0; i < 600; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p =
            oracle::make_random_problem(
                random, {.ranks = 6, .stages = 12, .microbatches = 16, .cells = 96, .offloading_percent = 100})
                .problem;
        if (!is_loop_placed(p.graph)) continue;
        cell_flags flags(p.graph.cells());
        per_rank<std::vector<operation>> lanes(p.graph.ranks());
        const auto base = *gis_builder{1}(p);
        for (const auto& op : base.operations) {
            auto& lane = lanes[p.rank_of(op.stage)];
            const auto cell = op.stage.position() * p.graph.microbatches() + op.microbatch.position();
            if (op.kind == operation_kind::forward)
                flags[cell] = p.whole_offload(op.stage) && random.chance(70) ? 1 : 0;
            const auto moved = offload_of(op.stage, op.microbatch);
            if (is_gradient(op.kind) && std::find(lane.begin(), lane.end(), moved) != lane.end())
                lane.push_back(reload_of(op.stage, op.microbatch));
            lane.push_back(op);
            if (op.kind == operation_kind::forward && flags[cell] && random.chance(50)) lane.push_back(moved);
        }
        bool fits = true;
        detail::memory_keeper<any_graph> keeper{p, flags};
        for (const rank r : p.graph.all_ranks()) {
            const auto before = lanes[r];
            fits = keeper.run(r, lanes[r]) && fits;
            std::vector<operation> computed;
            for (const auto& op : lanes[r])
                if (!is_transfer(op.kind))
                    computed.push_back(op);
                else
                    CHECK(flags[op.stage.position() * p.graph.microbatches() + op.microbatch.position()] == 1);
            auto next = computed.begin();
            for (const auto& op : before)
                if (op.kind == operation_kind::forward) {
                    next = std::find(next, computed.end(), op);
                    CHECK(next != computed.end());
                }
        }
        const schedule unplanned{p.graph, {}};
        const auto merged = detail::lane_merger<any_graph>{p.graph, lanes, unplanned}.run();
        for (const rank r : p.graph.all_ranks())
            CHECK(memory_needed(p, merged, memory_kind::host)[r] <= p.host_memory_limit[r] + 1e-9_gb);
        const auto timed = simulate(p, merged);
        CHECK(timed.has_value() == fits);
        if (!timed) CHECK(timed.why().reason == refusal_reason::over_memory);
        (fits ? kept : not_kept)++;
    }
    CHECK(kept > 60);
    CHECK(not_kept > 30);
}

TEST_CASE("merged lanes come by planned start, as dependencies allow") {
    const auto p = to_problem(make_problem(graph<2, 2>{}, unit_memory{}));
    const auto order = *gis_builder{1}(p);
    per_rank<std::vector<operation>> lanes(2);
    for (const auto& op : order.operations)
        lanes[p.rank_of(op.stage)].push_back(op);
    const auto planned = *simulate(p, order);
    const auto merged = detail::lane_merger<any_graph>{p.graph, lanes, planned}.run();
    CHECK(merged.operations.size() == order.operations.size());
    const auto timed = *simulate(p, merged);
    for (std::size_t i = 1; i < timed.operations.size(); ++i)
        CHECK(timed.operations[i - 1].start <= timed.operations[i].start);
    // A cycle leads to missing operations.
    std::swap(lanes[rank{1}].front(), lanes[rank{1}].back());
    CHECK(detail::lane_merger<any_graph>{p.graph, lanes, planned}.run().operations.size() < order.operations.size());
}
