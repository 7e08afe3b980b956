#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "fuzz/mutate.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/io/json_layers.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/pipeline.hpp"
#include "optpipe/pipeline/layer_divisions.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

const std::string layers_text = R"({ "format": "optpipe.layers/1", "name": "m", "ranks": 2, "microbatches": 3,
  "placements": ["linear", "loop", "v", [0, 1, 1]], "memory_limit": [20, null], "p2p": 0.5, "host_memory_limit": 9,
  "transfer": { "engines": 2, "links": [[0, 1]], "duplex": "half" }, "objective": "span", "split_backward": true,
  "layers": [
    { "forward": 1, "backward_input": 2, "backward_weight": 1, "activation": 1, "static_memory": 2,
      "storage": [ { "name": "keep" }, { "name": "full", "held": 0.25, "recompute": 1 } ] },
    { "count": 4, "forward": 1, "backward_input": 2, "backward_weight": 1, "activation": 1, "weight_stash": 0.75,
      "offload": 2, "reload": 2 } ] })";

const std::string graph_text = R"({ "format": "optpipe.layers/2", "ranks": 2, "placements": ["linear", "v"], "p2p": 0.5,
  "microbatches": [ { "sequence": 1, "scale": 0.5, "forward": 2 }, { "sequence": 1, "message": 0.5 }, { "memory": 2 } ],
  "memory_limit": [20, 16], "rank_speed": [1, 0.5], "together": [[0, 1], [3, 4]],
  "pins": [ { "layer": 2, "rank": 0 }, { "layer": 5, "stage": 1 } ],
  "edges": [ { "from": 0, "to": 1 }, { "from": 1, "to": 3, "size": 0.5, "held": 0.25 }, { "from": 2, "to": 3 },
             { "from": 3, "to": 4 }, { "from": 2, "to": 5, "held": 1 }, { "from": 4, "to": 6 } ],
  "layers": [
    { "count": 2, "forward": 3, "activation": 1, "static_memory": 1, "backward": "none" },
    { "forward": 1, "backward_input": 1, "activation": 0.5, "backward": "input", "kv": 0.25,
      "storage": [ { "name": "keep" }, { "name": "full", "held": 0.25, "recompute": 1 } ] },
    { "count": 4, "forward": 1, "backward_input": 2, "backward_weight": 1, "activation": 1, "kv": 0.5,
      "storage": [ { "name": "keep" }, { "name": "full", "held": 0.5, "recompute": 0.5 } ] } ] })";

std::optional<partition_problem> parsed(const std::string& text) {
    try {
        return parse_layers(text, "mutated");
    } catch (const input_error& e) {
        CHECK(!e.violations().empty());
        CHECK(std::string{e.what()}.find('\n') == std::string::npos);
        return std::nullopt;
    }
}

/// The first division of each pipeline is a valid problem, but for its memory.
void check_first_divisions(const partition_problem& p) {
    const auto cuts = detail::cuts_of(p);
    for (std::size_t i = 0; i < p.pipelines.size(); ++i) {
        const detail::layer_divisions divisions{cuts, p.pins, p.pipelines[i].graph};
        bool is_first = true;
        const stop_when enough{[&] { return !is_first; }};
        divisions.for_each(enough, [&](const auto& each) {
            is_first = false;
            for (const auto& v : validate(with_layers(p, i, divisions.stages_of(each))))
                CHECK_MESSAGE(v.place.starts_with("memory_limit"), v.text());
        });
    }
}

} // namespace

TEST_CASE("mutated layers are refused, or can be divided") {
    std::size_t accepted = 0;
    const auto count = fuzz::iterations(4000);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        fuzz::mutator mutator{seed};
        const auto text = mutator.mutate(i % 2 == 0 ? layers_text : graph_text);
        INFO("seed " << seed << ", text:\n" << text);
        const auto p = parsed(text);
        if (!p) continue;
        ++accepted;
        CHECK(validate(*p).empty());
        const auto written = layers_to_json(*p);
        CHECK(layers_to_json(parse_layers(written, "again")) == written);
        check_first_divisions(*p);
    }
    MESSAGE(accepted << " of " << count << " were accepted");
    if (count < 100) return;
    CHECK(accepted > count / 10);
    CHECK(accepted < count);
}

#endif
