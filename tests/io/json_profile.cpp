#include "optpipe/io/json_profile.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/text_profile.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/profile/measured_costs.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "planner/cache/folder.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>

using namespace optpipe;

namespace {

problem example() {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    unit.transfer = transfer_times{duration{0.1}, duration{0.2}};
    problem p{to_any_graph(graph<dynamic, dynamic>{3, 6}), per_stage<stage_costs>(3, unit)};
    p.name = "three";
    p.time_unit = "ms";
    p.p2p = hop_times<>{duration{0.3}};
    p.memory_limit[rank{0}] = memory_size{2.0};
    return p;
}

cost_profile measured(const problem& p) {
    cost_profile profile;
    for (const auto& s : {*build_schedule(p, pipe_offload), *build_schedule(p, adaptive)})
        profile.add(p, s);
    return profile;
}

std::string refusal_of(const std::string& text) {
    try {
        static_cast<void>(parse_profile(text, "profile.json"));
    } catch (const input_error& e) {
        return e.what();
    }
    return "";
}

std::string with_operations(const std::string& list) {
    return R"({"format": "optpipe.profile/1", "operations": [)" + list + R"(], "messages": [], "memory": []})";
}

} // namespace

TEST_CASE("a profile is read back as it was written") {
    const auto p = example();
    auto profile = measured(p);
    const auto check_read_back = [&] {
        const auto text = profile_to_json(p, profile);
        const auto again = parse_profile(text, "it");
        CHECK(profile_to_json(p, again) == text);
        CHECK(again.steps() == profile.steps());
        CHECK(again.warm_up_steps() == profile.warm_up_steps());
        CHECK(again.peaks() == profile.peaks());
        REQUIRE(again.operations().size() == profile.operations().size());
        for (std::size_t i = 0; i < again.operations().size(); ++i) {
            CHECK(again.operations()[i].of == profile.operations()[i].of);
            CHECK(again.operations()[i].estimate.median == profile.operations()[i].estimate.median);
        }
        CHECK(profile_violations(p, again).empty());
    };
    check_read_back();
    profile.set_warm_up(1);
    check_read_back();
    profile = cost_profile{};
    check_read_back();
}

TEST_CASE("whatever was measured, its profile is read back as one of the problem") {
    constexpr std::uint64_t seed = 71;
    std::size_t mixed = 0; // steps in which some microbatches recompute inside the backward, and others don't
    for (std::uint64_t i = 0; i < oracle::random_cases(200); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p = oracle::make_random_problem(random, {.storage_percent = 90}).problem;
        cost_profile profile;
        for (std::uint64_t steps = random.between(1, 3); steps > 0; --steps)
            profile.add(p, *simulate(p, oracle::random_order(random, p)));
        const auto text = profile_to_json(p, profile);
        const auto again = parse_profile(text, "it");
        const auto wrong = profile_violations(p, again);
        CHECK_MESSAGE(wrong.empty(), wrong.front().text());
        CHECK(profile_to_json(p, again) == text);
        const auto costs = with_measured_costs(p, again);
        CHECK(problem_to_json(costs) == problem_to_json(with_measured_costs(p, profile)));
        for (const stage s : p.graph.all_stages()) {
            std::size_t with = 0;
            for (const auto& option : p.storage[s])
                with += option.backward_extra > duration{} ? 1 : 0;
            mixed += with > 0 && with < p.storage[s].size() ? 1 : 0;
        }
    }
    CHECK(mixed >= oracle::random_cases(40));
    // Operations that no option of the stage has.
    auto p = example();
    cost_profile profile;
    profile.add(0, {{{{stage{0}, operation_kind::recompute, storage_index{0}}, duration{1.0}}}, {}});
    CHECK(profile_violations(p, profile).size() == 1);
    profile = cost_profile{};
    profile.add(0, {{{{stage{0}, operation_kind::backward, storage_index{0}}, duration{1.0}}}, {}});
    CHECK(profile_violations(p, profile).size() == 1);
}

TEST_CASE("a profile is read from its file, and errors name that") {
    const auto p = example();
    const temporary_folder folder;
    const auto path = (folder.path() / "profile.json").string();
    const auto text = profile_to_json(p, measured(p));
    write_file(path, text);
    CHECK(profile_to_json(p, read_profile(path)) == text);
    write_file(path, "{}");
    CHECK_THROWS_WITH_AS(static_cast<void>(read_profile(path)), doctest::Contains(path.c_str()), input_error);
    CHECK_THROWS_AS(static_cast<void>(read_profile(path + ".none")), file_error);
}

