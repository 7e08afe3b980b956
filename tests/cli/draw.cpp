#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace program;
using nlohmann::json;

TEST_CASE("draw draws what plan draws") {
    const workplace place;
    const auto problem = data("chunks.json");
    REQUIRE(
        run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", place / "s.json", "--svg", place / "plan.svg"})
            .status == 0);
    const auto result = run({"draw", place / "s.json", "--problem", problem, "--svg", place / "draw.svg"});
    CHECK_MESSAGE((result.status == 0 && result.out.empty() && result.err.empty()), result);
    CHECK(place.read("draw.svg") == place.read("plan.svg"));
}

TEST_CASE("the problem may also be named after the plan, as in version 0.1") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--out", place / "s.json"}).status == 0);
    const auto result = run({"draw", problem, place / "s.json"});
    CHECK_MESSAGE((result.status == 0 && contains(result.out, "rank 1")), result);
    CHECK(run({"draw", place / "s.json", "--problem", problem}).out == result.out);
    CHECK(run({"draw", "--problem", problem, place / "s.json"}).out == result.out);
}

TEST_CASE("an invalid schedule is drawn, with a note") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", place / "s.json"}).status == 0);
    auto document = json::parse(place.read("s.json"));
    document["operations"].erase(document["operations"].begin());
    place.write("s.json", document.dump());
    const auto result = run({"draw", place / "s.json", "--problem", problem, "--svg", place / "s.svg"});
    CHECK_MESSAGE((result.status == 0 && result.says({"note", "0F0"})), result);
    CHECK(place.has("s.svg"));
}

TEST_CASE("what can't be drawn is refused and leaves no picture") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", place / "s.json"}).status == 0);
    auto document = json::parse(place.read("s.json"));
    document["operations"][0]["op"] = "9F0";
    place.write("far.json", document.dump());
    const auto before = place.files();
    const auto far = run({"draw", place / "far.json", "--problem", problem, "--svg", place / "s.svg"});
    CHECK_MESSAGE((far.status == 2 && far.says({"far.json", "9F0"})), far);
    const auto missing = run({"draw", place / "none.json", "--problem", problem, "--svg", place / "s.svg"});
    CHECK_MESSAGE((missing.status == 2 && missing.says({"none.json"})), missing);
    const auto full = run({"draw", place / "s.json", "--problem", problem, "--svg", "/dev/full"});
    CHECK_MESSAGE((full.status == 2 && full.says({"/dev/full"})), full);
    CHECK(place.files() == before);
}

namespace {

/// A plan, and a measurement of it in which everything takes twice as long.
struct measured_plan {
    workplace place;
    std::string problem = data("two-ranks.json");
    json slower;

    measured_plan() {
        REQUIRE(run({"plan", problem, "--quiet", "--time-limit", "0.2", "--out", place / "s.json"}).status == 0);
        slower = json::parse(place.read("s.json"));
        slower["method"] = "measured";
        for (auto& entry : slower["operations"])
            for (const auto* when : {"start", "end"})
                entry[when] = 2.0 * entry[when].get<double>();
    }
    [[nodiscard]] finished draw(const json& measured) const {
        return run({"draw", place / "s.json", "--problem", problem, "--measured",
                    place.write("m.json", measured.dump()), "--svg", place / "o.svg", "--trace", place / "t.json"});
    }
};

} // namespace

TEST_CASE("a measurement is drawn over its plan, whatever its durations") {
    const measured_plan plan;
    const auto result = plan.draw(plan.slower);
    CHECK_MESSAGE((result.status == 0 && result.err.empty()), result);
    CHECK_MESSAGE(contains(result.out, "rank 0 plan "), result);
    CHECK_MESSAGE(contains(result.out, "rank 1 run "), result);
    const auto forwards = words_after("F", result.out);
    REQUIRE_MESSAGE(forwards.size() == 6, result);
    CHECK_MESSAGE((std::vector<std::string>{forwards.begin(), forwards.end() - 1} ==
                   std::vector<std::string>{"8", "10", "20", "+10", "+10"}),
                  result);
    CHECK(contains(plan.place.read("o.svg"), "ratio 2  ·"));
    CHECK(contains(plan.place.read("t.json"), "rank 0 plan"));
    const auto text_only = run({"draw", plan.problem, plan.place / "s.json", "--measured", plan.place / "m.json"});
    CHECK_MESSAGE((text_only.status == 0 && text_only.out == result.out), text_only);
}

