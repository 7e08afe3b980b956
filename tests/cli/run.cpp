#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

/// A plan of a problem, and a folder for its outputs.
struct planned {
    workplace place;
    std::string problem;
    std::string schedule = place / "plan.json";

    explicit planned(const std::string& name) : problem{data(name)} {
        REQUIRE(program::run({"plan", problem, "--gap", "0.2", "--quiet", "--out", schedule}).status == 0);
    }
    [[nodiscard]] json document(const std::string& name = "plan.json") const { return json::parse(place.read(name)); }
    [[nodiscard]] finished run(std::vector<std::string> options = {}) const {
        options.insert(options.begin(), {"run", problem, schedule});
        return program::run(options);
    }
    /// Runs a changed plan.
    [[nodiscard]] finished run_changed(const json& changed) const {
        return program::run({"run", problem, place.write("changed.json", changed.dump())});
    }
};

std::set<std::string> operations_in(const json& document) {
    std::set<std::string> found;
    for (const auto& entry : document["operations"])
        found.insert(entry["op"]);
    return found;
}

double end_of(const json& document) {
    double end = 0.0;
    for (const auto& entry : document["operations"])
        end = std::max(end, entry["end"].get<double>());
    return end;
}

} // namespace

TEST_CASE("a plan is run, measured, and written with its picture and its trace") {
    for (const std::string name : {"two-ranks.json", "chunks.json", "whole-backward.json", "v-three-ranks.json"}) {
        CAPTURE(name);
        const planned plan{name};
        const auto result = plan.run({"--scale", "0.0002", "--out", plan.place / "m.json", "--svg",
                                      plan.place / "o.svg", "--trace", plan.place / "t.json"});
        CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
        for (const auto* part : {"planned ", "ratio ", "\nkind ", "\nF ", "mean excess", "\nmessage ", "\nmemory",
                                 "high-water mark", "\nrank 1 "})
            CHECK_MESSAGE(contains(result.out, part), result);
        const auto measured = plan.document("m.json");
        CHECK(measured["format"] == "optpipe.schedule/1");
        CHECK(operations_in(measured) == operations_in(plan.document()));
        CHECK(measured["operations"].size() == plan.document()["operations"].size());
        CHECK(end_of(measured) >= 0.99 * end_of(plan.document())); // nothing is faster than planned
        CHECK(contains(plan.place.read("o.svg"), "<title>planned 0F0: "));
        CHECK(contains(plan.place.read("t.json"), "rank 1 measured"));
    }
}

TEST_CASE("no more memory is held than planned") {
    const planned plan{"two-ranks.json"};
    const auto result = plan.run({"--scale", "0.0005"});
    REQUIRE_MESSAGE(result.status == 0, result);
    for (const std::size_t r : {0U, 1U}) {
        const auto row = words_after("rank " + std::to_string(r), result.out);
        REQUIRE_MESSAGE(row.size() == 5, result);
        const auto& [planned_peak, held, limit, planned_on_host, held_on_host] =
            std::tie(row[0], row[1], row[2], row[3], row[4]);
        CHECK(std::stod(planned_peak) == doctest::Approx(plan.document()["peak_memory"][r].get<double>()));
        CHECK(std::stod(held) <= std::stod(planned_peak)); // depends on the timing
        CHECK(std::stod(held) >= 1.0);
        CHECK(limit == "1.5");
        CHECK(std::stod(held_on_host) <= std::stod(planned_on_host));
    }
    // Without offloading this memory wouldn't be enough.
    CHECK_MESSAGE(!words_after("OFFLOAD", result.out).empty(), result);
    CHECK_MESSAGE(words_after("rank 0", result.out).back() != "0", result);
}

