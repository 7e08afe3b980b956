#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

using namespace program;

namespace {

/// What bash offers for the last of these words, separated by spaces.
std::string offered(const workplace& place, const std::string& words) {
    const auto script = place.write("ask", "source '" + place / "optpipe" + "'\nCOMP_WORDS=(" + words +
                                               ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_optpipe\n"
                                               "echo \"${COMPREPLY[*]}\" >'" +
                                               place / "offered" + "'\n");
    REQUIRE(std::system(("bash '" + script + "'").c_str()) == 0); // NOLINT(concurrency-mt-unsafe): no other thread
    auto text = place.read("offered");
    text.erase(text.find_last_not_of('\n') + 1);
    return text;
}

std::vector<std::string> commands() {
    std::vector<std::string> names;
    std::istringstream lines{run({"help"}).out};
    bool is_list = false;
    for (std::string line; std::getline(lines, line);) {
        if (is_list && line.starts_with("  ")) names.push_back(line.substr(2, line.find(' ', 2) - 2));
        is_list = line == "Subcommands:" || (is_list && line.starts_with("  "));
    }
    return names;
}

} // namespace

TEST_CASE("bash completes commands, their options, and values that have names") {
    if (std::system("bash -c true") != 0) { // NOLINT(concurrency-mt-unsafe): no other thread
        MESSAGE("skipped: there is no bash");
        return;
    }
    const workplace place;
    const auto written = run({"completion", "bash", "--out", place / "optpipe"});
    REQUIRE_MESSAGE((written.status == 0 && written.out.empty() && written.err.empty()), written);
    CHECK(run({"completion", "bash"}).out == place.read("optpipe"));
    CHECK(offered(place, "optpipe che") == "check");
    CHECK(offered(place, "optpipe --v") == "--version");
    CHECK(offered(place, "optpipe plan --no") == "--noise");
    CHECK(offered(place, "optpipe check --no").empty());
    CHECK(offered(place, "optpipe plan --method 1") == "1f1b");
    CHECK(offered(place, "optpipe plan --method = 1") == "1f1b");
    CHECK(offered(place, "optpipe new --placement v") == "v");
    CHECK(offered(place, "optpipe export-csv p.json s.json --format compute_c") == "compute_comms");
    CHECK(offered(place, "optpipe completion f") == "fish");
    CHECK(offered(place, "optpipe help pro") == "profile");
    CHECK(offered(place, "optpipe plan p").empty());      // file names
    CHECK(offered(place, "optpipe draw --prob").empty()); // hidden
    for (const auto& command : commands())
        CHECK(offered(place, "optpipe " + command + " --hel") == "--help");
}

TEST_CASE("the manual and every completion have all commands, and options of them") {
    const auto names = commands();
    REQUIRE(names.size() > 10);
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"man-page"}, {"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}}) {
        const auto text = run(arguments);
        REQUIRE_MESSAGE((text.status == 0 && text.err.empty()), text);
        for (auto name : names) {
            if (const auto dash = name.find('-'); dash != std::string::npos && arguments.back() == "man-page")
                name.insert(dash, "\\");
            CHECK_MESSAGE(contains(text.out, name), arguments.back() << ": " << name);
        }
        for (const auto* option : {"percentile", "unshard", "threads"})
            CHECK_MESSAGE(contains(text.out, option), arguments.back() << ": " << option);
    }
}

TEST_CASE("the manual and every completion have each option that the help of a command lists") {
    std::vector<std::string> texts;
    for (const auto& arguments : std::vector<std::vector<std::string>>{
             {"man-page"}, {"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}})
        texts.push_back(run(arguments).out);
    std::size_t options = 0;
    for (const auto& command : commands()) {
        std::istringstream words{run({"help", command}).out};
        for (std::string word; words >> word;) {
            const auto name = word.substr(0, word.find_first_of(",=[]"));
            const bool is_option = word.starts_with("-h,--") || (name.starts_with("--") && name.size() > 2);
            if (!is_option || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos)
                continue;
            ++options;
            for (const auto& text : texts) {
                auto spelled = name.substr(2); // fish writes options without dashes
                if (&text == &texts.front())
                    for (auto at = spelled.find('-'); at != std::string::npos; at = spelled.find('-', at + 2))
                        spelled.insert(at, "\\");
                CHECK_MESSAGE(contains(text, spelled), command << ": " << name << " in text " << &text - texts.data());
            }
        }
    }
    CHECK(options > 60);
}

TEST_CASE("the manual has a section for each command, and escapes what roff would read as its own") {
    const auto page = run({"man-page"}).out;
    std::istringstream lines{page};
    for (std::string line; std::getline(lines, line);) {
        const bool is_macro = line.starts_with(".") && !line.starts_with(".SH") && !line.starts_with(".SS") &&
                              !line.starts_with(".T") && !line.starts_with(".B") && !line.starts_with(".I") &&
                              line != ".nf" && line != ".fi" && !line.starts_with(".\\\"");
        CHECK_FALSE_MESSAGE(is_macro, line);
    }
    CHECK(contains(page, ".SH NAME\noptpipe \\- "));
    CHECK(contains(page, ".SS \"optpipe check [OPTIONS] PROBLEM PLAN\"\n"));
    CHECK(contains(page, ".SS \"optpipe export\\-mps [OPTIONS] PROBLEM\"\n"));
    CHECK(contains(page, "\\fB\\-\\-time\\-limit\\fR \\fIFLOAT\\fR\n"));
    CHECK(contains(page, "4  stopped by SIGINT"));
}

TEST_CASE("a shell without a script is refused with those that have one") {
    const auto result = run({"completion", "tcsh"});
    CHECK_MESSAGE((result.status == 2 && result.says({"SHELL", "tcsh", "bash", "zsh", "fish"})), result);
}

#endif
