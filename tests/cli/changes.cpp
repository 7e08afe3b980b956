#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// The output of `check --json` for a plan by 1F1B of the problem with these changes.
json checked(const std::string& problem, const std::vector<std::string>& changes) {
    const workplace place;
    std::vector<std::string> arguments{problem};
    for (const auto& change : changes)
        arguments.insert(arguments.end(), {"--set", change});
    const auto with = [&](std::vector<std::string> command, const std::vector<std::string>& more) {
        command.insert(command.end(), arguments.begin(), arguments.end());
        command.insert(command.end(), more.begin(), more.end());
        return run(command);
    };
    const auto planned = with({"plan"}, {"--method", "1f1b", "--quiet", "--out", place / "s.json"});
    REQUIRE_MESSAGE(planned.status == 0, planned);
    const auto result = with({"check", "--json"}, {place / "s.json"});
    REQUIRE_MESSAGE(result.status == 0, result);
    return json::parse(result.out);
}

} // namespace

TEST_CASE("--set replaces a field: of the problem, of a rank, of a stage, of all stages") {
    const auto problem = data("problems/unit-p4-m8-mem050.json");
    // 1F1B of m microbatches on p ranks takes (m + p - 1) forwards and backwards of 1 and 2.
    CHECK(checked(problem, {"memory_limit=null"})["objective"] == 33.0);
    CHECK(checked(problem, {"memory_limit=null", "microbatches=5"})["objective"] == 24.0);
    CHECK(checked(problem, {"memory_limit=null", "stages.forward=2"})["objective"] == 44.0);
    CHECK(checked(problem, {"memory_limit=null", "stages[3].activation=8"})["peak_memory"] == json({4, 3, 2, 8}));
    CHECK(checked(problem, {"memory_limit=null", "memory_limit[0]=4"})["objective"] == 33.0);
    CHECK(checked(problem, {"memory_limit=null", "name=other"})["problem"] == "other");
}

TEST_CASE("--set of one rank refuses what doesn't fit there") {
    const auto result = run({"plan", data("problems/unit-p4-m8-mem050.json"), "--method", "1f1b", "--set",
                             "memory_limit=null", "--set", "memory_limit[1]=2"});
    CHECK_MESSAGE((result.status == 3 && result.says({"rank 1 needs 3", "limit is 2"})), result);
}

TEST_CASE("--set names what it can't find") {
    const auto problem = data("two-ranks.json");
    struct {
        std::string change;
        std::vector<std::string> says;
    } const cases[] = {
        {"memroy_limit=3", {"two-ranks.json with --set memroy_limit=3", "did you mean memory_limit?"}},
        {"memroy_limit[1]=3", {"did you mean memory_limit?"}},
        {"stages[0].frward=3", {"stages[0].frward", "did you mean forward?"}},
        {"transfr.engines=2", {"did you mean transfer?"}},
        {"stages[2].forward=3", {"--set stages[2].forward=3", "no [2]", "2 entries"}},
        {"memory_limit[2]=3", {"no [2]", "2 entries"}},
        {"name[0]=3", {"no list"}},
        {"name.first=3", {"no object"}},
        {"memory_limit", {"must be FIELD=VALUE"}},
        {"=3", {"must be FIELD=VALUE"}},
        {"memory_limit[=3", {"must be FIELD=VALUE"}},
        {"memory_limit[x]=3", {"must be FIELD=VALUE"}},
        {"stages..forward=3", {"must be FIELD=VALUE"}},
        {"memory_limit=much", {"must be a number, is \"much\""}},
    };
    for (const auto& [change, says] : cases) {
        const auto result = run({"plan", problem, "--set", change});
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says(says)), result);
    }
}

TEST_CASE("a text that isn't UTF-8 is a name as any other") {
    const auto result = run({"plan", data("two-ranks.json"), "--quiet", "--set", "name=\xff"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
}

TEST_CASE("a file of another format is refused with the command or the place that takes it") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    const auto layers = run({"plan", example("llama3-8b-p8.layers.json")});
    CHECK_MESSAGE((layers.status == 2 && layers.says({"optpipe.layers/1", "optpipe partition"})), layers);
    const auto swapped = run({"check", place / "s.json", problem});
    CHECK_MESSAGE((swapped.status == 2 && swapped.says({"s.json", "a plan is named after its problem"})), swapped);
    const auto twice = run({"check", problem, problem});
    CHECK_MESSAGE((twice.status == 2 && twice.says({"a problem is named before its plan"})), twice);
}

TEST_CASE("a share may be given in percent") {
    const workplace place;
    const auto problem = data("problems/unit-p4-m8-mem050.json");
    REQUIRE(run({"plan", problem, "--gap", "0.5", "--quiet", "--out", place / "share.json"}).status == 0);
    REQUIRE(run({"plan", problem, "--gap", "50%", "--quiet", "--out", place / "percent.json"}).status == 0);
    CHECK(place.read("share.json") == place.read("percent.json"));
}

#if defined(OPTPIPE_HAS_MILP)
TEST_CASE("--set changes a file of layers, too") {
    const workplace place;
    const auto layers = place.write("l.json", R"({"format": "optpipe.layers/1", "ranks": 2, "microbatches": 4,
        "layers": [{"count": 4, "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1}]})");
    const auto result = run({"partition", layers, "--set", "microbatches=3", "--set", "layers[0].count=2", "--quiet",
                             "--time-limit", "1", "--out", place / "p.json"});
    REQUIRE_MESSAGE(result.status == 0, result);
    const auto problem = json::parse(place.read("p.json"));
    CHECK(problem["microbatches"] == 3);
    CHECK(problem["stages"].size() == 2);
}
#endif

#endif
