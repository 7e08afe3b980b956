#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>

using namespace program;
using nlohmann::json;

namespace {

json row_of(const json& table, const std::string& method) {
    for (const auto& row : table["methods"])
        if (row["method"] == method) return row;
    return {};
}

} // namespace

TEST_CASE("compare lists every method; those that don't fit say why") {
    const workplace place;
    const auto result = run({"compare", data("two-ranks.json"), "--json", place / "table.json"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    for (const auto* part :
         {"objective [ms]", "bubble rate", "peak memory [GB]", "offloads", "planning [s]",
          "rank 0 needs 4 GB of memory, its limit is 1.5 GB", "gpipe", "1f1b", "adaptive", "best", "better than"})
        CHECK_MESSAGE(contains(result.out, part), part << '\n' << result);

    CHECK(contains(result.out, "not made for such a problem: zb-v, v-half, v-min, v-auto, dualpipe-v"));
    CHECK_FALSE(contains(result.out, "v placement"));

    const auto table = json::parse(place.read("table.json"));
    CHECK(table["problem"] == "two-ranks");
    REQUIRE(table["methods"].size() == 17);
    CHECK(contains(row_of(table, "zb-v")["reason"].get<std::string>(), "v placement"));
    CHECK(contains(row_of(table, "1f1b")["reason"].get<std::string>(), "rank 0"));
    const auto best = row_of(table, "adaptive");
    CHECK(best["objective"].get<double>() >= table["bound"].get<double>() * (1.0 - 1e-6));
    CHECK(best["peak_memory"].size() == 2);
    CHECK(best["planning_seconds"].get<double>() >= 0.0);
}

TEST_CASE("compare: rounding doesn't lift the bound above the best objective") {
    const workplace place;
    const auto file = data("format3/unet-small-v-p2-m4-mem4.5.json");
    const auto result = run({"compare", file, "--time-limit", "0.2", "--json", place / "table.json"});
    CHECK_MESSAGE(result.status == 0, result);
    const auto table = json::parse(place.read("table.json"));
    for (const auto& row : table["methods"])
        if (row.contains("objective")) CHECK(table["bound"].get<double>() <= row["objective"].get<double>());
}

TEST_CASE("compare of a graph: adaptive plans it, and methods for slices say why they don't") {
    const workplace place;
    const auto chosen = data("format3/mtp-small-p2-m3-d1-mem3.5.json");
    auto with_options = json::parse(content_of(chosen));
    for (auto& stage : with_options["stages"])
        stage["storage"] = json::parse(R"([{"name": "keep"}, {"name": "full", "held": 0.1, "recompute": 2}])");
    for (const auto& file : {chosen, place.write("with-options.json", with_options.dump())}) {
        const auto result = run({"compare", file, "--time-limit", "0.2", "--json", place / "table.json"});
        CHECK_MESSAGE(result.status == 0, result);
        const auto table = json::parse(place.read("table.json"));
        CHECK(contains(row_of(table, "seq1f1b")["reason"].get<std::string>(), "slices"));
        const auto best = row_of(table, "adaptive");
        REQUIRE_MESSAGE(best.contains("objective"), result);
        CHECK(best["objective"].get<double>() >= table["bound"].get<double>() * (1.0 - 1e-6));
    }
}

TEST_CASE("compare of microbatches that differ: published methods in the given order, and in the best one") {
    const workplace place;
    REQUIRE(run({"compare", data("format3/uneven-dynapipe.json"), "--json", place / "table.json"}).status == 0);
    const auto table = json::parse(place.read("table.json"));
    CHECK(row_of(table, "1f1b")["objective"].get<double>() == doctest::Approx(240.8));
    CHECK(row_of(table, "dynapipe")["objective"].get<double>() == doctest::Approx(208.8));
}

TEST_CASE("compare agrees with plan") {
    const workplace place;
    REQUIRE(run({"compare", data("whole-backward.json"), "--json", place / "table.json"}).status == 0);
    const auto again = json::parse(place.read("table.json"));
    for (const auto& row : again["methods"]) {
        const auto planned =
            run({"plan", data("whole-backward.json"), "--method", row["method"], "--out", place / "s.json"});
        CHECK_MESSAGE((planned.status == 0) == row.contains("objective"), planned);
        if (planned.status == 0) CHECK(json::parse(place.read("s.json"))["objective"] == row["objective"]);
    }
}

TEST_CASE("compare as Markdown: a table, and below it the methods without a schedule") {
    const workplace place;
    auto named = json::parse(content_of(data("two-ranks.json")));
    named["name"] = "a|b*";
    const auto result = run({"compare", place.write("p.json", named.dump()), "--markdown"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK(result.out.starts_with("**a\\|b\\*** (2 stages on 2 ranks, "));
    for (const auto* part : {"| method ", "\n| :---", "| adaptive ", "\n- gpipe: rank 0 needs 4 GB of memory",
                             "\n- not made for such a problem: zb-v, v-half"})
        CHECK_MESSAGE(contains(result.out, part), part << '\n' << result);
    const auto several = run({"compare", data("two-ranks.json"), place / "p.json", "--markdown"});
    CHECK_MESSAGE((several.status == 0 && several.out.starts_with("| problem ")), several);
}

TEST_CASE("compare has a plan beside the methods, if it is a plan of that problem") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", place / "s.json"}).status == 0);
    const auto result =
        run({"compare", problem, "--plan", place / "s.json", "--markdown", "--json", place / "table.json"});
    CHECK_MESSAGE((result.status == 0 && contains(result.out, "\n| plan ")), result);
    const auto last = json::parse(place.read("table.json"))["methods"].back();
    CHECK((last["method"] == "plan" && !last.contains("planning_seconds")));
    CHECK(last["objective"] == json::parse(place.read("s.json"))["objective"]);

    const auto other = run({"compare", problem, "--plan", place / "s.json", "--set", "stages.forward=1"});
    CHECK_MESSAGE((other.status == 2 && other.says({"s.json"})), other);
    CHECK(run({"compare", problem, problem, "--plan", place / "s.json"}).says({"--plan: is a plan of one problem"}));
}

TEST_CASE("where no method has a schedule, the table says why and the status is 3") {
    const workplace place;
    const auto result = run({"compare", data("small-host.json"), "--json", place / "table.json"});
    CHECK_MESSAGE((result.status == 3 && contains(result.out, "rank 0 needs 4 GB of memory")), result);
    const auto table = json::parse(place.read("table.json"));
    for (const auto& row : table["methods"])
        CHECK(row.contains("reason"));
}

TEST_CASE("a table that can't be written is an error, and nothing is left of its file") {
    const workplace place;
    const auto full = run({"compare", data("two-ranks.json"), "--json", "/dev/full"});
    CHECK_MESSAGE((full.status == 2 && full.says({"/dev/full"})), full);
    const auto missing = run({"compare", data("two-ranks.json"), "--json", place / "no/table.json"});
    CHECK_MESSAGE((missing.status == 2 && missing.says({"no/table.json"})), missing);
    CHECK(place.files().empty());
}

#endif
