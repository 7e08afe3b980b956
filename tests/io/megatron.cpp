#include "optpipe/io/megatron.hpp"

#include "io/sample.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

using arguments = std::vector<std::pair<std::string, std::string>>;

problem loop_placed(std::size_t ranks, std::size_t chunks, std::size_t microbatches) {
    per_stage<rank> where(ranks * chunks);
    for (const stage s : where.indices())
        where[s] = rank{s.position() % ranks};
    const stage_costs unit{duration{2}, duration{2}, duration{1}, memory_size{2}, memory_size{1}, {}};
    problem p{any_graph{ranks, microbatches, placement::map<>{where}}, per_stage<stage_costs>(ranks * chunks, unit)};
    p.time_unit = "ms";
    p.memory_unit = "GB";
    return p;
}

schedule timed(const problem& p, const outcome<order>& given) {
    REQUIRE_MESSAGE(given.has_value(), describe(given.why()));
    const auto result = simulate(p, *given);
    REQUIRE_MESSAGE(result.has_value(), describe(result.why()));
    return *result;
}

per_rank<std::vector<operation>> lanes_of(const order& o) {
    per_rank<std::vector<operation>> lanes(o.graph.ranks());
    for (const auto& op : o.operations)
        lanes[o.graph.rank_of(op.stage)].push_back(op);
    return lanes;
}

bool says(const megatron_settings& settings, const std::string& part) {
    return std::any_of(settings.differences.begin(), settings.differences.end(),
                       [&](const std::string& each) { return sample::contains(each, part); });
}

} // namespace

TEST_CASE("groups of as many microbatches as ranks are the interleaved schedule, one stage per rank is 1F1B") {
    for (const std::size_t ranks : {1U, 2U, 3U, 4U})
        for (const std::size_t chunks : {1U, 2U, 3U}) {
            CAPTURE(ranks);
            CAPTURE(chunks);
            const auto p = loop_placed(ranks, chunks, 3 * ranks);
            const auto found = megatron_order(p.graph, ranks);
            REQUIRE(found.has_value());
            const auto lanes = lanes_of(*found);
            const auto published = lanes_of(interleaved(p.graph));
            for (const rank r : p.graph.all_ranks())
                CHECK(lanes[r] == published[r]);
        }
}

TEST_CASE("every order of Megatron's is recognized by its group") {
    const auto p = loop_placed(2, 2, 12);
    for (const std::size_t group : {2U, 3U, 4U, 5U, 6U, 10U, 12U}) {
        CAPTURE(group);
        const auto settings = to_megatron(p, timed(p, megatron_order(p.graph, group)));
        REQUIRE(settings.has_value());
        CHECK(settings->arguments ==
              arguments{{"--pipeline-model-parallel-size", "2"},
                        {"--num-virtual-stages-per-pipeline-rank", "2"},
                        {"--microbatch-group-size-per-virtual-pipeline-stage", std::to_string(group)}});
        CHECK(settings->differences.empty());
    }
}

TEST_CASE("layers become a layout") {
    const auto p = loop_placed(2, 2, 4);
    const auto s = timed(p, megatron_order(p.graph, 2));
    const auto settings = to_megatron(p, s, {{1, 3, 0, 2}, {}});
    REQUIRE(settings.has_value());
    CHECK(settings->arguments == arguments{{"--pipeline-model-parallel-size", "2"},
                                           {"--num-layers", "6"},
                                           {"--pipeline-model-parallel-layout", "\"Et|t*3||t*2L\""},
                                           {"--microbatch-group-size-per-virtual-pipeline-stage", "2"}});
}

TEST_CASE("layers of multi-token prediction are in the layout, where Megatron takes them") {
    const auto p = loop_placed(2, 2, 4);
    const auto s = timed(p, megatron_order(p.graph, 2));
    const auto with = [&](std::vector<std::size_t> layers, std::vector<std::size_t> predicting) {
        const auto settings = to_megatron(p, s, {std::move(layers), {}, std::move(predicting)});
        return settings ? settings->arguments : arguments{{"refused", describe(settings.why())}};
    };
    const auto last = with({2, 2, 2, 1}, {0, 0, 0, 1});
    CHECK(last[1] == std::pair<std::string, std::string>{"--num-layers", "7"});
    CHECK(last[2] == std::pair<std::string, std::string>{"--mtp-num-layers", "1"});
    CHECK(last[3].second == "\"Et*2|t*2|t*2|tmL\"");
    CHECK(with({2, 2, 2, 0}, {0, 0, 2, 0})[3].second == "\"Et*2|t*2|t*2m*2|L\"");
    CHECK(with({2, 2, 2, 2}, {0, 0, 0, 0})[2].second == "\"Et*2|t*2|t*2|t*2L\"");
    CHECK(with({2, 2, 2, 1}, {0, 0, 1, 0})[0].second ==
          "Megatron has layers of multi-token prediction behind all others");
    CHECK(with({2, 2, 0, 0}, {0, 0, 1, 1})[0].second ==
          "Megatron has all layers of multi-token prediction in one stage");
    CHECK(with({2, 2, 0, 0}, {0, 1, 0, 0})[0].second ==
          "Megatron has layers of multi-token prediction in the last stage of a rank");
}

TEST_CASE("several stages on one rank are refused, as Megatron does") {
    const auto p = loop_placed(1, 3, 4);
    const auto settings = to_megatron(p, timed(p, megatron_order(p.graph, 1)));
    REQUIRE_FALSE(settings.has_value());
    CHECK(sample::contains(describe(settings.why()), "pipeline-model-parallel size should be greater than 1"));
    const auto single = loop_placed(1, 1, 4);
    CHECK(to_megatron(single, timed(single, megatron_order(single.graph, 1))).has_value());
}

