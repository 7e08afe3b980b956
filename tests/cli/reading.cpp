// include/optpipe/schedule/README.md shows the program's real output.
#include "cli/program.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

/// Each command of the first code block, and the output that the document shows for it.
std::vector<std::pair<std::string, std::string>> commands_of(const std::string& document) {
    std::vector<std::pair<std::string, std::string>> found;
    std::istringstream lines{document};
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) {
            if (inside) break;
            inside = true;
        } else if (inside && line.starts_with("$ ")) {
            found.emplace_back(line.substr(2), "");
        } else if (inside) {
            found.back().second += line + "\n";
        }
    }
    return found;
}

TEST_CASE("the plan that the document explains is the one that the program makes") {
    const program::workplace place;
    const auto commands = commands_of(program::content_of(OPTPIPE_SOURCE_DIR "/include/optpipe/schedule/README.md"));
    REQUIRE(commands.size() == 3);
    for (const auto& each : commands) {
        const auto& command = each.first;
        CAPTURE(command);
        std::vector<std::string> words;
        std::istringstream text{command};
        for (std::string word; text >> word;) {
            if (word == "plan.json") word = place / word;
            if (word.starts_with("examples/")) word = OPTPIPE_SOURCE_DIR "/" + word;
            words.push_back(word);
        }
        REQUIRE(words.front() == "optpipe");
        words.erase(words.begin());
        const auto result = program::run(words);
        CHECK(result.status == 0);
        CHECK(result.out == each.second);
    }
}

} // namespace
