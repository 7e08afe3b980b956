#include "optpipe/io/json_layers.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_graph.hpp"
#include "optpipe/pipeline/layer_pairs.hpp"
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
/// The same for version 2, which has edges, pins and more.
std::string graph_file(const std::string& layers, const std::string& more = "") {
    auto text = file(layers, more);
    text.replace(text.find("layers/1"), 8, "layers/2");
    return text;
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

TEST_CASE("edges, pins, layers that belong together, speeds, frozen layers and lists of microbatches") {
    const auto text =
        graph_file(R"({ "backward": "none", "forward": 3, "activation": 1 }, { "count": 3, "kv": 0.5, )" + layer + " }",
                   R"("edges": [ { "from": 0, "to": 2, "size": 0.5, "held": 2 }, { "from": 1, "to": 2 },
            { "from": 2, "to": 3 } ], "pins": [ { "layer": 3, "rank": 0 }, { "layer": 0, "stage": 0 } ],
        "together": [ [0, 1] ], "rank_speed": [1, 0.5], "placements": ["v", [0, 1, 0]], )");
    auto slices = text;
    const std::string count = R"("microbatches": 4)";
    slices.replace(slices.find(count), count.size(),
                   R"("microbatches": [ { "sequence": 7 }, { "sequence": 7, "forward": 1.5, "scale": 0.5 } ])");
    for (const auto& each : {text, slices}) {
        const auto p = parse_layers(each, "m.json");
        CHECK(p.layers[0].costs.gradients == gradient_kind::none);
        CHECK(p.layers[3].costs.kv == memory_size{0.5});
        REQUIRE(p.edges);
        CHECK(*p.edges == std::vector<layer_edge>{{0, 2, 0.5, memory_size{2}}, {1, 2}, {2, 3}});
        CHECK(p.pins == std::vector<layer_pin>{{3, rank{0}}, {0, stage{0}}});
        CHECK(p.together == std::vector<std::vector<std::size_t>>{{0, 1}});
        CHECK(p.rank_speed == std::vector<double>{1.0, 0.5});
        CHECK(p.pipelines.size() == 2);
        CHECK(p.pipelines[1].microbatches.has_slices() == (each == slices));
        const auto written = layers_to_json(p);
        CHECK(written.find("optpipe.layers/2") != std::string::npos);
        const auto read = parse_layers(written, "m.json");
        CHECK(layers_to_json(read) == written);
        CHECK(read.layers == p.layers);
        CHECK((read.edges == p.edges && read.pins == p.pins && read.together == p.together));
        CHECK(read.rank_speed == p.rank_speed);
        CHECK(read.pipelines[1].microbatches == p.pipelines[1].microbatches);
    }
    // Each of the additions alone belongs to version 2; without any, version 1 is written.
    const auto two = "{ \"count\": 2, " + layer + " }";
    for (const std::string more :
         {R"("edges": [], )", R"("pins": [ { "layer": 0, "rank": 0 } ], )", R"("rank_speed": [2, 1], )"})
        CHECK(layers_to_json(parse_layers(graph_file(two, more), "m")).find("optpipe.layers/2") != std::string::npos);
    CHECK(layers_to_json(parse_layers(graph_file(two), "m")).find("optpipe.layers/1") != std::string::npos);
}

TEST_CASE("layers that communicate, contention, and measured pairs of kinds of layers") {
    const auto text =
        graph_file(R"({ "count": 2, "forward_comm": 0.25, "backward_comm": 1.5, )" + layer +
                       R"( }, { "kind": "dense", )" + layer + R"( }, { "kind": "experts", )" + layer + " }",
                   R"("contention": 0.125, "layer_pairs": [
            { "forward": "dense", "backward": "experts", "duration": 3 },
            { "forward": "dense", "backward": "experts", "kind": "I", "duration": 2.5 } ], )");
    const auto p = parse_layers(text, "m.json");
    CHECK(p.layers[1].forward_comm == duration{0.25});
    CHECK(p.layers[1].backward_comm == duration{1.5});
    CHECK(p.layers[2].kind == "dense");
    CHECK(p.contention == 0.125);
    CHECK(p.layer_pairs == std::vector<layer_pair>{{"dense", "experts", overlap_kind::backward, duration{3}},
                                                   {"dense", "experts", overlap_kind::backward_input, duration{2.5}}});
    const auto written = layers_to_json(p);
    const auto read = parse_layers(written, "m.json");
    CHECK(layers_to_json(read) == written);
    CHECK(read.layers == p.layers);
    CHECK(read.contention == p.contention);
    CHECK(read.layer_pairs == p.layer_pairs);
    // Communication alone belongs to version 2, too.
    const auto one = R"({ "count": 2, "forward_comm": 0.25, )" + layer + " }";
    CHECK(layers_to_json(parse_layers(graph_file(one), "m")).find("optpipe.layers/2") != std::string::npos);
}

