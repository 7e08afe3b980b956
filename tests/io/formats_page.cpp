#include "optpipe/io/file.hpp"
#include "optpipe/io/json.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>

using namespace optpipe;

namespace {

const std::string source = OPTPIPE_SOURCE_DIR;

/// Reads a document as what its format says; the name of that.
std::string read_document(const std::string& text) {
    const auto at = text.find("optpipe.");
    const auto format = text.substr(at, text.find('/', at) - at);
    if (format == "optpipe.problem") static_cast<void>(parse_problem(text, "page"));
    if (format == "optpipe.layers") static_cast<void>(parse_layers(text, "page"));
    if (format == "optpipe.schedule") static_cast<void>(parse_schedule(text, "page"));
    return format;
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