TEST_CASE("what departs from the format is refused with its place") {
    CHECK(refusal_of(with_operations("")).empty());
    CHECK(refusal_of("{}").find("format: is missing") != std::string::npos);
    CHECK(refusal_of("[]").find("must be an object") != std::string::npos);
    CHECK(refusal_of(with_operations("3")).find("operations[0]: must be an object") != std::string::npos);
    const auto series = [](const std::string& name, const std::string& steps, const std::string& durations) {
        return with_operations("{" + name + R"(, "step": [)" + steps + R"(], "took": [)" + durations + "]}");
    };
    const std::string forward = R"("stage": 0, "kind": "F")";
    CHECK(refusal_of(series(forward, "0, 1", "1.5, 1.25")).empty());
    CHECK(refusal_of(series(forward, "0", "1, 2")).find("took: has 2 entries, step has 1") != std::string::npos);
    CHECK(refusal_of(series(forward, "0", "-1")).find("took[0]: must not be negative") != std::string::npos);
    CHECK(refusal_of(series(forward, "-1", "1")).find("step[0]: must not be negative") != std::string::npos);
    CHECK(refusal_of(series(forward, "0.5", "1")).find("whole number") != std::string::npos);
    CHECK(refusal_of(series(forward, "0", "\"x\"")).find("must be a number") != std::string::npos);
    CHECK(refusal_of(series(R"("stage": 0, "kind": "X")", "0", "1")).find("kind: is no kind") != std::string::npos);
    CHECK(refusal_of(series(R"("kind": "F")", "0", "1")).find("stage: is missing") != std::string::npos);
    CHECK(refusal_of(series(forward + R"(, "stag": 1)", "0", "1")).find("did you mean stage") != std::string::npos);
    CHECK(refusal_of(series(forward + R"(, "storage": 99)", "0", "1")).find("at most") != std::string::npos);
}

TEST_CASE("a profile of another problem is found out") {
    const auto p = example();
    const auto wrong = [&](const std::string& name) {
        const auto text = with_operations("{" + name + R"(, "step": [0], "took": [1]})");
        return !profile_violations(p, parse_profile(text, "it")).empty();
    };
    CHECK_FALSE(wrong(R"("stage": 2, "kind": "F")"));
    CHECK_FALSE(wrong(R"("stage": 2, "kind": "OFFLOAD", "storage": 1)"));
    CHECK(wrong(R"("stage": 2, "kind": "OFFLOAD", "storage": 0)"));
    CHECK(wrong(R"("stage": 3, "kind": "F")"));
    CHECK(wrong(R"("stage": 0, "kind": "RECOMPUTE", "storage": 0)"));
    CHECK(wrong(R"("stage": 0, "kind": "F", "storage": 0)"));
    CHECK(wrong(R"("stage": 0, "kind": "OFFLOAD")"));
}

TEST_CASE("the table has a row for each operation and message, and the drift a line for each number") {
    const auto p = example();
    const auto profile = measured(p);
    std::ostringstream table;
    write_profile(table, p, profile);
    CHECK(table.str().find("three: 2 steps, the first 0 left out as warm-up (found)") == 0);
    for (const auto& [key, e] : profile.operations())
        CHECK(table.str().find('\n' + to_string(p, key) + "  ") != std::string::npos);
    for (const auto& [pair, e] : profile.messages())
        CHECK(table.str().find('\n' + to_string(p, pair) + "  ") != std::string::npos);
    std::ostringstream drifted;
    write_drift(drifted, {{"0F", duration{1.0}, estimate_of({duration{2.0}})}});
    CHECK(drifted.str() == "drifted: 0F: planned 1, measured 2 (2 to 2), +100 %\n");
}

TEST_CASE("a pair is read back with the stages of both parts") {
    auto p = example();
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward_input, duration{1.5}, {}});
    cost_profile profile;
    const cost_key pair{stage{0}, operation_kind::backward_input, {}, false, stage{0}};
    for (std::uint64_t step = 0; step < 3; ++step)
        profile.add(step, {{{{stage{0}}, duration{1.0}}, {pair, duration{1.25}}}, {}});
    const auto again = parse_profile(profile_to_json(p, profile), "it");
    CHECK(again.measured_steps() == profile.measured_steps());
    CHECK(profile_violations(p, again).empty());
    CHECK(with_measured_costs(p, again).overlaps.begin()->duration == duration{1.25});
}
