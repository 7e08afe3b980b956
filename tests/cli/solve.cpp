#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or has no solver") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

const std::string knapsack = "NAME knapsack\n"
                             "OBJSENSE\n MAX\n"
                             "ROWS\n N VALUE\n L WEIGHT\n"
                             "COLUMNS\n M 'MARKER' 'INTORG'\n"
                             " tent VALUE 7 WEIGHT 5\n"
                             " rope VALUE 4 WEIGHT 3\n"
                             " lamp VALUE 3 WEIGHT 2\n"
                             " M 'MARKER' 'INTEND'\n"
                             "RHS\n RHS WEIGHT 7\nENDATA\n";

std::string without(const std::string& text, const std::string& what, const std::string& instead) {
    auto changed = text;
    REQUIRE(changed.find(what) != std::string::npos);
    return changed.replace(changed.find(what), what.size(), instead);
}

} // namespace

TEST_CASE("an optimal solution is printed, and written by name") {
    const workplace place;
    const auto model = place.write("knapsack.mps", knapsack);
    const auto result = run({"solve", model, "--threads", "1", "--out", place / "out.json"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(result.out.starts_with("optimal objective=10 bound=10 gap=0 nodes="), result);
    const auto written = json::parse(place.read("out.json"));
    CHECK(written["status"] == "optimal");
    CHECK((written["objective"] == 10.0 && written["bound"] == 10.0 && written["gap"] == 0.0));
    CHECK((written["nodes"].is_number_unsigned() && written["seconds"] >= 0.0));
    const json expected = {{"tent", 1.0}, {"rope", 0.0}, {"lamp", 1.0}};
    REQUIRE(written["solution"].size() == 3);
    for (const auto& [name, value] : expected.items())
        CHECK(std::abs(written["solution"][name].get<double>() - value.get<double>()) < 1e-6);
}

TEST_CASE("more threads than there are cores are nothing to speak of") {
    const workplace place;
    const auto result = run({"solve", place.write("knapsack.mps", knapsack), "--threads", "64"});
    CHECK_MESSAGE((result.status == 0 && result.out.starts_with("optimal ") && result.err.empty()), result);
}

TEST_CASE("that there is no solution is said, with an exit status of its own") {
    const workplace place;
    const auto no_point = place.write("infeasible.mps", without(knapsack, "RHS WEIGHT 7", "RHS WEIGHT -1"));
    const auto infeasible = run({"solve", no_point, "--out", place / "out.json"});
    CHECK_MESSAGE((infeasible.status == 3 && infeasible.out.starts_with("infeasible")), infeasible);
    const auto written = json::parse(place.read("out.json"));
    CHECK((written["status"] == "infeasible" && written["solution"].is_null() && written["objective"].is_null()));

    const auto no_end = place.write("unbounded.mps", "NAME\nROWS\n N C\n G R\nCOLUMNS\n x C -1 R 1\nENDATA\n");
    const auto unbounded = run({"solve", no_end, "--out", place / "out.json"});
    CHECK_MESSAGE((unbounded.status == 3 && unbounded.out.starts_with("unbounded")), unbounded);
    CHECK(json::parse(place.read("out.json"))["status"] == "unbounded");
}

#if defined(OPTPIPE_HAS_ZLIB)
TEST_CASE("a search that is stopped has a bound, and says what stopped it") {
    const workplace place;
    const auto model = data("milp/pipeline/B_4x8_L075_k050.mps.gz");
    const auto result = run({"solve", model, "--time-limit", "0", "--out", place / "out.json"});
    CHECK_MESSAGE(((result.status == 0 || result.status == 3) && result.out.starts_with("stopped (time limit)")),
                  result);
    const auto written = json::parse(place.read("out.json"));
    CHECK((written["status"] == "stopped" && written["stopped_by"] == "time limit"));
    CHECK((result.status == 3) == written["solution"].is_null());
}
#endif

TEST_CASE("what is solved within the gap that was asked for is optimal") {
    const workplace place;
    const auto linear =
        place.write("linear.mps", "NAME\nROWS\n N C\n G R\nCOLUMNS\n x C 1 R 3\n y C 2 R 1\nRHS\n RHS R 1\nENDATA\n");
    const auto result = run({"solve", linear, "--gap", "1e-6", "--out", place / "out.json"});
    CHECK_MESSAGE((result.status == 0 && result.out.starts_with("optimal (gap tolerance 1e-06) objective=0.333")),
                  result);
    const auto written = json::parse(place.read("out.json"));
    CHECK((written["status"] == "optimal" && written["gap_tolerance"] == 1e-6));
}

TEST_CASE("an LP file is solved like an MPS file, whatever it is called") {
    const workplace place;
    const std::string text = "\\ the same knapsack\nMaximize\n value: 7 tent + 4 rope + 3 lamp\n"
                             "Subject To\n weight: 5 tent + 3 rope + 2 lamp <= 7\nBinary\n tent rope lamp\nEnd\n";
    for (const auto* name : {"knapsack.lp", "knapsack"}) {
        const auto result = run({"solve", place.write(name, text), "--out", place / "out.json"});
        REQUIRE_MESSAGE((result.status == 0 && result.out.starts_with("optimal objective=10 bound=10")), result);
        CHECK(std::abs(json::parse(place.read("out.json"))["solution"]["lamp"].get<double>() - 1.0) < 1e-6);
    }
    const auto piped = run({"solve", "-"}, "", place / "knapsack");
    CHECK_MESSAGE((piped.status == 0 && piped.out.starts_with("optimal objective=10")), piped);
    const auto refused = run({"solve", place.write("bad.lp", without(text, "<= 7", "7"))});
    CHECK_MESSAGE((refused.status == 2 && refused.says({"bad.lp: line 5: a row has '7'"})), refused);
}

TEST_CASE("bad models and options are refused with one line, and nothing is written") {
    const workplace place;
    const auto bad = place.write("bad.mps", without(knapsack, "WEIGHT 3", "HEIGHT 3"));
    struct {
        std::vector<std::string> arguments;
        std::vector<std::string> says;
    } const cases[] = {
        {{"solve"}, {"MODEL is required"}},
        {{"solve", "/no/such.mps"}, {"/no/such.mps", "No such file"}},
        {{"solve", bad, "--out", place / "out.json"}, {"bad.mps: line 10: there is no row 'HEIGHT'"}},
        {{"solve", bad, "--gap", "-1"}, {"--gap"}},
        {{"solve", bad, "--gap", "2"}, {"--gap", "between 0 and 1, is 2"}},
        {{"solve", bad, "--time-limit", "nan"}, {"--time-limit"}},
        {{"solve", bad, "--threads", "-1"}, {"--threads"}},
    };
    for (const auto& c : cases) {
        const auto result = run(c.arguments);
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says(c.says)), result);
    }
    CHECK_FALSE(place.has("out.json"));
}

#if defined(OPTPIPE_HAS_ZLIB)
TEST_CASE("the log goes to standard error") {
    const workplace place;
    const auto result = run({"solve", data("milp/mip/lseu.mps.gz"), "--log", "--gap", "0.5", "--time-limit", "20"});
    CHECK_MESSAGE((result.status == 0 && !result.err.empty()), result);
}
#endif

#endif