TEST_CASE("what isn't a measurement of the plan is refused") {
    const measured_plan plan;
    auto changed = plan.slower;
    changed["operations"].erase(changed["operations"].begin());
    const auto missing = plan.draw(changed);
    CHECK_MESSAGE((missing.status == 2 && missing.says({"m.json", "0F0 of the plan is missing"})), missing);
    changed = plan.slower;
    changed["operations"].push_back(changed["operations"][0]);
    const auto twice = plan.draw(changed);
    CHECK_MESSAGE((twice.status == 2 && twice.says({"m.json", "0F0 appears twice"})), twice);
    changed = plan.slower;
    changed["operations"][0]["op"] = "0F9";
    const auto far = plan.draw(changed);
    CHECK_MESSAGE((far.status == 2 && far.says({"m.json", "0F9", "no such stage"})), far);
    changed = plan.slower;
    changed["operations"][0]["end"] = -1.0;
    const auto backwards = plan.draw(changed);
    CHECK_MESSAGE((backwards.status == 2 && backwards.says({"m.json", "ends before it starts"})), backwards);
    CHECK(!plan.place.has("o.svg"));
    CHECK(!plan.place.has("t.json"));
}

TEST_CASE("draw without a file prints, with one it doesn't") {
    const measured_plan plan;
    const auto printed = run({"draw", plan.place / "s.json", "--problem", plan.problem});
    CHECK_MESSAGE((printed.status == 0 && contains(printed.out, "\nrank 1 ") && contains(printed.out, "0F0")), printed);
    const auto trace =
        run({"draw", plan.place / "s.json", "--problem", plan.problem, "--trace", plan.place / "t.json"});
    CHECK_MESSAGE((trace.status == 0 && trace.out.empty()), trace);
    CHECK(plan.place.has("t.json"));
}

TEST_CASE("draw takes a window of ranks and time") {
    const measured_plan plan;
    const auto draw = [&](std::vector<std::string> window) {
        window.insert(window.begin(), {"draw", plan.problem, plan.place / "s.json"});
        return run(window);
    };
    const auto second = draw({"--ranks", "1", "--svg", plan.place / "w.svg", "--trace", plan.place / "w.json"});
    REQUIRE_MESSAGE(second.status == 0, second);
    CHECK(contains(plan.place.read("w.svg"), ">rank 1</text>"));
    CHECK(!contains(plan.place.read("w.svg"), ">rank 0</text>"));
    const auto events = json::parse(plan.place.read("w.json"))["traceEvents"];
    CHECK(std::all_of(events.begin(), events.end(), [](const json& event) { return event["pid"] == 2; }));

    const auto early = draw({"--to", "15"});
    CHECK_MESSAGE((early.status == 0 && contains(early.out, "0F0") && !contains(early.out, "0I0")), early);
    const auto late = draw({"--ranks", "0-1", "--from", "100"});
    CHECK_MESSAGE((late.status == 0 && contains(late.out, "rank 0 ") && contains(late.out, "rank 1 ")), late);
    CHECK(!contains(late.out, "0F0"));
    const auto both = draw({"--measured", plan.place.write("m.json", plan.slower.dump()), "--ranks", "0"});
    CHECK_MESSAGE((both.status == 0 && contains(both.out, "rank 0 run") && !contains(both.out, "rank 1 run")), both);

    struct {
        std::vector<std::string> window;
        std::vector<std::string> says;
    } const wrong[] = {
        {{"--ranks", "2"}, {"--ranks", "no rank 2", "the last is 1"}},
        {{"--ranks", "1-0"}, {"--ranks", "1-0"}},
        {{"--ranks", "0-"}, {"--ranks", "0-"}},
        {{"--ranks", "a"}, {"--ranks", "a"}},
        {{"--ranks", "0,1"}, {"--ranks", "0,1"}},
        {{"--from", "9", "--to", "3"}, {"--from", "--to"}},
        {{"--from", "1e9"}, {"--from", "152"}},
        {{"--from", "-1"}, {"--from", "-1"}},
        {{"--to", "nan"}, {"--to", "nan"}},
    };
    for (const auto& [window, says] : wrong) {
        const auto result = draw(window);
        CHECK_MESSAGE((result.status == 2 && result.out.empty() && result.says(says)), result);
    }
}

#endif
