#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or can't search") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

TEST_CASE("a plan for noise says what it costs and brings") {
    const auto problem = data("two-ranks.json");
    const auto text = run({"plan", problem, "--noise", "0.1", "--percentile", "90", "--threads", "1"});
    CHECK_MESSAGE((text.status == 0 && text.err.empty()), text);
    CHECK_MESSAGE(contains(text.out, "with noise: percentile 90 is "), text);
    const auto result = run({"plan", problem, "--noise", "0.1", "--json", "--threads", "1"});
    REQUIRE_MESSAGE(result.status == 0, result);
    const auto robust = json::parse(result.out)["robust"];
    CHECK(robust["percentile"] <= robust["nominal_percentile"]);
    CHECK(robust["mean"] < robust["percentile"]);
    CHECK_FALSE(json::parse(run({"plan", problem, "--json", "--threads", "1"}).out).contains("robust"));
}

TEST_CASE("noise that makes no sense is refused") {
    const auto problem = data("two-ranks.json");
    const auto refused = [&](std::vector<std::string> options, const std::vector<std::string>& parts) {
        options.insert(options.begin(), {"plan", problem});
        const auto result = run(options);
        CHECK_MESSAGE((result.status == 2 && result.says(parts)), result);
    };
    refused({"--noise", "-0.1"}, {"--noise"});
    refused({"--percentile", "95"}, {"--percentile", "--noise"});
    refused({"--noise", "0.1", "--percentile", "101"}, {"percentile", "at most 100"});
    refused({"--noise", "0.1", "--method", "1f1b"}, {"--noise", "--method"});
}
#endif
