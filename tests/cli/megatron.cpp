#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <string>

using namespace program;

TEST_CASE("a plan as settings of Megatron's") {
    const workplace place;
    const auto problem = data("problems/unit-p4-m8-mem100.json");
    REQUIRE(run({"plan", problem, "--method", "1f1b", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto printed = run({"export-megatron", problem, place / "plan.json", "--layers", "8"});
    CHECK_MESSAGE((printed.status == 0 && printed.err.empty()), printed);
    CHECK(contains(printed.out, "\n--pipeline-model-parallel-layout \"Et*8|t*8|t*8|t*8L\"\n"));
    CHECK(contains(printed.out, "\n# nothing of the plan is left out\n"));
    const auto written =
        run({"export-megatron", problem, place / "plan.json", "--layers", "8,8,8,8", "--out", place / "args"});
    CHECK_MESSAGE((written.status == 0 && written.out.empty() && written.err.empty()), written);
    CHECK(place.read("args") == printed.out);
    const auto refused = run({"export-megatron", problem, place / "plan.json", "--layers", "8,8"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.says({"--layers", "4 stages", "has 2"}), refused);
    const auto predicting = run({"export-megatron", problem, place / "plan.json", "--layers", "8,8,8,7+1"});
    CHECK_MESSAGE(contains(predicting.out, "\n--mtp-num-layers 1\n--pipeline-model-parallel-layout "
                                           "\"Et*8|t*8|t*8|t*7mL\"\n"),
                  predicting);
    for (const std::string bad : {"-1", "8+", "8,8,8,+1", "x", "100001", ""}) {
        const auto wrong = run({"export-megatron", problem, place / "plan.json", "--layers", bad});
        CHECK_MESSAGE((wrong.status == 2 && wrong.says({"--layers"})), bad << "\n" << wrong);
    }
}

TEST_CASE("several stages on one rank are refused in Megatron's words") {
    const workplace place;
    const auto problem = place.write("one-rank.json", R"({"format": "optpipe.problem/1", "ranks": 1, "microbatches": 4,
      "split_backward": false, "stages": [
        {"rank": 0, "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1},
        {"rank": 0, "forward": 1, "backward_input": 1, "backward_weight": 1, "activation": 1}]})");
    REQUIRE(run({"plan", problem, "--method", "interleaved", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto refused = run({"export-megatron", problem, place / "plan.json"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.says({"plan.json", "pipeline-model-parallel size should be greater than 1"}), refused);
}

TEST_CASE("a v placement is refused") {
    const workplace place;
    const auto problem = data("problems/v-unit-p4-m12-k8.json");
    REQUIRE(run({"plan", problem, "--method", "zb-v", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto refused = run({"export-megatron", problem, place / "plan.json"});
    CHECK(refused.status == 2);
    CHECK_MESSAGE(refused.says({"plan.json", "this placement is another"}), refused);
}

#endif
