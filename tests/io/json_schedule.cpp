#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/json.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/schedule/construct/forward_plan.hpp"
#include "oracle/random_cases.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;

namespace {

json example() { return json::parse(schedule_to_json(sample::two_ranks(), sample::report_of(sample::two_ranks()))); }

std::vector<violation> violations_of(const std::string& text) {
    try {
        (void)parse_schedule(text, "file.json");
    } catch (const input_error& refused) {
        return refused.violations();
    }
    return {};
}

void refuses(const char* pointer, const json& value, const std::string& place, const std::string& reason) {
    auto changed = example();
    changed[json::json_pointer{pointer}] = value;
    const auto found = violations_of(changed.dump());
    INFO(pointer << " = " << value.dump());
    REQUIRE(found.size() == 1);
    CHECK(found[0].place == place);
    CHECK(sample::contains(found[0].reason, reason));
}

} // namespace

TEST_CASE("a schedule is written by start, an operation per line") {
    CHECK(schedule_to_json(sample::two_ranks(), sample::report_of(sample::two_ranks())) ==
          R"({ "format": "optpipe.schedule/1",
  "problem": "sample",
  "method": "by hand",
  "objective": 17,
  "bound": 13.6,
  "gap": 0.2,
  "bubble_rate": 0.4117647058823529,
  "peak_memory": [4, 3],
  "operations": [
    { "op": "0F0", "start": 0, "end": 2 },
    { "op": "0OFFLOAD0", "start": 2, "end": 3 },
    { "op": "0F1", "start": 2, "end": 4 },
    { "op": "1F0", "start": 3, "end": 5 },
    { "op": "1I0", "start": 5, "end": 7 },
    { "op": "0RELOAD0", "start": 6, "end": 7 },
    { "op": "1F1", "start": 7, "end": 9 },
    { "op": "0I0", "start": 8, "end": 10 },
    { "op": "1W0", "start": 9, "end": 10 },
    { "op": "0W0", "start": 10, "end": 11 },
    { "op": "1B1", "start": 10, "end": 13 },
    { "op": "0B1", "start": 14, "end": 17 } ] }
)");
    const auto unproven = schedule_to_json(sample::two_ranks(), sample::report_of(sample::two_ranks(), std::nullopt));
    CHECK(sample::contains(unproven, "\"bound\": null,\n  \"gap\": null,"));
}

TEST_CASE("a schedule reads back as it was") {
    const auto p = sample::two_ranks();
    auto report = sample::report_of(p);
    for (auto& timed : report.schedule.operations)
        timed.end += duration{1.0 / 3.0};
    const auto document = parse_schedule(schedule_to_json(p, report), "x");
    CHECK(document.problem_name == "sample");
    CHECK(document.method == "by hand");
    CHECK(document.unreadable.empty());
    auto written = report.schedule.operations;
    std::sort(written.begin(), written.end(), starts_before);
    const auto read = to_schedule(p, document).operations;
    CHECK(std::equal(written.begin(), written.end(), read.begin(), read.end()));
    CHECK(document.objective == duration{17});
    CHECK(document.bound == duration{13.6});
    CHECK(document.peak_memory == std::vector{memory_size{4}, memory_size{3}});
}

TEST_CASE("what is derived may be left out or null") {
    const auto document =
        parse_schedule(R"({"format": "optpipe.schedule/1", "bound": null, "gap": null, "operations": []})", "x");
    CHECK(!document.objective);
    CHECK(!document.bound);
    CHECK(!document.gap);
    CHECK(!document.bubble_rate);
    CHECK(!document.peak_memory);
    CHECK(document.operations.empty());
}

TEST_CASE("spellings that mean nothing are listed, the others are read") {
    auto changed = example();
    changed["operations"][1]["op"] = "0FETCH0";
    changed["operations"][3]["op"] = "";
    const auto document = parse_schedule(changed.dump(), "x");
    CHECK(document.operations.size() == 10);
    REQUIRE(document.unreadable.size() == 2);
    CHECK(document.unreadable[0].place == "operations[1].op");
    CHECK(sample::contains(document.unreadable[0].reason, "\"0FETCH0\" is no operation"));
    CHECK(document.unreadable[1].place == "operations[3].op");
}