TEST_CASE("a plan that mixes storage options is run: recomputed ahead, inside the backward, and offloaded in part") {
    const workplace place;
    const auto problem = place.write("problem.json", R"({
        "format": "optpipe.problem/2", "ranks": 2, "microbatches": 2, "memory_limit": [2.5, 1],
        "stages": [
            {"rank": 0, "forward": 10, "backward_input": 10, "backward_weight": 6, "activation": 2, "weight_stash": 1,
             "storage": [{"name": "ahead", "held": 0.5, "recompute": 5},
                         {"name": "inside, in part", "held": 0.5, "backward_extra": 3,
                          "transfer_size": 0.25, "offload": 4, "reload": 4}]},
            {"rank": 1, "forward": 10, "backward_input": 10, "backward_weight": 6, "activation": 1}]})");
    const auto schedule = place.write("plan.json", R"({
        "format": "optpipe.schedule/2", "operations": [
            {"op": "0F0", "start": 0, "end": 10, "storage": "ahead"},
            {"op": "0F1", "start": 10, "end": 20, "storage": "inside, in part"},
            {"op": "0OFFLOAD1", "start": 20, "end": 24},
            {"op": "0RECOMPUTE0", "start": 30, "end": 35},
            {"op": "0B0", "start": 36, "end": 52},
            {"op": "0RELOAD1", "start": 58, "end": 62},
            {"op": "0B1", "start": 62, "end": 81},
            {"op": "1F0", "start": 10, "end": 20},
            {"op": "1B0", "start": 20, "end": 36},
            {"op": "1F1", "start": 36, "end": 46},
            {"op": "1B1", "start": 46, "end": 62}]})");
    const auto result = program::run({"run", problem, schedule, "--scale", "0.001", "--out", place / "m.json", "--svg",
                                      place / "o.svg", "--trace", place / "t.json"});
    REQUIRE_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(contains(result.out, "\nRECOMPUTE "), result);
    const auto planned = json::parse(place.read("plan.json"));
    const auto measured = json::parse(place.read("m.json"));
    CHECK(measured["format"] == "optpipe.schedule/2");
    CHECK(operations_in(measured) == operations_in(planned));
    CHECK(end_of(measured) >= 0.99 * end_of(planned));
    for (const auto& entry : measured["operations"]) {
        if (entry["op"] == "0F0") CHECK(entry["storage"] == "ahead");
        if (entry["op"] == "0F1") CHECK(entry["storage"] == "inside, in part");
        if (entry["op"] == "0RECOMPUTE0") CHECK(entry["end"].get<double>() - entry["start"].get<double>() >= 4.99);
        if (entry["op"] == "0B1") CHECK(entry["end"].get<double>() - entry["start"].get<double>() >= 18.9);
    }
    const auto row = words_after("rank 0", result.out);
    REQUIRE_MESSAGE(row.size() == 5, result);
    CHECK(row[0] == "2.25"); // one RECOMPUTE, and one of a quarter
    CHECK(row[3] == "0.25");
    CHECK(contains(place.read("t.json"), "0RECOMPUTE0"));
    CHECK(contains(place.read("o.svg"), "0RECOMPUTE0"));
}

TEST_CASE("pairs are run as planned, lowered, and measured into the problem") {
    const workplace place;
    const auto problem = place.write("pairs.json", R"({"format": "optpipe.problem/3", "name": "pairs", "ranks": 1,
        "microbatches": 3, "stages": [{"rank": 0, "forward": 10, "backward_input": 10, "backward_weight": 5,
        "activation": 1}], "overlaps": [{"forward": 0, "backward": 0, "duration": 16, "memory": 0.5}]})");
    const auto plan = place.write("plan.json", R"({"format": "optpipe.schedule/3", "problem": "pairs", "operations": [
        {"op": "0F0", "start": 0, "end": 10}, {"op": "(0F1;0B0)OVERLAP_F_B", "start": 10, "end": 26},
        {"op": "(0F2;0B1)OVERLAP_F_B", "start": 26, "end": 42}, {"op": "0B2", "start": 42, "end": 57}]})");
    const auto measured = place / "measured.json";
    const auto ran = program::run({"run", problem, plan, "--out", measured});
    CHECK(ran.status == 0);
    CHECK(operations_in(json::parse(place.read("measured.json"))) ==
          operations_in(json::parse(place.read("plan.json"))));
    REQUIRE(program::run({"lower", problem, plan, "--out", place / "programs.json"}).status == 0);
    const auto programs = json::parse(place.read("programs.json"));
    CHECK(programs["programs"][0]["instructions"][1]["backward"]["op"] == "0B0");
    REQUIRE(program::run({"profile", problem, measured, "--quiet", "--out", place / "again.json"}).status == 0);
    const auto again = json::parse(place.read("again.json"));
    CHECK(again["overlaps"][0]["duration"].get<double>() >= 16.0);
}

TEST_CASE("of several steps the one in the middle is shown; quiet says nothing") {
    const planned plan{"two-ranks.json"};
    const auto three = plan.run({"--steps", "3", "--scale", "0.0001"});
    CHECK_MESSAGE((three.status == 0 && contains(three.out, "(median of 3 steps)")), three);
    const auto steps = plan.run({"--steps", "10", "--quiet", "--scale", "0.00001", "--out", plan.place / "step.json"});
    CHECK_MESSAGE(steps.status == 0, steps);
    CHECK_FALSE(plan.place.has("step.json"));
    CHECK_FALSE(plan.place.has("step-11.json"));
    for (const auto* name : {"step-01.json", "step-02.json", "step-10.json"})
        CHECK(operations_in(plan.document(name)) == operations_in(plan.document()));
    const auto stream = plan.run({"--steps", "2", "--out", "-"});
    CHECK_MESSAGE((stream.status == 2 && stream.says({"--out", "one step"})), stream);
    // A further file is checked when it is written.
    const auto input = plan.place.write("in-2.json", plan.place.read("plan.json"));
    const auto shared = program::run(
        {"run", plan.problem, input, "--steps", "2", "--scale", "0.00001", "--out", plan.place / "in.json"});
    CHECK_MESSAGE((shared.status == 2 && shared.says({"in-2.json", "would replace the input"})), shared);
    CHECK(plan.place.read("in-2.json") == plan.place.read("plan.json"));
    const auto quiet = plan.run({"--quiet", "--scale", "0.0001", "--out", plan.place / "m.json"});
    CHECK_MESSAGE((quiet.status == 0 && quiet.out.empty() && quiet.err.empty()), quiet);
    CHECK(plan.place.has("m.json"));
}

