#include "optpipe/schedule/bounds/graph_bound.hpp"

#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "optpipe/io/json.hpp"
#include "optpipe/pipeline/pipeline_builder.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"
#include "schedule/pair_problems.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

problem example(const std::string& name) {
    return read_problem(OPTPIPE_SOURCE_DIR "/tests/data/format3/" + name + ".json");
}

} // namespace

TEST_CASE("microbatches that differ: DynaPipe's instance") {
    const auto p = example("uneven-dynapipe");
    CHECK(p.load(rank{0}).value() == doctest::Approx(184.8));
    // Before and after the second rank's 184.8, the smallest microbatch takes 4.8 and 9.6 on the first.
    CHECK(graph_bound(p).value() == doctest::Approx(199.2));
    const auto s = simulate(p, one_forward_one_backward(p.graph));
    REQUIRE(s);
    const auto judged = oracle::judge(p, *s);
    CHECK(judged.text() == "");
    CHECK(judged.objective == doctest::Approx(240.8));
    CHECK(*std::max_element(judged.peak_memory.begin(), judged.peak_memory.end()) == doctest::Approx(65.6));
}

TEST_CASE("slices of sequences: half of a microbatch before and after") {
    const auto p = example("slice-linear-p4-m8-k2");
    CHECK(graph_bound(p).value() == doctest::Approx(25.5));
}

TEST_CASE("no bound is above the optimum") {
    // The optima are those of an exact search of another program.
    const std::pair<const char*, double> optima[] = {{"mtp-small-p2-m3-d1-mem3.5", 82.0},
                                                     {"slice-small-v-p2-m2-k2-mem3", 27.0},
                                                     {"slice-small-linear-p2-m2-k2-a050-mem1.75", 35.000004},
                                                     {"unet-small-v-p2-m4-mem4.5", 50.0},
                                                     {"vision-small-none-p3-m3-mem2.5", 48.3},
                                                     {"vocab-small-p3-m3", 56.0}};
    for (const auto& [name, optimum] : optima) {
        CAPTURE(name);
        const auto p = example(name);
        const auto bound = graph_bound(p).value();
        CHECK(bound <= optimum * (1.0 + 1e-9));
        CHECK(bound >= 0.75 * optimum);
    }
}

TEST_CASE("propagation closes the gaps that memory leaves") {
    const std::pair<const char*, double> least[] = {{"mtp-small-p2-m3-d1-mem3.5", 82.0},
                                                    {"slice-small-v-p2-m2-k2-mem3", 27.0},
                                                    {"slice-small-linear-p2-m2-k2-a050-mem1.75", 35.0},
                                                    {"vision-small-none-p3-m3-mem2.5", 45.6},
                                                    {"vocab-small-p3-m3", 56.0}};
    for (const auto& [name, bound] : least) {
        CAPTURE(name);
        CHECK(strong_bounds_of(example(name)).best().value() >= bound * (1.0 - 1e-6));
    }
}

TEST_CASE("a group waits for its forwards and its delay") {
    // One microbatch; both shards run on ranks of their own.
    stage_costs c{duration{1}, duration{1}, duration{1}, memory_size{1}};
    const edges::any fork{3, {edge{stage{0}, stage{1}, 1.0, {}}, edge{stage{0}, stage{2}, 1.0, {}}}};
    problem p{any_graph{3, 1, to_any_graph(graph<3, 1>{}).placement(), fork}, per_stage<stage_costs>(3, c)};
    p.costs[stage{2}].forward = duration{4};
    p.p2p = hop_times<>{duration{0.5}};
    // Without the group: 1, 0.5, 4, 1, 0.5, 1, 1.
    CHECK(graph_bound(p).value() == doctest::Approx(9.0));
    p.groups.add(std::vector{stage{1}, stage{2}}, duration{0.25}, 3);
    CHECK(graph_bound(p).value() == doctest::Approx(9.25));
    // A stage without gradients waits for nothing after it.
    for (const stage s : p.graph.all_stages()) {
        auto& each = p.costs[s];
        each.gradients = gradient_kind::none;
        each.backward_input = each.backward_weight = {};
    }
    CHECK(graph_bound(p).value() == doctest::Approx(5.5));
}

