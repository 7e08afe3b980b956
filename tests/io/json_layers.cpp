#include "optpipe/io/json_layers.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/model_shapes.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

const std::string layer = R"("forward": 1, "backward_input": 2, "backward_weight": 0.5, "activation": 4)";

/// A file of two ranks and four microbatches with these layers and additional fields.
std::string file(const std::string& layers, const std::string& more = "") {
    return R"({ "format": "optpipe.layers/1", "ranks": 2, "microbatches": 4, )" + more + R"("layers": [)" + layers +
           "] }";
}
std::string complaints(const std::string& text) {
    try {
        static_cast<void>(parse_layers(text, "m.json"));
    } catch (const input_error& e) {
        return e.what();
    }
    return "nothing";
}
std::vector<std::size_t> ranks_of(const problem& p) {
    std::vector<std::size_t> ranks;
    for (const stage s : p.graph.all_stages())
        ranks.push_back(p.rank_of(s).position());
    return ranks;
}

} // namespace

TEST_CASE("layers, each as often as its count says, and all usual placements that they are enough for") {
    const auto p =
        parse_layers(file("{ \"count\": 3, \"static_memory\": 7, " + layer + " }, { \"offload\": 3, \"reload\": 3.5, " +
                              layer + R"(, "weight_stash": 1, "note": "with the output layer" })",
                          R"("memory_limit": [30, null], "p2p": 0.25, "objective": "span", )"),
                     "models/small.json");
    REQUIRE(p.layers.size() == 4);
    CHECK(p.layers[0] == p.layers[2]);
    CHECK(p.layers[0].static_memory == memory_size{7});
    CHECK(p.layers[0].costs.weight_stash == memory_size{2});
    CHECK(p.layers[3].static_memory == memory_size{});
    CHECK(p.layers[3].costs.weight_stash == memory_size{1});
    REQUIRE(p.layers[3].costs.transfer);
    CHECK(p.layers[3].costs.transfer->reload == duration{3.5});
    REQUIRE(p.pipelines.size() == 3);
    CHECK(ranks_of(p.pipelines[0]) == std::vector<std::size_t>{0, 1});
    CHECK(ranks_of(p.pipelines[1]) == std::vector<std::size_t>{0, 1, 0, 1});
    CHECK(ranks_of(p.pipelines[2]) == std::vector<std::size_t>{0, 1, 1, 0});
    for (const auto& each : p.pipelines) {
        CHECK(each.graph.microbatches() == 4);
        CHECK(each.name == "small");
        CHECK(each.memory_limit[rank{0}] == memory_size{30});
        CHECK(each.memory_limit[rank{1}].is_unlimited());
        CHECK(each.p2p(rank{0}, rank{1}) == duration{0.25});
        CHECK(each.objective == objective_kind::span);
    }
    CHECK(parse_layers(file("{ \"count\": 3, " + layer + " }"), "m.json").pipelines.size() == 1);
}

TEST_CASE("placements by name, and by the rank of each stage") {
    const auto p = parse_layers(
        file("{ \"count\": 8, " + layer + " }", R"("placements": ["linear", "v", "loop", "loop:4", [1, 0, 0]], )"),
        "m.json");
    REQUIRE(p.pipelines.size() == 5);
    CHECK(ranks_of(p.pipelines[0]) == std::vector<std::size_t>{0, 1});
    CHECK(ranks_of(p.pipelines[1]) == std::vector<std::size_t>{0, 1, 1, 0});
    CHECK(ranks_of(p.pipelines[2]) == std::vector<std::size_t>{0, 1, 0, 1});
    CHECK(ranks_of(p.pipelines[3]) == std::vector<std::size_t>{0, 1, 0, 1, 0, 1, 0, 1});
    CHECK(ranks_of(p.pipelines[4]) == std::vector<std::size_t>{1, 0, 0});
}

TEST_CASE("what is written reads back as the same") {
    auto model = model_shapes::llama3_8b;
    model.compute_rate = 400;
    model.host_link_rate = 20;
    partition_problem p{layer_costs_of(model, model.layers, storage::keep | storage::offload | storage::selective), {}};
    problem pipeline{to_any_graph(graph<4, 16>{}), per_stage<stage_costs>(4)};
    pipeline.name = "llama";
    pipeline.time_unit = "ms";
    pipeline.memory_unit = "GB";
    pipeline.memory_limit[rank{2}] = memory_size{40};
    pipeline.transfer.share_link(rank{0}, rank{1});
    p.pipelines = usual_placements(pipeline, p.layers.size());
    const auto text = layers_to_json(p);
    const auto read = parse_layers(text, "m.json");
    CHECK(layers_to_json(read) == text);
    CHECK(read.layers == p.layers);
    REQUIRE(read.pipelines.size() == 3);
    for (std::size_t i = 0; i < 3; ++i)
        CHECK(read.pipelines[i].graph == p.pipelines[i].graph);
    CHECK(text.find("\"count\": 30") != std::string::npos); // all except the first and the last
}