TEST_CASE("a plan that breaks a rule isn't run") {
    const planned plan{"two-ranks.json"};
    auto changed = plan.document();
    changed["operations"].erase(changed["operations"].begin());
    const auto short_of_one = plan.run_changed(changed);
    CHECK_MESSAGE((short_of_one.status == 2 && short_of_one.says({"changed.json", "0F0"})), short_of_one);
    changed = plan.document();
    changed["operations"][0]["op"] = "9F0";
    const auto far = plan.run_changed(changed);
    CHECK_MESSAGE((far.status == 2 && far.says({"changed.json", "9F0", "no such stage"})), far);
    changed = plan.document();
    for (auto& entry : changed["operations"])
        entry["end"] = 1.5 * entry["end"].get<double>();
    const auto longer = plan.run_changed(changed);
    CHECK_MESSAGE((longer.status == 2 && longer.says({"changed.json"})), longer);
    const auto other = program::run({"run", data("chunks.json"), plan.schedule});
    CHECK_MESSAGE((other.status == 2 && other.says({"plan.json"})), other);
}

TEST_CASE("what can't be run is refused and leaves no file") {
    const planned plan{"two-ranks.json"};
    const auto before = plan.place.files();
    struct {
        std::vector<std::string> options;
        std::vector<std::string> says;
    } const cases[] = {
        {{"--scale", "0"}, {"--scale", "0 s", "a microsecond to a day"}},
        {{"--scale", "1e-300"}, {"--scale", "a microsecond to a day"}},
        {{"--scale", "1e300"}, {"--scale", "a microsecond to a day"}},
        {{"--scale", "-1"}, {"--scale", "-1"}},
        {{"--scale", "nan"}, {"--scale", "nan"}},
        {{"--steps", "0"}, {"--steps"}},
        {{"--steps", "-3"}, {"--steps"}},
    };
    for (const auto& [options, says] : cases) {
        const auto result = plan.run(options);
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says(says)), result);
    }
    CHECK(plan.place.files() == before);
}

TEST_CASE("a problem with more ranks than threads can stand for is refused") {
    const planned plan{"two-ranks.json"};
    auto wide = json::parse(content_of(plan.problem));
    wide["ranks"] = 300;
    const auto stage = wide["stages"][0];
    wide["stages"] = json::array();
    wide["transfer"].erase("links");
    wide["memory_limit"] = nullptr;
    wide["microbatches"] = 1;
    for (int r = 0; r < 300; ++r) {
        wide["stages"].push_back(stage);
        wide["stages"].back()["rank"] = r;
    }
    const auto problem = plan.place.write("wide.json", wide.dump());
    REQUIRE(program::run({"plan", problem, "--method", "gpipe", "--quiet", "--out", plan.schedule}).status == 0);
    const auto result = program::run({"run", problem, plan.schedule});
    CHECK_MESSAGE((result.status == 2 && result.says({"wide.json", "300 ranks", "at most 256"})), result);
}

#if defined(OPTPIPE_HAS_MILP)
TEST_CASE("a run that plans again prints what it did, and draws its step times") {
    const planned plan{"two-ranks.json"};
    const auto result = plan.run(
        {"--online", "--steps", "12", "--scale", "0.0001", "--slow-link", "2", "--svg", plan.place / "steps.svg"});
    REQUIRE_MESSAGE(result.status == 0, result);
    CHECK_MESSAGE(contains(result.out, "12 steps of "), result);
    CHECK_MESSAGE(contains(result.out, "% of a processor"), result);
    CHECK(contains(plan.place.read("steps.svg"), "step time over 12 steps"));

    CHECK(plan.run({"--slow-link", "2"}).status == 2);
    CHECK(plan.run({"--online", "--out", plan.place / "x.json"}).status == 2);
    CHECK(plan.run({"--online", "--slow-link", "0"}).status == 2);
}
#endif

#endif
