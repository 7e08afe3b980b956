#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_auto.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

/// F, I and W take 1; full recomputation leaves a tenth and takes 1 more, ahead or inside.
template <pipeline_graph Graph> constexpr auto stored(const Graph& g, memory_size limit) {
    auto p = make_problem(g, uniform_memory{stage_costs{1_ms, 1_ms, 1_ms, 1_gb, 0_gb, {}}}, limit);
    for (const stage s : p.graph.all_stages()) {
        p.storage[s].push_back({"full", 0.1_gb, {}, 1_ms, {}, {}});
        p.storage[s].push_back({"full-ahead", 0.1_gb, 1_ms, {}, {}, {}});
    }
    return p;
}
template <class Graph> constexpr auto options_of(const basic_problem<Graph>& p, const char* name) {
    return *find_common_option(p, name);
}

// 1F1B-R by the formula of the papers: (M + R - 1)(F + recomputation + B).
constexpr auto tight = stored(graph<4, 8>{}, 1.3_gb);
constexpr auto recomputed = *build_uniform_schedule(tight, one_forward_one_backward, options_of(tight, "full"));
static_assert(is_valid(tight, recomputed));
static_assert(measure(tight, recomputed).makespan == 44_ms);
// Ahead: all ranks except the last recompute while they wait for the first gradient, if memory allows.
constexpr auto ahead = *build_uniform_schedule(tight, one_forward_one_backward, options_of(tight, "full-ahead"));
static_assert(is_valid(tight, ahead));
static_assert(measure(tight, ahead).makespan <= 44_ms);
static_assert(!build_uniform_schedule(tight, one_forward_one_backward, options_of(tight, "keep")));

} // namespace

TEST_CASE("a refusal speaks of the memory of the problem") {
    const auto p = stored(graph<4, 8>{}, 1_gb);
    const auto kept = build_uniform_schedule(p, one_forward_one_backward, options_of(p, "keep"));
    CHECK(describe(kept.why()) == "rank 0 needs 4 of memory, its limit is 1");
    const auto full = build_uniform_schedule(p, one_forward_one_backward, options_of(p, "full-ahead"));
    CHECK(describe(full.why()) == "rank 0 needs 1.3 of memory, its limit is 1");
}

TEST_CASE("the best of all options") {
    auto p = stored(graph<4, 8>{}, 1.3_gb);
    const auto tight_memory = build_best_uniform_schedule(p, one_forward_one_backward);
    REQUIRE(tight_memory.result);
    CHECK(tight_memory.option.view().starts_with("full"));
    for (auto& limit : p.memory_limit)
        limit = 4_gb;
    const auto enough = build_best_uniform_schedule(p, one_forward_one_backward);
    CHECK(enough.option.view() == "keep");
    CHECK(measure(p, *enough.result).recomputes == 0);
    CHECK_FALSE(build_best_uniform_schedule(p, zero_bubble_v).result);
    p.storage[stage{0}][0].name = "kept";
    p.storage[stage{0}][1].name = "f";
    p.storage[stage{0}][2].name = "fa";
    CHECK(describe(build_best_uniform_schedule(p, gpipe).result.why()) == "no storage option is common to all stages");
}

namespace {

/// GPipe that requests a stop in one of its runs.
struct stopping {
    static constexpr std::string_view name = "stopping";
    std::stop_source* source = nullptr;
    std::size_t* runs = nullptr;
    std::size_t last = 0;

    outcome<order> operator()(const problem& p, stop_check stop = {}) const {
        if (++*runs == last) source->request_stop();
        if (stop.is_requested()) return was_stopped();
        return gpipe(p);
    }
};

} // namespace

TEST_CASE("a stop request ends the search for the best storage option with the best so far") {
    const auto p = to_problem(stored(graph<4, 8>{}, 16_gb));
    for (const std::size_t last : {1, 2}) {
        CAPTURE(last);
        std::stop_source source;
        std::size_t runs = 0;
        const auto token = source.get_token();
        const auto best = build_best_uniform_schedule(p, stopping{&source, &runs, last}, stop_check{token});
        CHECK(runs == last);
        CHECK(best.result.has_value() == (last > 1));
        if (!best.result) CHECK(best.result.why().sentence == was_stopped().sentence);
        if (best.result) CHECK(best.option.view() == "keep");
    }
}

TEST_CASE("the constructive planner is as good as with any one option, within its effort") {
    auto p =
        to_problem(make_problem(graph<4, 8>{}, uniform_memory{stage_costs{1_ms, 1_ms, 1_ms, 1_gb, 0.6_gb, {}}}, 2_gb));
    for (auto& list : p.storage) {
        list.push_back({"full", 0.1_gb, 1_ms, {}, {}, {}});
    }
    const auto joint = build_schedule(p, adaptive);
    REQUIRE(joint);
    CHECK(is_valid(p, *joint));
    const auto best = build_best_uniform_schedule(p, adaptive_builder<>{.effort = adaptive.effort / 2});
    REQUIRE(best.result);
    CHECK(objective_of(p, *joint) == objective_of(p, *best.result));
    CHECK(objective_of(p, *joint) <
          objective_of(p, *build_uniform_schedule(p, one_forward_one_backward, *find_common_option(p, "full"))));
}

TEST_CASE("what builders make with a storage option is valid") {
    int made = 0;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = oracle::make_random_problem(random, {.storage_percent = 100}).problem;
        for (const auto& name : common_option_names(p)) {
            const auto options = *find_common_option(p, name.view());
            const auto check = [&](const auto& build) {
                const auto s = build_uniform_schedule(p, build, options);
                if (!s) {
                    CHECK(s.why().reason != refusal_reason::not_executable);
                    return;
                }
                ++made;
                CHECK(is_valid(p, *s));
                CHECK(oracle::judge(p, *s).text() == "");
            };
            check(gpipe);
            check(one_forward_one_backward);
            check(zero_bubble_auto);
        }
    }
    CHECK(made > 300);
}
