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

/// A plan as if it had been measured, with all times multiplied by `factor`.
std::string measured(const workplace& place, const std::string& problem, const std::string& name, double factor) {
    const auto plan = place / "plan.json";
    REQUIRE(run({"plan", problem, "--gap", "0.2", "--quiet", "--out", plan}).status == 0);
    auto document = json::parse(content_of(plan));
    for (const auto* derived : {"objective", "bound", "gap", "bubble_rate", "peak_memory"})
        document.erase(derived);
    for (auto& entry : document["operations"])
        for (const auto* time : {"start", "end"})
            entry[time] = factor * entry[time].get<double>();
    return place.write(name, document.dump());
}

} // namespace

TEST_CASE("measured steps give a problem with the measured costs") {
    for (const std::string name : {"two-ranks.json", "chunks.json", "whole-backward.json", "stored.json"}) {
        CAPTURE(name);
        const workplace place;
        const auto problem = data(name);
        const auto first = measured(place, problem, "first.json", 7.0);
        const auto second = measured(place, problem, "second.json", 2.0);
        const auto out = place / "out.json";
        const auto result = run({"profile", problem, first, second, second, second, second, "--out", out});
        CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
        CHECK_MESSAGE(contains(result.out, "5 steps, the first 1 left out as warm-up (found)"), result);
        CHECK_MESSAGE(contains(result.out, "drifted: 0F: planned "), result);
        const auto before = json::parse(content_of(problem));
        const auto after = json::parse(place.read("out.json"));
        for (std::size_t s = 0; s < before["stages"].size(); ++s) {
            const auto time = [&](const json& of, const char* field) { return of["stages"][s][field].get<double>(); };
            CHECK(time(after, "forward") == doctest::Approx(2.0 * time(before, "forward")));
            CHECK(time(after, "backward_input") + time(after, "backward_weight") ==
                  doctest::Approx(2.0 * (time(before, "backward_input") + time(before, "backward_weight"))));
            CHECK(time(after, "activation") == time(before, "activation"));
        }
        const auto planned = run({"plan", out, "--start", first, "--time-limit", "0.2", "--quiet"});
        CHECK_MESSAGE(planned.status == 0, planned);
    }
}

TEST_CASE("a profile is saved, and gone on from") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    const auto step = measured(place, problem, "step.json", 1.0);
    const auto saved = place / "saved.json";
    CHECK(run({"profile", problem, step, step, "--quiet", "--save", saved}).status == 0);
    const auto result = run({"profile", problem, saved, step, "--warm-up", "1"});
    CHECK_MESSAGE(result.status == 0, result);
    CHECK_MESSAGE(contains(result.out, "3 steps, the first 1 left out as warm-up (given)"), result);
    const auto quiet = run({"profile", problem, step, "--quiet"});
    CHECK_MESSAGE((quiet.status == 0 && quiet.out.empty() && quiet.err.empty()), quiet);
}

TEST_CASE("traces give a problem with the measured costs") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    const auto trace = place / "trace.json";
    REQUIRE(run({"plan", problem, "--gap", "0.2", "--quiet", "--trace", trace}).status == 0);
    auto slow = json::parse(content_of(trace));
    for (auto& event : slow["traceEvents"])
        if (event["ph"] == "X") event["dur"] = 3.0 * event["dur"].get<double>();
    for (const auto& stage : {"0", "1"}) {
        json own = slow;
        std::erase_if(own["traceEvents"].get_ref<json::array_t&>(), [&](const json& event) {
            return event["ph"] == "X" && !event["name"].get<std::string>().starts_with(std::string{"PP:"} + stage);
        });
        place.write("trace-" + std::string{stage} + ".json", own.dump());
    }
    const auto result = run(
        {"profile", problem, "--trace", place / "trace-0.json", place / "trace-1.json", "--out", place / "out.json"});
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(contains(result.out, "1 step, the first 0 left out"), result);
    const auto before = json::parse(content_of(problem));
    const auto after = json::parse(place.read("out.json"));
    for (std::size_t s = 0; s < 2; ++s)
        CHECK(after["stages"][s]["forward"].get<double>() ==
              doctest::Approx(3.0 * before["stages"][s]["forward"].get<double>()));
    const auto named = run({"profile", problem, "--quiet", "--range", "F=forward {stage}", "--trace",
                            place.write("own.json", R"([{"ph": "X", "name": "forward 1", "ts": 0, "dur": 7000}])"),
                            "--out", place / "own-out.json"});
    CHECK_MESSAGE(named.status == 0, named);
    CHECK(json::parse(place.read("own-out.json"))["stages"][1]["forward"] == 7);
}

TEST_CASE("traces that can't be read are refused with one message") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    const auto refused = [&](const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
        const auto result = run(arguments);
        CHECK_MESSAGE((result.status == 2 && result.says(parts)), result);
    };
    const auto bad = place.write("bad.json", "{\"traceEvents\": [\n{]");
    refused({"profile", problem, "--trace", bad}, {"bad.json", "line 2, column 2", "isn't JSON"});
    refused({"profile", problem, "--trace", place / "none.json"}, {"none.json"});
    refused({"profile", problem, "--trace", place / "."}, {place / "."});
    refused({"profile", problem, "--trace", problem}, {"two-ranks.json", "has no range of an operation"});
    refused({"profile", problem, "--trace", bad, "--range", "G=x"}, {"--range", "G=x"});
    refused({"profile", problem, "--range", "F=x"}, {"--trace"});
    refused({"profile", problem, "--trace", bad, "--out", bad}, {"--out", "--trace"});
}

TEST_CASE("bad input to profile is refused with one message") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    const auto step = measured(place, problem, "step.json", 1.0);
    const auto refused = [&](const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
        const auto result = run(arguments);
        CHECK_MESSAGE((result.status == 2 && result.says(parts)), result);
    };
    refused({"profile", problem}, {"MEASURED"});
    refused({"profile", problem, place / "none.json"}, {"none.json"});
    refused({"profile", problem, problem}, {"two-ranks.json", "format"});
    refused({"profile", data("chunks.json"), place.write("far.json", R"({"format": "optpipe.schedule/1",
        "operations": [{"op": "99F0", "start": 0, "end": 1}]})")},
            {"far.json", "99F0"});
    refused({"profile", problem, place.write("twice.json", R"({"format": "optpipe.schedule/1", "operations":
        [{"op": "0F0", "start": 0, "end": 1}, {"op": "0F0", "start": 1, "end": 2}]})")},
            {"twice.json", "0F0", "twice"});
    refused({"profile", problem, place.write("late.json", R"({"format": "optpipe.schedule/1", "operations":
        [{"op": "0F0", "start": 2, "end": 1}]})")},
            {"late.json", "ends before it starts"});
    refused({"profile", problem, place.write("empty.json", R"({"format": "optpipe.schedule/1", "operations": []})")},
            {"empty.json", "nothing was measured"});
    refused({"profile", problem, place.write("other.json", R"({"format": "optpipe.profile/1", "operations":
        [{"stage": 9, "kind": "F", "step": [0], "took": [1]}], "messages": [], "memory": []})")},
            {"other.json", "9F"});
    refused({"profile", problem, step, "--out", step}, {"--out", "MEASURED"});
    refused({"profile", problem, step, "--warm-up", "-1"}, {"--warm-up"});
    refused({"profile", problem, step, "--warm-up", "1"}, {"--warm-up", "must leave a step; there is 1"});
    refused({"profile", problem, step, step, "--warm-up", "3"}, {"--warm-up", "must leave a step; there are 2"});
}
#endif
