#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or can't search") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

using csv_row = std::vector<std::string>;

/// The rows of a CSV text without line breaks in its cells.
std::vector<csv_row> rows_of(const std::string& text) {
    std::vector<csv_row> rows;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        csv_row row(1);
        bool is_quoted = false;
        for (const char c : line) {
            if (c == '"')
                is_quoted = !is_quoted;
            else if (c == ',' && !is_quoted)
                row.emplace_back();
            else
                row.back() += c;
        }
        rows.push_back(row);
    }
    return rows;
}

const std::string tight = data("problems/unit-p4-m8-mem050.json");
const std::string two_ranks = data("two-ranks.json");

} // namespace

TEST_CASE("plan of several problems is a table, and a CSV file") {
    const workplace place;
    const auto result = run({"plan", tight, two_ranks, "--csv", place / "t.csv"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(words_after(tight, result.out).at(0) == "41", result);
    CHECK_MESSAGE(words_after(two_ranks, result.out).at(0) == "152", result);
    const auto rows = rows_of(place.read("t.csv"));
    REQUIRE(rows.size() == 3);
    CHECK(rows[0] == csv_row{"problem", "objective", "bound", "gap", "method", "seconds", "reason"});
    CHECK((rows[1][0] == tight && rows[1][1] == "41"));
    CHECK((rows[2][0] == two_ranks && rows[2][1] == "152"));
    const auto stream = run({"plan", tight, "--csv", "-", "--quiet"});
    CHECK_MESSAGE((stream.status == 0 && rows_of(stream.out).size() == 2), stream);
}

TEST_CASE("plan of several problems by one method says why there is no schedule, and takes --set for all") {
    const auto result = run({"plan", tight, two_ranks, "--method", "gpipe", "--csv", "-", "--quiet"});
    const auto rows = rows_of(result.out);
    REQUIRE_MESSAGE((result.status == 3 && rows.size() == 3), result);
    CHECK_MESSAGE((rows[1][1].empty() && contains(rows[1][6], "gpipe: rank 0 needs 8")), result);
    const auto lifted =
        run({"plan", tight, two_ranks, "--method", "gpipe", "--csv", "-", "--quiet", "--set", "memory_limit=null"});
    CHECK_MESSAGE((lifted.status == 0 && rows_of(lifted.out).at(1).at(1) == "33"), lifted);
}

TEST_CASE("what belongs to one problem is refused for several, before anything is planned") {
    const workplace place;
    for (const auto* option : {"--out", "--svg", "--html", "--trace", "--start"}) {
        const auto result = run({"plan", tight, two_ranks, option, place / "x"});
        CHECK_MESSAGE((result.status == 2 && result.says({option, "one problem"})), result);
    }
    const auto result = run({"plan", tight, two_ranks, "--json"});
    CHECK_MESSAGE((result.status == 2 && result.says({"--json", "one problem"})), result);
    const auto compared = run({"compare", tight, two_ranks, "--json", place / "x"});
    CHECK_MESSAGE((compared.status == 2 && compared.says({"--json", "one problem"})), compared);
    const auto missing = run({"plan", tight, place / "none.json"});
    CHECK_MESSAGE((missing.status == 2 && missing.says({"none.json"})), missing);
    CHECK(place.files().empty());
}

TEST_CASE("compare of several problems has a row of each, and of each method in the CSV file") {
    const workplace place;
    const auto result = run({"compare", tight, two_ranks, "--time-limit", "0.2", "--csv", place / "t.csv"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    const auto words = words_after(two_ranks, result.out);
    CHECK_MESSAGE((words.at(1) == "152" && words.at(2) == "152"), result);
    const auto rows = rows_of(place.read("t.csv"));
    std::size_t with_schedule = 0;
    std::size_t adaptive = 0;
    for (const auto& row : rows) {
        REQUIRE(row.size() == 10);
        if (row[0] == two_ranks && !row[2].empty()) ++with_schedule;
        if (row[1] == "adaptive") ++adaptive;
        CHECK(row[2].empty() == !(row[9].empty() || row[9] == "reason"));
    }
    CHECK_MESSAGE(words.at(3) == std::to_string(with_schedule), result);
    CHECK(adaptive == 2);
    const auto single = run({"compare", two_ranks, "--csv", place / "one.csv"});
    CHECK_MESSAGE((single.status == 0 && contains(single.out, "no schedule of this problem")), single);
    CHECK(rows_of(place.read("one.csv")).size() > 5);
}

TEST_CASE("sweep has a row for each value of a field") {
    const auto result = run({"sweep", two_ranks, "--set", "microbatches=3", "--set", "memory_limit=1:3:1"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    double last = 1e9;
    for (const auto* value : {"1", "2", "3"}) {
        const auto words = words_after(value, result.out);
        REQUIRE_MESSAGE(words.size() == 6, result);
        CHECK_MESSAGE(std::stod(words[0]) <= last, result); // more memory, no longer a step
        last = std::stod(words[0]);
    }
    const auto listed = run({"sweep", tight, "--set", "memory_limit[0]=3,4", "--quiet", "--csv", "-"});
    const auto rows = rows_of(listed.out);
    REQUIRE_MESSAGE((listed.status == 0 && rows.size() == 3), listed);
    CHECK(rows[0] == csv_row{"memory_limit[0]", "by", "objective", "bound", "gap", "method", "seconds", "reason"});
    CHECK((rows[1][0] == "3" && rows[2][0] == "4" && rows[1][1] == "plan"));
}

TEST_CASE("sweep with builders draws what its CSV file has") {
    const workplace place;
    const auto result = run({"sweep", tight, "--set", "memory_limit=2:4:1", "--methods", "gpipe,plan,zb-h1", "--csv",
                             place / "t.csv", "--svg", place / "t.svg"});
    REQUIRE_MESSAGE(result.status == 0, result);
    CHECK_MESSAGE(contains(result.out, "no schedule for any value: gpipe"), result);
    const auto rows = rows_of(place.read("t.csv"));
    REQUIRE(rows.size() == 1 + 3 * 3);
    const auto picture = place.read("t.svg");
    std::size_t points = 0;
    for (std::size_t i = 1; i < rows.size(); ++i) {
        const auto title = "<title>memory_limit " + rows[i][0] + ", " + rows[i][1] + ": ";
        if (rows[i][2].empty()) {
            CHECK_FALSE_MESSAGE(contains(picture, title), title);
            CHECK_FALSE(rows[i][7].empty());
            continue;
        }
        ++points;
        CHECK_MESSAGE(contains(picture, title + rows[i][2] + " unit<"), title << rows[i][2]);
        const auto words = words_after(rows[i][0], result.out);
        CHECK_MESSAGE(std::find(words.begin(), words.end(), rows[i][2]) != words.end(), result);
    }
    CHECK(points == 4); // zb-h1 needs 4
    std::size_t titles = 0;
    for (auto at = picture.find("<title>"); at != std::string::npos; at = picture.find("<title>", at + 1))
        ++titles;
    CHECK(titles == points + 3); // and the bound of each value
}

TEST_CASE("sweep goes on from the rows that a file keeps") {
    const workplace place;
    const auto sweep = [&](const std::string& values, std::vector<std::string> more = {}) {
        std::vector<std::string> arguments{"sweep",     tight,
                                           "--set",     "memory_limit=" + values,
                                           "--methods", "zb-h1,adaptive",
                                           "--resume",  place / "rows.json",
                                           "--csv",     place / "t.csv"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    };
    REQUIRE(sweep("4,5").status == 0);
    const auto first = place.read("t.csv");
    auto kept = json::parse(place.read("rows.json"));
    REQUIRE(kept["rows"].size() == 4);
    // A kept row isn't planned again, a missing one is.
    for (auto& row : kept["rows"])
        if (row["value"] == "5" && row["by"] == "zb-h1") row["objective"] = 12345;
    // Rows are kept in the order in which they were planned, which isn't always the same.
    const auto is_lost = [](const json& row) { return row["value"] == "4" && row["by"] == "adaptive"; };
    const auto at = std::find_if(kept["rows"].begin(), kept["rows"].end(), is_lost);
    REQUIRE(at != kept["rows"].end());
    const auto lost = *at;
    kept["rows"].erase(at);
    place.write("rows.json", kept.dump());
    REQUIRE(sweep("4,5,6").status == 0);
    CHECK(contains(place.read("t.csv"), "5,zb-h1,12345,"));
    CHECK(rows_of(place.read("t.csv")).size() == 1 + 3 * 2);
    const auto again = json::parse(place.read("rows.json"));
    CHECK(again["rows"].size() == 6);
    CHECK(std::count_if(again["rows"].begin(), again["rows"].end(), [&](const json& row) {
              return row["value"] == lost["value"] && row["by"] == lost["by"] && row["objective"] == lost["objective"];
          }) == 1);
    // Rows of another sweep are refused, and stay.
    const auto other = sweep("4,5", {"--seed", "2"});
    CHECK_MESSAGE((other.status == 2 && other.says({"rows.json", "seed", "another sweep"})), other);
    const auto pairs = sweep("4,5", {"--most-distinct-pairs", "2"});
    CHECK_MESSAGE((pairs.status == 2 && pairs.says({"rows.json", "most_distinct_pairs", "another sweep"})), pairs);
    const auto problem = sweep("4,5", {"--set", "microbatches=9"});
    CHECK_MESSAGE((problem.status == 2 && problem.says({"rows.json", "problem", "another sweep"})), problem);
    CHECK(json::parse(place.read("rows.json")) == again);
    // The limit on pairs is kept, too.
    fs::remove(place / "rows.json");
    REQUIRE(sweep("4,5", {"--most-distinct-pairs", "2"}).status == 0);
    const auto limited = json::parse(place.read("rows.json"));
    CHECK(limited["most_distinct_pairs"] == 2);
    REQUIRE(sweep("4,5", {"--most-distinct-pairs", "2"}).status == 0);
    CHECK(json::parse(place.read("rows.json")) == limited);
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--most-distinct-pairs", "3"}}) {
        const auto without = sweep("4,5", more);
        CHECK_MESSAGE((without.status == 2 && without.says({"most_distinct_pairs", "another sweep"})), without);
    }
    for (const auto* broken : {"{}", "[]", R"({"format": "optpipe.sweep/2"})"}) {
        place.write("rows.json", broken);
        const auto result = sweep("4,5");
        CHECK_MESSAGE((result.status == 2 && result.says({"rows.json"})), result);
        CHECK(place.read("rows.json") == broken);
    }
}

TEST_CASE("the limit on distinct pairs holds for builders, alone and in a sweep") {
    const workplace place;
    const std::vector<std::string> problem{data("format3/pair-small-v-p2-m2.json"), "--set", "memory_limit=20"};
    const auto run_on = [&](std::vector<std::string> arguments, const std::vector<std::string>& more) {
        arguments.insert(arguments.end(), problem.begin(), problem.end());
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    };
    const auto built = [&](std::vector<std::string> more) {
        more.insert(more.end(), {"--set", "microbatches=6", "--quiet", "--out", place / "s.json"});
        REQUIRE(run_on({"plan", "--method", "dualpipe-v"}, more).status == 0);
        return nlohmann::json::parse(place.read("s.json"));
    };
    CHECK(built({})["format"] == "optpipe.schedule/3");
    const auto without = built({"--most-distinct-pairs", "0"});
    CHECK(without["format"] == "optpipe.schedule/1");
    const auto swept = run_on({"sweep", "--methods", "dualpipe-v"},
                              {"--set", "microbatches=6,7", "--most-distinct-pairs", "0", "--quiet", "--csv", "-"});
    const auto rows = rows_of(swept.out);
    REQUIRE_MESSAGE(rows.size() == 3, swept);
    CHECK(std::stod(rows[1][2]) == doctest::Approx(without["objective"].get<double>()));
}

TEST_CASE("sweep refuses methods that there aren't, and rows in a stream") {
    const auto words = run({"sweep", tight, "--set", "memory_limit=null,8"});
    CHECK_MESSAGE((words.status == 2 && words.says({"--set", "several values, each a number"})), words);
    const auto unused = run({"sweep", tight, "--set", "memory_limit=3,4", "--methods", "1f1b", "--gap", "1%"});
    CHECK_MESSAGE((unused.status == 2 && unused.says({"--gap", "add plan to --methods"})), unused);
    for (const auto* option : {"--seed", "--time-limit"}) {
        const auto result = run({"sweep", tight, "--set", "memory_limit=3,4", "--methods", "1f1b,gpipe", option, "2"});
        CHECK_MESSAGE((result.status == 2 && result.says({option, "doesn't use it"})), result);
    }
    const auto unknown = run({"sweep", tight, "--set", "memory_limit=3,4", "--methods", "plan,zb-h7"});
    CHECK_MESSAGE((unknown.status == 2 && unknown.says({"--methods", "zb-h7", "did you mean zb-h"})), unknown);
    const auto stream = run({"sweep", tight, "--set", "memory_limit=3,4", "--resume", "-"});
    CHECK_MESSAGE((stream.status == 2 && stream.says({"--resume"})), stream);
}

TEST_CASE("a value without a schedule has a row with the reason; if no value is valid, that is bad input") {
    const auto some = run({"sweep", two_ranks, "--set", "memory_limit=0.5:2:0.5", "--quiet", "--csv", "-"});
    const auto rows = rows_of(some.out);
    REQUIRE_MESSAGE((some.status == 3 && rows.size() == 5), some);
    CHECK_MESSAGE((rows[1][2].empty() && contains(rows[1][7], "single microbatch")), some);
    CHECK_FALSE(rows[4][2].empty());
    struct {
        std::vector<std::string> changes;
        std::vector<std::string> says;
    } const cases[] = {
        {{"memroy_limit=1:3:1"}, {"did you mean memory_limit?"}},
        {{"memory_limit=1"}, {"several values", "20:80:10"}},
        {{"memory_limit=3:1:1"}, {"FIRST:LAST:STEP"}},
        {{"memory_limit=1:3:0"}, {"FIRST:LAST:STEP"}},
        {{"memory_limit=0:1e9:1"}, {"at most 1000"}},
        {{"memory_limit=1,2", "microbatches=3,4"}, {"only one field"}},
    };
    for (const auto& [changes, says] : cases) {
        std::vector<std::string> arguments{"sweep", two_ranks};
        for (const auto& change : changes)
            arguments.insert(arguments.end(), {"--set", change});
        const auto result = run(arguments);
        CHECK_MESSAGE((result.status == 2 && result.says(says)), result);
    }
}

#endif
