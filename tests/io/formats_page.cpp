#include "optpipe/io/file.hpp"
#include "optpipe/io/json.hpp"
#include "optpipe/pipeline/layer_costs.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

const std::string source = OPTPIPE_SOURCE_DIR;

/// Reads a document according to its format, and returns the format's name.
std::string read_document(const std::string& text) {
    const auto at = text.find("optpipe.");
    const auto format = text.substr(at, text.find('/', at) - at);
    if (format == "optpipe.problem") static_cast<void>(parse_problem(text, "page"));
    if (format == "optpipe.layers") static_cast<void>(parse_layers(text, "page"));
    if (format == "optpipe.schedule") static_cast<void>(parse_schedule(text, "page"));
    return format;
}

/// Checks that the layout of published layers has these numbers of layers on each rank: all stages take equally long.
void check_layout(const std::string& name, const std::vector<std::size_t>& counts) {
    CAPTURE(name);
    const auto layers = read_layers(source + "/bench/published/" + name + ".layers.json");
    const auto layout = read_problem(source + "/bench/published/" + name + ".layout.json");
    const auto made = with_layers(layers.pipelines.front(), layers.layers, counts);
    REQUIRE(made.graph.stages() == layout.graph.stages());
    CHECK(made.memory_limit[rank{0}] == layout.memory_limit[rank{0}]);
    CHECK(made.split_backward == layout.split_backward);
    for (const auto s : layout.graph.all_stages()) {
        CHECK(made.costs[s].forward.value() == doctest::Approx(layout.costs[s].forward.value()));
        CHECK(made.costs[s].backward().value() == doctest::Approx(layout.costs[s].backward().value()));
        CHECK(made.costs[s].activation.value() == doctest::Approx(layout.costs[s].activation.value()));
    }
}

} // namespace

TEST_CASE("the documents on the page of the formats can be read") {
    const auto page = read_file(source + "/include/optpipe/io/README.md", std::size_t{1} << 20U);
    const std::string begin = "```json\n";
    std::set<std::string> formats;
    for (auto at = page.find(begin); at != std::string::npos; at = page.find(begin, at + 1)) {
        const auto first = at + begin.size();
        const auto text = page.substr(first, page.find("```", first) - first);
        CAPTURE(text);
        std::string format;
        CHECK_NOTHROW(format = read_document(text));
        formats.insert(format);
    }
    CHECK(formats.contains("optpipe.problem"));
    CHECK(formats.contains("optpipe.layers"));
    CHECK(formats.contains("optpipe.schedule"));
}

TEST_CASE("the layers among the examples can be read") {
    const auto p = read_layers(source + "/examples/data/llama3-8b-p8.layers.json");
    CHECK(p.layers.size() == 32);
    CHECK(p.pipelines.size() == 3);
}

TEST_CASE("layouts of published layers hold those layers") {
    check_layout("nemotron-h-p4", {7, 7, 7, 8});
    check_layout("deepseek-v4-p8", {4, 5, 6, 6, 6, 6, 6, 5});
}