TEST_CASE("pairs: the load less what they save at most, between the ends") {
    auto p = pair_problem(4, 16, 5.5, true);
    // Per rank 16 · 6, of which 32 pairs save a quarter each. The last rank starts at 3, and its first backward at 11:
    // up to 8 forwards come before, which save nothing.
    CHECK(graph_bound(p).value() == doctest::Approx(96.0 - 32.0 * 0.25 + 3.0 + 8.0 * 0.25));
    // With room for 4 of these, 4 time units are idle; and of the backwards that fill the 12 after the last forward, an
    // eighth isn't saved.
    for (auto& limit : p.memory_limit)
        limit = memory_size{4.0};
    CHECK(graph_bound(p).value() == doctest::Approx(96.0 - 32.0 * 0.25 + 3.0 + 4.0 + 12.0 * 0.125));
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    p.objective = objective_kind::span;
    CHECK(graph_bound(p).value() == doctest::Approx(96.0 - 31.0 * 0.25));
    CHECK(propagation_bound(p, graph_bound(p)) == graph_bound(p));
    p.overlaps = {};
    CHECK(graph_bound(p).value() == doctest::Approx(96.0));
}

TEST_CASE("pairs: a forward without a gradient may end its rank, beside the backwards of another one") {
    stage_costs long_backward{duration{1.0}, duration{50.0}, duration{50.0}, memory_size{1.0}, memory_size{1.0}};
    auto short_backward = long_backward;
    short_backward.backward_input = short_backward.backward_weight = duration{0.5};
    auto frozen = long_backward;
    frozen.forward = duration{100.0};
    frozen.backward_input = frozen.backward_weight = duration{};
    frozen.weight_stash = memory_size{};
    frozen.gradients = gradient_kind::none;
    pipeline_builder stages;
    const auto first = stages.add(rank{0}, long_backward);
    stages.add(rank{1}, short_backward, {{first}});
    stages.add(rank{1}, frozen);
    auto p = stages.build(1);
    p.split_backward = false;
    p.overlaps.add({stage{2}, stage{1}, overlap_kind::backward, duration{100.9}, {}});
    // Forwards of 1 and 1, the backward of 1, and then 100 on both ranks.
    CHECK(graph_bound(p) <= duration{103.0 + 1e-9});
    CHECK(graph_bound(p) >= duration{103.0 - 1e-9});
}

TEST_CASE("backwards are as long as with the option that recomputes least inside them") {
    const stage_costs c{duration{1}, duration{1}, duration{1}, memory_size{2}};
    pipeline_builder stages;
    const auto first = stages.add(rank{0}, c, {},
                                  {{.name = "some", .held = memory_size{1}, .backward_extra = duration{0.5}},
                                   {.name = "all", .held = memory_size{1}, .backward_extra = duration{2}}});
    stages.add(rank{1}, c, {{first}});
    stages.add(rank{2}, c, {{first}});
    // F, F, I and the longer I and W. On rank 0 itself, 8 times F, I and W take longer.
    CHECK(graph_bound(stages.build(1)).value() == doctest::Approx(5.5));
    CHECK(graph_bound(stages.build(8)).value() == doctest::Approx(8.0 * 3.5));
}

TEST_CASE("in chains of equal microbatches the bound is valid as well") {
    for (std::uint64_t i = 0; i < 200; ++i) {
        CAPTURE(i);
        oracle::random_numbers random{i};
        const auto p = oracle::make_random_problem(random).problem;
        const auto one = simulate(p, one_at_a_time(p));
        REQUIRE(one);
        CHECK(graph_bound(p).value() <= objective_of(p, *one).value() * (1.0 + 1e-9));
    }
}

#endif