TEST_CASE("bad input is refused with field and reason") {
    const auto one = "{ " + layer + " }";
    const auto two = one + ", " + one;
    const std::vector<std::pair<std::string, std::string>> cases{
        {file(""), "layers: must hold at least one layer"},
        {file(one), "ranks: are 2, there are 1 layers"},
        {file("1, " + one), "layers[0]: must be an object, is 1"},
        {file(one + ", { \"count\": 0, " + layer + " }"), "layers[1].count: must be at least 1"},
        {file("{ \"count\": 5000, " + layer + " }"), "layers[0].count: must be at most 4096, is 5000"},
        {file("{ \"count\": 4000, " + layer + " }, { \"count\": 97, " + layer + " }"), "layers: are more than 4096"},
        // Each is valid by itself, but not all together.
        {file("{ \"count\": 3, \"forward\": 5e59, \"backward_input\": 1, \"backward_weight\": 1, \"activation\": 1 }"),
         "m.json: layers: together must be at most 1e+60"},
        {file("{ \"count\": 3, \"static_memory\": 5e59, " + layer + " }"),
         "m.json: layers: together must be at most 1e+60"},
        {file("{ \"static_memory\": -1, " + layer + " }, " + one), "layers[0].static_memory: must not be negative"},
        {file(one + R"(, { "forward": 0, "backward_input": 1, "backward_weight": 1, "activation": 1 })"),
         "layers[1].forward: must be above 0"},
        {file(one + R"(, { "forward": 1, "backward_input": 1, "backward_weight": 1 })"),
         "layers[1].activation: is missing"},
        {file(one + ", { \"offload\": 1, " + layer + " }"), "layers[1].reload: is missing, but offload is given"},
        {file(one + ", { " + layer + R"(, "storage": [ { "name": "a", "held": 5 } ] })"),
         "layers[1].storage[0].held: 5 is above the stage's activation, 4"},
        {file(one + ", { \"rank\": 0, " + layer + " }"), "layers[1].rank: is no field of this format"},
        {file(two, R"("stages": [], )"), "stages: belongs to optpipe.problem"},
        {file(two, R"("placement": "v", )"), "placement: is no field of this format; did you mean placements?"},
        {file(two, R"("placements": [], )"), "placements: must hold at least one"},
        {file(two, R"("placements": "v", )"), "placements: must be a list"},
        {file(two, R"("placements": ["linear", "v"], )"), "placements[1]: has 4 stages, there are 2 layers"},
        {file(two, R"("placements": ["loop:100000000"], )"), "placements[0]: must be"},
        {file(two, R"("placements": ["loop:4096"], )"), "placements[0]: has 8192 stages"},
        {file(two, R"("placements": ["loop:0"], )"), "placements[0]: must be"},
        {file(two, R"("placements": ["loop:x"], )"), "placements[0]: must be"},
        {file(two, R"("placements": ["w"], )"), "placements[0]: must be \"linear\", \"loop\", \"loop:N\", \"v\""},
        {file(two, R"("placements": [[0, 2]], )"), "placements[0][1]: is 2, there are 2 ranks"},
        {file(two, R"("placements": [[0, 0]], )"), "placements[0]: rank 1 holds no stage"},
        {file(two, R"("placements": [[]], )"), "placements[0]: rank 0 holds no stage"},
        {file(two, R"("placements": [[0, 1, 0]], )"), "placements[0]: has 3 stages, there are 2 layers"},
        {file(two, R"("p2p": -1, )"), "p2p: must not be negative"},
        {file(two, R"("transfer": { "engines": 3 }, )"), "transfer.engines: must be 1 or 2"},
        {file(two, R"("memory_limit": [1], )"), "memory_limit: has 1 entries, there are 2 ranks"},
        {R"({ "format": "optpipe.problem/2" })", "must be \"optpipe.layers/1\""},
        {R"({ "format": "optpipe.layers/1", "ranks": 0, "microbatches": 0, "layers": [)" + two + "] }",
         "ranks: must be at least 1"},
        {R"({ "format": "optpipe.layers/1", "ranks": 1, "microbatches": 0, "layers": [)" + two + "] }",
         "microbatches: must be at least 1"},
        {R"({ "format": "optpipe.layers/1", "ranks": 1, "microbatches": 1048576, "layers": [)" + two +
             R"(], "placements": [[0, 0]] })",
         "microbatches: times stages must be at most 1048576"},
        {"[]", "must be an object"},
        {"{", "m.json"}};
    for (const auto& [text, complaint] : cases) {
        CAPTURE(text);
        CHECK_MESSAGE(complaints(text).find(complaint) != std::string::npos, complaints(text));
    }
}
