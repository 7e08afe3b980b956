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
}
#endif