TEST_CASE("bad input of version 2 is refused with field and reason") {
    const auto two = "{ \"count\": 2, " + layer + " }";
    const std::vector<std::pair<std::string, std::string>> cases{
        {file(two, R"("edges": [], )"), "m.json: edges: belongs to optpipe.layers/2"},
        {file(two, R"("rank_speed": [1, 1], )"), "m.json: rank_speed: belongs to optpipe.layers/2"},
        {file(two + R"(, { "kv": 1, )" + layer + " }"), "m.json: layers[1].kv: belongs to optpipe.layers/2"},
        {graph_file(two, R"("stages": [], )"), "m.json: stages: belongs to optpipe.problem; here there are layers"},
        {graph_file(two, R"("pin": [], )"), "m.json: pin: is no field of this format; did you mean pins?"},
        {graph_file(two, R"("edges": 1, )"), "m.json: edges: must be a list, is 1"},
        {graph_file(two, R"("edges": [1], )"), "m.json: edges[0]: must be an object, is 1"},
        {graph_file(two, R"("edges": [ { "from": 0 } ], )"), "m.json: edges[0].to: is missing"},
        {graph_file(two, R"("edges": [ { "from": 0, "to": 1.5 } ], )"),
         "m.json: edges[0].to: must be a whole number, is 1.5"},
        {graph_file(two, R"("edges": [ { "from": 0, "to": 2 } ], )"), "m.json: edges[0].to: is 2, there are 2 layers"},
        {graph_file(two, R"("edges": [ { "from": 0, "to": 1, "held": -1 } ], )"),
         "m.json: edges[0].held: must not be negative, is -1"},
        {graph_file(two, R"("edges": [ { "from": 0, "to": 1, "length": 1 } ], )"),
         "m.json: edges[0].length: is no field of this format"},
        {graph_file(two, R"("pins": [ { "layer": 0 } ], )"),
         "m.json: pins[0].stage: is missing; a pin names it, or a rank"},
        {graph_file(two, R"("pins": [ { "layer": 0, "stage": 0, "rank": 0 } ], )"),
         "m.json: pins[0].rank: excludes stage: a pin names one of the two"},
        {graph_file(two, R"("pins": [ { "rank": 0 } ], )"), "m.json: pins[0].layer: is missing"},
        {graph_file(two, R"("pins": [ { "layer": 0, "rank": 2 } ], )"),
         "m.json: pins[0].rank: is 2, there are 2 ranks"},
        {graph_file(two, R"("pins": [ { "layer": 0, "rank": 1 } ], )"),
         "m.json: pins: leave no way to divide the layers among the stages"},
        {graph_file(two, R"("together": [1], )"), "m.json: together[0]: must be a list, is 1"},
        {graph_file(two, R"("together": [["a", 0]], )"), "m.json: together[0][0]: must be a whole number, is \"a\""},
        {graph_file(two, R"("together": [[0, 1]], )"),
         "m.json: together: leaves no way to divide the layers among the stages"},
        {graph_file(two, R"("rank_speed": 2, )"), "m.json: rank_speed: must be a list, is 2"},
        {graph_file(two, R"("rank_speed": [1], )"), "m.json: rank_speed: has 1 entries, there are 2 ranks"},
        {graph_file(two, R"("rank_speed": [1, null], )"), "m.json: rank_speed[1]: must be a number, is null"},
        {graph_file(two, R"("rank_speed": [1, -1], )"), "m.json: rank_speed[1]: must be above 0, is -1"},
        {file(two, R"("contention": 0, )"), "m.json: contention: belongs to optpipe.layers/2"},
        {file(two, R"("layer_pairs": [], )"), "m.json: layer_pairs: belongs to optpipe.layers/2"},
        {file(two + R"(, { "forward_comm": 1, )" + layer + " }"),
         "m.json: layers[1].forward_comm: belongs to optpipe.layers/2"},
        {graph_file(two + R"(, { "forward_comm": 1.5, )" + layer + " }"),
         "m.json: layers[1].forward_comm: is 1.5, must be at most forward, 1"},
        {graph_file(two + R"(, { "backward_comm": 2.5, )" + layer + " }"),
         "m.json: layers[1].backward_comm: is 2.5, must be at most backward_input, 2"},
        {graph_file(two + R"(, { "backward_comm": "all", )" + layer + " }"),
         "m.json: layers[1].backward_comm: must be a number, is \"all\""},
        {graph_file(two + R"(, { "kind": 1, )" + layer + " }"), "m.json: layers[1].kind: must be a string, is 1"},
        {graph_file(two, R"("contention": -1, )"), "m.json: contention: must not be negative, is -1"},
        {graph_file(two, R"("layer_pairs": [1], )"), "m.json: layer_pairs[0]: must be an object, is 1"},
        {graph_file(two, R"("layer_pairs": [ { "forward": "", "backward": "" } ], )"),
         "m.json: layer_pairs[0].duration: is missing"},
        {graph_file(two, R"("layer_pairs": [ { "forward": "", "duration": 9 } ], )"),
         "m.json: layer_pairs[0].backward: is missing"},
        {graph_file(two, R"("layer_pairs": [ { "forward": "", "backward": "a", "duration": 9 } ], )"),
         "m.json: layer_pairs[0].backward: is the kind of no layer"},
        {graph_file(two, R"("layer_pairs": [ { "forward": "", "backward": "", "kind": "W", "duration": 9 } ], )"),
         "m.json: layer_pairs[0].kind: must be \"B\" or \"I\", is \"W\""},
        {graph_file(two, R"("layer_pairs": [ { "forward": "", "backward": "", "length": 9, "duration": 9 } ], )"),
         "m.json: layer_pairs[0].length: is no field of this format"},
        {graph_file(two + R"(, { "backward": "none", "forward": 1, "activation": 1 })"),
         "m.json: layers: layer 2, which has no backward, must come before layer 0, which has one"},
        {graph_file(R"({ "backward": "none", "forward": 1, "activation": 1, "storage": [ { "name": "keep" } ] }, )" +
                    two),
         "m.json: layers[0].storage: is not for a layer with backward \"none\""},
        {graph_file(R"({ "backward": "some", )" + layer + " }, " + two),
         "m.json: layers[0].backward: must be \"full\", \"input\" or \"none\", is \"some\""},
        {R"({ "format": "optpipe.layers/2", "ranks": 2, "microbatches": [ { "scale": [1, 2] } ], "layers": [)" + two +
             "] }",
         "m.json: microbatches[0].scale: must be a number, as stages aren't known before layers are divided"},
        {R"({ "format": "optpipe.layers/2", "ranks": 2, "microbatches": [ { "scale": 0 } ], "layers": [)" + two + "] }",
         "m.json: microbatches[0].scale: must be above 0, is 0"},
        {R"({ "format": "optpipe.layers/2", "ranks": 2, "microbatches": [], "layers": [)" + two + "] }",
         "m.json: microbatches: must hold at least one microbatch"}};
    for (const auto& [text, complaint] : cases) {
        CAPTURE(text);
        const auto said = complaints(text);
        CHECK_MESSAGE(said.starts_with(complaint), said);
        CHECK_MESSAGE(said.find("; ", complaint.size()) == std::string::npos, said); // nothing else is wrong
    }
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
        {R"({ "format": "optpipe.problem/2" })", "must be \"optpipe.layers/1\" or \"optpipe.layers/2\""},
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