TEST_CASE("departures from the format are refused") {
    REQUIRE(violations_of(example().dump()).empty());
    refuses("/format", "optpipe.problem/1", "format", "must be \"optpipe.schedule/1\"");
    refuses("/problem", 1, "problem", "must be a string");
    refuses("/method", 1, "method", "must be a string");
    refuses("/objective", "x", "objective", "must be a number");
    refuses("/bound", false, "bound", "must be a number");
    refuses("/gap", "x", "gap", "must be a number");
    refuses("/bubble_rate", "x", "bubble_rate", "must be a number");
    refuses("/peak_memory", 1, "peak_memory", "must be a list");
    refuses("/peak_memory/1", "x", "peak_memory[1]", "must be a number");
    refuses("/operations", json::object(), "operations", "must be a list, is an object");
    refuses("/operations", json{{"op", json::array({1, 2})}}, "operations", "must be a list, is an object");
    refuses("/operations/2", 5, "operations[2]", "must be an object, is 5");
    refuses("/operations/2", json::array({1, json::array()}), "operations[2]", "must be an object, is a list");
    refuses("/operations/2/op", 5, "operations[2].op", "must be a string");
    refuses("/operations/2/start", "x", "operations[2].start", "must be a number");
    refuses("/operations/2/end", nullptr, "operations[2].end", "must be a number");
    for (const char* field : {"op", "start", "end"}) {
        auto changed = example();
        changed["operations"][4].erase(field);
        const auto found = violations_of(changed.dump());
        REQUIRE(found.size() == 1);
        CHECK(found[0].text() == std::string{"operations[4]."} + field + ": is missing");
    }
    auto changed = example();
    changed.erase("operations");
    REQUIRE(violations_of(changed.dump()).size() == 1);
    CHECK(violations_of(changed.dump())[0].text() == "operations: is missing");
    CHECK(violations_of("[{\"operations\": [{}]}]")[0].text() == "must be an object, is a list");
}

TEST_CASE("a field that the format doesn't know is refused, unless it is a note") {
    auto changed = example();
    changed["objektive"] = 1;
    changed["operations"][3]["stop"] = 1;
    const auto found = violations_of(changed.dump());
    REQUIRE(found.size() == 2);
    CHECK(found[0].text() == "objektive: is no field of this format; did you mean objective?");
    CHECK(found[1].text() == "operations[3].stop: is no field of this format");
    changed = example();
    for (auto* level : {&changed, &changed["operations"][0]}) {
        (*level)["note"] = "by hand";
        (*level)["x-weight"] = json::object();
    }
    CHECK(violations_of(changed.dump()).empty());
}

TEST_CASE("two fields of one name are refused") {
    const auto found = violations_of(R"({"format": "optpipe.schedule/1", "operations": [{"op": "0F0"}],
        "operations": [{"op": "0F0", "start": 0, "end": 1}]})");
    REQUIRE(found.size() == 1);
    CHECK(found[0].text() == "has the field operations twice in one object");
}

TEST_CASE("a million operations are no tree") {
    const std::size_t count = 1'100'000 / oracle::stride(8);
    std::string text = "{\"format\": \"optpipe.schedule/1\", \"operations\": [";
    for (std::size_t i = 0; i < count; ++i)
        text += (i == 0 ? "" : ",") + std::string{"{\"op\":\"0F"} + std::to_string(i) + "\",\"start\":1,\"end\":2}";
    // Four values each: as a tree they would exceed the limit of a text.
    CHECK(parse_schedule(text + "]}", "x").operations.size() == count);
    CHECK(violations_of(text).size() == 1);

    std::size_t elements = 0;
    const detail::streamed_list list{"operations", [&](const json&) { ++elements; }};
    const auto root =
        detail::parse_json(R"({"operations": [1, [2, 3], {"operations": [4]}], "other": [5]})", "x", &list);
    CHECK(elements == 3);
    CHECK(root == json{{"operations", json::array()}, {"other", {5}}});
}

TEST_CASE("forwards alone say that they are") {
    const auto p = sample::two_ranks();
    const auto planned = *plan_forwards(p);
    const auto text = schedule_to_json(forward_problem(p), planned);
    CHECK(json::parse(text)["format"] == "optpipe.schedule/2");
    const auto document = parse_schedule(text, "file.json");
    CHECK(document.forward_only);
    CHECK(document.bound == planned.bound);
    CHECK(validate_forward_only(p, to_schedule(p, document)).empty());
    CHECK_FALSE(parse_schedule(example().dump(), "file.json").forward_only);

    auto changed = json::parse(text);
    changed["format"] = "optpipe.schedule/1";
    const auto found = violations_of(changed.dump());
    REQUIRE(found.size() == 1);
    CHECK(found[0].text() == "forward_only: belongs to optpipe.schedule/2");
    changed["format"] = "optpipe.schedule/2";
    changed["forward_only"] = 1;
    REQUIRE(violations_of(changed.dump()).size() == 1);
    CHECK(violations_of(changed.dump())[0].place == "forward_only");
}