TEST_CASE("what Megatron lacks is said") {
    const auto p = sample::two_ranks();
    const auto s = sample::by_hand(p);
    const auto settings = to_megatron(p, s, {{}, {"core_attn", "mlp_norm"}});
    REQUIRE(settings.has_value());
    CHECK(settings->arguments == arguments{{"--pipeline-model-parallel-size", "2"},
                                           {"--fine-grained-activation-offloading", ""},
                                           {"--offload-modules", "core_attn mlp_norm"},
                                           {"--activation-offload-fraction", "0.5"}});
    CHECK(says(*settings, "2 of 4 backwards are split into I and W"));
    CHECK(says(*settings, "the ranks offload 1, 0 of 2 stashes"));
    CHECK_FALSE(says(*settings, "another order"));

    const auto unnamed = to_megatron(p, s);
    REQUIRE(unnamed.has_value());
    CHECK(says(*unnamed, "--offload-modules names them"));

    const auto recomputing = sample::recomputing();
    const auto recomputed = to_megatron(recomputing, sample::recomputing_report(recomputing).schedule);
    REQUIRE(recomputed.has_value());
    CHECK(says(*recomputed, "1 of 4 stashes are recomputed"));
}

TEST_CASE("another order is said, and what Megatron makes of it stays within the memory where it can") {
    auto p = loop_placed(2, 2, 8);
    const auto s = timed(p, megatron_order(p.graph, 2));
    const auto peaks = measure(p, s).peak_memory;
    const auto least = *std::max_element(peaks.begin(), peaks.end());
    const auto everything_first = [&] {
        compute_lanes lanes(2);
        for (const auto kind : {operation_kind::forward, operation_kind::backward})
            for (const rank r : p.graph.all_ranks())
                for (std::size_t lap = 0; lap < 2; ++lap)
                    for (const microbatch m : p.graph.all_microbatches()) {
                        const auto chunk = kind == operation_kind::forward ? lap : 1 - lap;
                        lanes[r].push_back({stage{2 * chunk + r.position()}, kind, m});
                    }
        return interleave(p.graph, lanes);
    }();
    const auto gpipe = timed(p, everything_first);
    for (auto& limit : p.memory_limit)
        limit = least;
    const auto settings = to_megatron(p, gpipe);
    REQUIRE(settings.has_value());
    CHECK(says(*settings, "another order of forwards and backwards"));
    const auto m = measure(p, settings->runs);
    CHECK(*std::max_element(m.peak_memory.begin(), m.peak_memory.end()) <= least);
}

TEST_CASE("microbatches that differ run in Megatron's order; slices and other edges are refused") {
    auto p = loop_placed(2, 1, 4);
    std::vector<cost_factors> factors(4);
    factors[1] = {2.0, 3.0, 1.5, 1.0, 1.0};
    p.microbatches.set_factors(factors);
    const auto given = megatron_order(p.graph, 2);
    REQUIRE(given);
    const auto s = simulate(p, *given);
    REQUIRE(s);
    const auto settings = to_megatron(p, *s);
    REQUIRE_MESSAGE(settings, describe(settings.why()));
    CHECK(settings->differences.empty());
    CHECK(last_end(settings->runs) == last_end(*s));
    p.microbatches.set_sequences(std::vector{0, 0, 1, 1});
    const auto sliced = to_megatron(p, *s);
    REQUIRE_FALSE(sliced);
    CHECK(sliced.why().sentence ==
          std::string_view{"Megatron doesn't cut sequences into slices that pass the pipeline one by one"});
    const auto graph = sample::branching();
    const auto branched = to_megatron(graph, sample::branching_report(graph).schedule);
    REQUIRE_FALSE(branched);
    CHECK(branched.why().sentence == std::string_view{"Megatron has stages in a chain; these have other edges"});
}

TEST_CASE("other placements and too few microbatches are refused") {
    per_stage<rank> where(4);
    where[stage{1}] = where[stage{2}] = rank{1};
    auto p = loop_placed(2, 2, 4);
    p.graph = any_graph{2, 4, placement::map<>{where}};
    const auto refused = to_megatron(p, schedule{p.graph, {}});
    REQUIRE_FALSE(refused.has_value());
    CHECK(sample::contains(describe(refused.why()), "this placement is another"));
    const auto few = loop_placed(3, 2, 2);
    const auto too_few = to_megatron(few, timed(few, megatron_order(few.graph, 1)));
    REQUIRE_FALSE(too_few.has_value());
    CHECK(describe(too_few.why()) == "Megatron interleaves groups of at least 3 microbatches, and there are 2");
}

TEST_CASE("the text is settings and comments") {
    const auto p = loop_placed(2, 1, 4);
    const auto s = timed(p, megatron_order(p.graph, 2));
    const auto settings = to_megatron(p, s);
    REQUIRE(settings.has_value());
    CHECK(to_text(p, s, *settings) ==
          "# 4 microbatches: --global-batch-size is so many times --micro-batch-size and the data-parallel size\n"
          "--pipeline-model-parallel-size 2\n"
          "# the plan: 25 ms, at most 4 GB on a rank\n"
          "# Megatron's schedule by these costs, with everything kept: 25 ms, at most 4 GB on a rank\n"
          "# nothing of the plan is left out\n");
}
