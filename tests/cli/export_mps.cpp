#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM) || !defined(OPTPIPE_HAS_MILP)
TEST_CASE("not built: the program is missing, or has no solver") {}
#else

#include "cli/program.hpp"
#include "external_solvers/program.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

struct example {
    std::string problem;
    std::string optimum;
};
const example offloads{data("problems/offload-p2-m4-mem050-k050.json"), "275.4"};
const example stores{data("storage/store-p2-m4-k100.json"), "130"};
const auto& offloading = offloads.problem;

/// Checks that the solution file represents an optimal schedule.
void check_import(const workplace& place, const std::string& solution, const example& of = offloads) {
    const auto result = run({"import-solution", of.problem, solution, "--out", place / "schedule.json"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(result.out == "objective=" + of.optimum + '\n', result);
    const auto written = json::parse(place.read("schedule.json"));
    CHECK(std::abs(written["objective"].get<double>() - std::stod(of.optimum)) < 1e-3);
    CHECK(run({"check", of.problem, place / "schedule.json"}).status == 0);
}

/// The name of every variable and its value at the optimum, by our own solver.
json solved(const workplace& place, const std::vector<std::string>& options = {}, const example& of = offloads) {
    std::vector<std::string> arguments{"export-mps", of.problem, "--out", place / "model.mps"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const auto exported = run(arguments);
    REQUIRE_MESSAGE((exported.status == 0 && exported.err.empty()), exported);
    const auto result = run({"solve", place / "model.mps", "--out", place / "solution.json"});
    REQUIRE_MESSAGE((result.status == 0 && result.out.starts_with("optimal objective=" + of.optimum + ' ')), result);
    return json::parse(place.read("solution.json"))["solution"];
}

} // namespace

TEST_CASE("out as a model, back as a schedule") {
    const workplace place;
    for (const auto& options :
         std::vector<std::vector<std::string>>{{}, {"--in-order"}, {"--in-order", "--plain"}, {"--horizon", "300"}}) {
        static_cast<void>(solved(place, options));
        check_import(place, place / "solution.json");
    }
}

TEST_CASE("storage options: out as a model, back as a schedule with the options that were chosen") {
    const workplace place;
    static_cast<void>(solved(place, {"--horizon", "140"}, stores));
    check_import(place, place / "solution.json", stores);
    std::set<std::string> used;
    const auto written = json::parse(place.read("schedule.json"));
    for (const auto& timed : written["operations"])
        if (timed.contains("storage")) used.insert(timed["storage"].get<std::string>());
    CHECK(used.size() > 1);
}

TEST_CASE("what the model is made of is printed") {
    const workplace place;
    const auto result = run({"export-mps", offloading, "--out", place / "model.mps"});
    for (const auto* word : {"variables", "integers", "rows", "nonzeros", "end times", "exclusivity", "copy engines",
                             "device memory", "all ", "horizon "})
        CHECK_MESSAGE(contains(result.out, word), result);
    CHECK_FALSE(contains(result.out, "keep their order"));
    CHECK(
        contains(run({"export-mps", offloading, "--in-order", "--out", place / "model.mps"}).out, "keep their order"));
}

TEST_CASE("a horizon below the optimum leaves nothing") {
    const workplace place;
    REQUIRE(run({"export-mps", offloading, "--horizon", "275", "--out", place / "model.mps"}).status == 0);
    CHECK(run({"solve", place / "model.mps", "--out", place / "solution.json"}).out.starts_with("infeasible"));
    const auto result = run({"import-solution", offloading, place / "solution.json", "--out", place / "schedule.json"});
    CHECK_MESSAGE((result.status == 2 && result.says({"solution.json", "there is none"})), result);
}

TEST_CASE("solution files of other solvers, as they write them") {
    const workplace place;
    std::string highs = "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective 275.4\n# Columns 9\n";
    std::string scip = "solution status: optimal solution found\nobjective value:                              275.4\n";
    std::string cbc = "Optimal - objective value 275.40000000\n";
    std::string plain = "# Objective value = 275.4\n";
    int column = 0;
    const auto solution = solved(place);
    for (const auto& [name, value] : solution.items()) {
        const auto number = value.dump();
        highs += name + ' ' + number + '\n';
        plain += name + ' ' + number + '\n';
        // These formats leave out zeros.
        if (value.get<double>() == 0.0) continue;
        scip += name + "        " + number + " \t(obj:0)\n";
        cbc += "    " + std::to_string(column++) + ' ' + name + "       " + number + "          0\n";
    }
    highs += "# Rows 1\nr0 1\n";
    for (const auto& text : {highs, scip, cbc, plain})
        check_import(place, place.write("solution", text));
}

TEST_CASE("solvers that are installed") {
    const workplace place;
    static_cast<void>(solved(place, {"--in-order"}));
    const auto solve_with = [&](const std::string& line) {
        const auto quiet = "cd '" + (place / "") + "' && " + line + " > log 2>&1";
        REQUIRE(std::system(quiet.c_str()) == 0); // NOLINT(concurrency-mt-unsafe)
        check_import(place, place / "other");
    };
    if (optpipe::milp::external::find_program("cbc")) solve_with("cbc model.mps -solve -solution other -quit");
    if (optpipe::milp::external::find_program("glpsol")) solve_with("glpsol --freemps model.mps --write other");
}

TEST_CASE("bad solutions and options are refused with one line, and nothing is written") {
    const workplace place;
    const auto none = place.write("none", "Infeasible - objective value 0.0\n");
    const auto cut_off = place.write("cut", "solution status: optimal\nobjective value: 3\nE.0F0\n");
    const auto few = place.write("few", "E.0F0 18.5\n");
    const auto report = place.write("report", "Problem:    x\nRows:       1\n");
    const auto worse = place.write("worse", "C nan\n");
    const auto empty = place.write("empty", "");
    struct {
        std::vector<std::string> arguments;
        std::vector<std::string> says;
    } const cases[] = {
        {{"import-solution", offloading, none}, {"none: line 1: holds no solution: Infeasible"}},
        {{"import-solution", offloading, cut_off}, {"cut: line 3: is cut off"}},
        {{"import-solution", offloading, few}, {"few: E.", "has no value"}},
        {{"import-solution", offloading, report}, {"report: line 1", "--write"}},
        {{"import-solution", offloading, worse}, {"worse: line 1: 'nan' is no number"}},
        {{"import-solution", offloading, empty}, {"empty: is empty"}},
        {{"import-solution", offloading, "/no/such"}, {"/no/such", "No such file"}},
        {{"export-mps", offloading, "--horizon", "nan"}, {"--horizon"}},
        {{"export-mps", data("problems/zb-28.3b-p32-m128-mem100.json")}, {"zb-28.3b", "exceed the row limit"}},
        {{"export-mps", data("storage/store-p2-m4-k100.json"), "--in-order"},
         {"store-p2", "only the model that names microbatches"}},
        {{"import-solution", data("storage/store-p2-m4-k100.json"), few},
         {"few: storage.0.0: no storage option is chosen"}},
    };
    for (auto c : cases) {
        c.arguments.insert(c.arguments.end(), {"--out", place / "out"});
        const auto result = run(c.arguments);
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says(c.says)), result);
        CHECK_FALSE(place.has("out"));
    }
    // Times that are impossible in any order: a gradient before its forward.
    auto values = solved(place);
    values["E.1F3"] = 270.0;
    std::string text;
    for (const auto& [name, value] : values.items())
        text += name + ' ' + value.dump() + '\n';
    const auto result = run({"import-solution", offloading, place.write("wrong", text), "--out", place / "out"});
    CHECK_MESSAGE((result.status == 3 && result.says({"wrong: its values are no schedule"})), result);
    CHECK_FALSE(place.has("out"));
}

#endif