TEST_CASE("all that is wrong with a document, or what the rest depends on") {
    const auto p = sample::two_ranks();
    const auto honest = parse_schedule(schedule_to_json(p, sample::report_of(p)), "x");
    CHECK(document_violations(p, honest).empty());
    auto boastful = honest;
    boastful.objective = duration{1.0};
    REQUIRE(document_violations(p, boastful).size() == 1);
    CHECK(document_violations(p, boastful)[0].place == "objective");
    boastful.operations.front().op.stage = stage{99}; // whose rank must not be queried
    const auto found = document_violations(p, boastful);
    CHECK(!found.empty());
    for (const auto& v : found)
        CHECK(v.place != "objective");

    auto document = parse_schedule(schedule_to_json(forward_problem(p), *plan_forwards(p)), "x");
    CHECK(document.forward_only);
    CHECK(document_violations(p, document).empty());
    document.forward_only = false;
    CHECK(!document_violations(p, document).empty());
}

TEST_CASE("a plan in a file reads as a valid schedule of its problem, or says what is wrong") {
    const auto p = sample::two_ranks();
    const std::string path = "optpipe-read-plan-test.json";
    const auto read_back = [&](const problem& of, const schedule_report& report) {
        write_file(path, schedule_to_json(of, report));
        auto planned = report.schedule;
        std::sort(planned.operations.begin(), planned.operations.end(), starts_before);
        CHECK(read_plan(p, path).operations == planned.operations);
    };
    read_back(p, sample::report_of(p));
    read_back(forward_problem(p), *plan_forwards(p));

    auto changed = example();
    changed["operations"].erase(0);
    write_file(path, changed.dump());
    CHECK_THROWS_WITH_AS(static_cast<void>(read_plan(p, path)), doctest::Contains(path.c_str()), input_error);
    std::filesystem::remove(path);
}

TEST_CASE("claims are held against the operations") {
    const auto p = sample::two_ranks();
    const auto report = sample::report_of(p);
    const auto honest = parse_schedule(schedule_to_json(p, report), "x");
    const auto slacks = claim_slacks_of(p, report.schedule);
    const auto complaint = [&](auto change) {
        auto document = honest;
        change(document);
        const auto found = claims_violations(document, report.measures, slacks);
        return found.empty() ? std::string{} : found.size() > 1 ? "several" : found[0].text();
    };
    CHECK(complaint([](auto&) {}).empty());
    CHECK(complaint([](auto& d) { d.objective = duration{17.1}; }) ==
          "objective: the file says 17.1, its operations give 17");
    CHECK(complaint([](auto& d) { d.objective = duration{17 * (1 + 0.9e-6)}; }).empty());
    CHECK(!complaint([](auto& d) { d.objective = duration{17 * (1 - 1.1e-6)}; }).empty());
    CHECK(sample::contains(complaint([](auto& d) { d.bubble_rate = 0.41177; }), "bubble_rate: the file says 0.41177"));
    CHECK(complaint([](auto& d) { *d.bubble_rate += 0.9e-6; }).empty());
    CHECK(sample::contains(complaint([](auto& d) { (*d.peak_memory)[1] = memory_size{2}; }), "peak_memory[1]"));
    CHECK(complaint([](auto& d) { (*d.peak_memory)[1] = memory_size{3 + 2e-6}; }).empty());
    CHECK(sample::contains(complaint([](auto& d) { d.peak_memory->pop_back(); }), "has 1 entries, there are 2 ranks"));
    CHECK(sample::contains(complaint([](auto& d) { d.gap = 0.21; }), "gap: the file says 0.21"));
    CHECK(complaint([](auto& d) { d.bound.reset(); }) == "gap: there is no bound that it could be the distance to");
    CHECK(complaint([](auto& d) { d.gap.reset(), d.bound = duration{17.1}; }) ==
          "bound: 17.1 is above the objective 17");
    CHECK(complaint([](auto& d) { d.gap.reset(), d.bound = duration{17}; }).empty());
}

#endif
