#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"
#include "optpipe/io/json.hpp"
#include "oracle/random_cases.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string>

using namespace program;
using nlohmann::json;

namespace {

const char* const names[] = {"two-ranks.json", "v-three-ranks.json", "chunks.json", "whole-backward.json"};

} // namespace

TEST_CASE("the plan is shown with its proven bound") {
    const auto result = run({"plan", example("llama2-7b-4k-p4.json"), "--gap", "0.2"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK(contains(result.out, "rank 3"));
    CHECK(contains(result.out, "0F0"));
    const auto verdict = result.out.substr(result.out.find("\nllama2-7b-4k-p4: ") + 1);
    const auto first_line = verdict.substr(0, verdict.find('\n'));
    CHECK_MESSAGE((contains(first_line, " ms, ") && contains(first_line, "lower bound ")), result);
    CHECK_MESSAGE((contains(first_line, "; peak ") && first_line.size() < 150), result);
    CHECK_MESSAGE(contains(verdict, "\nothers: "), result);
    // One line for each reason, with units.
    CHECK_MESSAGE(
        contains(verdict, "\nno schedule by gpipe: rank 3 needs 173.946 GB of memory, its limit is 35.009 GB\n"),
        result);
    CHECK_MESSAGE(contains(verdict, "\nno schedule by 1f1b, interleaved, zb-h1, gis, gis-h: rank 0 needs 42.9497 GB"),
                  result);
}

TEST_CASE("the text keeps to the width that it is given") {
    for (const std::size_t width : {60U, 90U, 200U}) {
        ::setenv("COLUMNS", std::to_string(width).c_str(), 1);
        const auto result = run({"plan", data("problems/unit-p4-m8-mem075.json"), "--time-limit", "0"});
        ::unsetenv("COLUMNS");
        REQUIRE_MESSAGE(result.status == 0, result);
        std::istringstream lines{result.out};
        std::size_t longest = 0;
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with("rank ")) longest = std::max(longest, line.size());
        CHECK_MESSAGE((longest <= width && longest > 50), result);
        CHECK(contains(result.out, "shown in ") == (width < 150));
    }
}

TEST_CASE("what plan writes passes check, for every method that has a schedule, and the default is as good as any") {
    const workplace place;
    for (std::size_t i = 0; i < std::size(names); i += oracle::stride(3)) {
        const std::string name = names[i];
        double best = 0.0;
        for (const std::string method : {"best", "gpipe", "1f1b", "adaptive"}) {
            const auto planned = run({"plan", data(name), "--method", method, "--out", place / "s.json"});
            INFO(name << ", " << method << ": " << planned);
            if (planned.status == 3) {
                CHECK(planned.says({name, method}));
                CHECK(!place.has("s.json"));
                continue;
            }
            REQUIRE(planned.status == 0);
            const auto document = optpipe::read_schedule(place / "s.json");
            CHECK((document.method == method || method == "best"));
            CHECK(document.bound.has_value());
            const auto checked = run({"check", data(name), place / "s.json"});
            CHECK_MESSAGE((checked.status == 0 && checked.out.starts_with("valid objective=")), checked);
            const auto objective = json::parse(place.read("s.json"))["objective"].get<double>();
            if (method == "best") best = objective;
            CHECK(best <= objective);
            fs::remove(place / "s.json");
        }
        CHECK(best > 0.0);
    }
}

TEST_CASE("a quiet plan only writes its files, and all of them read back") {
    const workplace place;
    const auto result = run({"plan", data("chunks.json"), "--quiet", "--time-limit", "0.2", "--out", place / "s.json",
                             "--svg", place / "s.svg", "--trace", place / "s.trace"});
    CHECK_MESSAGE((result.status == 0 && result.out.empty() && result.err.empty()), result);
    CHECK(place.files().size() == 3);
    CHECK(optpipe::read_schedule(place / "s.json").problem_name == "chunks");
    CHECK(place.read("s.svg").starts_with("<svg"));
    CHECK(contains(place.read("s.svg"), "</svg>"));
    const auto trace = json::parse(place.read("s.trace"));
    CHECK(trace["traceEvents"].size() > 32);
}

TEST_CASE("an existing file is replaced and keeps its permissions") {
    const workplace place;
    place.write("s.json", "old");
    fs::permissions(place / "s.json", fs::perms::owner_read | fs::perms::owner_write);
    CHECK(run({"plan", data("chunks.json"), "--quiet", "--time-limit", "0.2", "--out", place / "s.json"}).status == 0);
    CHECK(run({"check", data("chunks.json"), place / "s.json"}).status == 0);
    CHECK(fs::status(place / "s.json").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("the same seed gives the same schedule, to the byte") {
    const workplace place;
    const auto plan = [&](const std::string& file, const std::string& seed) {
        const auto problem = data("problems/offload-p3-m6-mem075-k050.json"); // each seed finds another optimum
        REQUIRE(run({"plan", problem, "--seed", seed, "--quiet", "--out", place / file}).status == 0);
        return place.read(file);
    };
    const auto first = plan("a.json", "7");
    CHECK(first == plan("b.json", "7"));
    // Tests the option itself: if it were ignored, no seed would change anything.
    bool differs = false;
    for (const auto* seed : {"1", "2", "3", "4", "5", "6"})
        differs = differs || plan("c.json", seed) != first;
    CHECK(differs);
}

TEST_CASE("a time limit is kept") {
    const auto result = run({"plan", example("llama2-7b-4k-p4.json"), "--time-limit", "0.2"});
    CHECK_MESSAGE(result.status == 0, result);
    CHECK(result.out.find("time limit") != std::string::npos);
    CHECK(run({"plan", data("chunks.json"), "--time-limit", "0", "--quiet"}).status == 0);
}

TEST_CASE("a problem without a schedule is an answer: which rank, how much it needs, status 3") {
    const workplace place;
    struct {
        std::string file;
        std::string method;
        std::vector<std::string> says;
    } const cases[] = {
        {data("two-ranks.json"), "gpipe", {"gpipe", "rank 0 needs 4 GB of memory", "limit is 1.5 GB"}},
        {data("two-ranks.json"), "1f1b", {"1f1b", "rank 0 needs 2 GB of memory", "limit is 1.5 GB"}},
        {data("chunks.json"), "1f1b", {"1f1b", "one stage per rank"}},
        {data("small-host.json"), "best", {"rank 0 needs 4 GB of memory", "limit is 2.5 GB"}},
        {data("small-host.json"), "adaptive", {"no schedule exists", "rank 0 needs 4 GB of memory", "limit is 2.5 GB"}},
    };
    for (const auto& [file, method, says] : cases) {
        const auto result = run({"plan", file, "--method", method, "--out", place / "s.json"});
        CHECK_MESSAGE((result.status == 3 && result.out.empty() && result.says(says) && result.says({file})), result);
        CHECK(place.files().empty());
    }
}

TEST_CASE("a method may come with parameters") {
    const workplace place;
    const auto problem = data("problems/po-d4-v4-m16-k100-mem5.json");
    const auto smaller = run({"plan", problem, "--method", "gis:g=2", "--quiet"});
    const auto larger = run({"plan", problem, "--method", "gis:g=4", "--quiet"});
    CHECK_MESSAGE((smaller.status == 3 && smaller.says({"gis", "needs 10"})), smaller);
    CHECK_MESSAGE((larger.status == 3 && larger.says({"gis", "needs 16"})), larger);
    struct {
        const char* method;
        const char* sentence;
    } const refused[] = {
        {"gis:x=3", "method gis: x=3: its parameters are g"},
        {"gis:g=", "method gis: g=: must be a whole number, as in g=3"},
        {"gis:g=-1", "method gis: g=-1: must be a whole number"},
        {"gis:g=1.5", "method gis: g=1.5: must be a whole number"},
        {"gis:g=99999999999999999999", "must be a whole number"},
        {"gis:", "its parameters are g"},
        {"po:chunks=2,", "its parameters are chunks, g"},
        {"gpipe:g=1", "method gpipe: g=1: it has no parameters"},
        {"best:g=1", "there is no \"best:g=1\""},
    };
    for (const auto& each : refused) {
        const auto result = run({"plan", problem, "--method", each.method, "--out", place / "s.json"});
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says({each.sentence})), each.method
                                                                                                      << '\n'
                                                                                                      << result);
    }
    CHECK(place.files().empty());
    const auto two = run({"plan", problem, "--method", "po:chunks=4,g=1", "--quiet", "--out", place / "s.json"});
    CHECK_MESSAGE(two.status == 0, two);
}

#endif
