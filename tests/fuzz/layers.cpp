#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "fuzz/mutate.hpp"
#include "optpipe/io/json_layers.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/pipeline.hpp"

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

std::optional<partition_problem> parsed(const std::string& text) {
    try {
        return parse_layers(text, "mutated");
    } catch (const input_error& e) {
        CHECK(!e.violations().empty());
        CHECK(std::string{e.what()}.find('\n') == std::string::npos);
        return std::nullopt;
    }
}

} // namespace

TEST_CASE("mutated layers are refused, or can be divided") {
    std::size_t accepted = 0;
    const auto count = fuzz::iterations(4000);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        fuzz::mutator mutator{seed};
        const auto text = mutator.mutate(layers_text);
        INFO("seed " << seed << ", text:\n" << text);
        const auto p = parsed(text);
        if (!p) continue;
        ++accepted;
        CHECK(validate(*p).empty());
        const auto written = layers_to_json(*p);
        CHECK(layers_to_json(parse_layers(written, "again")) == written);
        for (const auto& pipeline : p->pipelines) {
            std::vector<std::size_t> counts(pipeline.graph.stages(), 1);
            counts.back() = p->layers.size() - counts.size() + 1;
            for (const auto& v : validate(with_layers(pipeline, p->layers, counts)))
                CHECK_MESSAGE(v.place.starts_with("memory_limit"), v.text());
        }
    }
    MESSAGE(accepted << " of " << count << " were accepted");
    if (count < 100) return;
    CHECK(accepted > count / 10);
    CHECK(accepted < count);
}

#endif
