#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/io/json.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;

namespace {

const char* const example = R"({ "format": "optpipe.problem/2", "name": "stored", "ranks": 2, "microbatches": 1,
  "stages": [
    { "rank": 0, "forward": 10, "backward_input": 10.5, "backward_weight": 6, "activation": 1, "storage": [
        {"name": "keep"},
        {"name": "offload", "transfer_size": 1, "offload": 8, "reload": 9},
        {"name": "full", "held": 0.1, "backward_extra": 10, "note": "not ours"},
        {"name": "ahead", "held": 0.1, "recompute": 11},
        {"name": "both", "held": 0.6, "transfer_size": 0.5, "offload": 4, "reload": 5, "recompute": 1.5} ] },
    { "rank": 1, "forward": 10, "backward_input": 10.5, "backward_weight": 6, "activation": 1, "offload": 7,
      "reload": 7 } ] })";

std::vector<violation> violations_of(const std::string& text) {
    try {
        (void)parse_problem(text, "file.json");
    } catch (const input_error& refused) {
        CHECK(refused.source() == "file.json");
        return refused.violations();
    }
    return {};
}

/// Checks that the example with one change has exactly this violation.
void refuses(const char* pointer, const json& value, const std::string& place, const std::string& reason) {
    auto changed = json::parse(example);
    changed[json::json_pointer{pointer}] = value;
    const auto found = violations_of(changed.dump());
    INFO(pointer << " = " << value.dump() << ": " << (found.empty() ? "nothing" : found[0].text()));
    REQUIRE(found.size() == 1);
    CHECK(found[0].place == place);
    CHECK(sample::contains(found[0].reason, reason));
}

bool same_storage(const problem& a, const problem& b) {
    bool same = a.costs == b.costs;
    for (const stage s : a.graph.all_stages()) {
        same = same && a.storage[s].size() == b.storage[s].size();
        for (std::size_t i = 0; same && i < a.storage[s].size(); ++i)
            same = a.storage[s][i] == b.storage[s][i];
    }
    return same;
}

/// Half of the first stash is offloaded, and the stash is recomputed.
schedule_report example_report(const problem& p) {
    order given{p.graph, {}};
    const stage s0{0};
    const stage s1{1};
    const microbatch m{0};
    given.operations = {forward(s0, m),   offload_of(s0, m),   forward(s1, m), backward(s1, m),
                        reload_of(s0, m), recompute_of(s0, m), backward(s0, m)};
    for (auto& op : given.operations)
        op.storage = op.stage == s0 ? 4 : 0;
    const auto timed = *simulate(p, given);
    return {"by hand", timed, measure(p, timed), {}};
}

std::vector<violation> all_violations(const problem& p, const json& file) {
    const auto document = parse_schedule(file.dump(), "x");
    auto found = storage_violations(p, document);
    for (auto& v : validate(p, to_schedule(p, document)))
        found.push_back(std::move(v));
    return found;
}

} // namespace

TEST_CASE("every field of a storage option is read") {
    const auto p = parse_problem(example, "x");
    REQUIRE(p.storage[stage{0}].size() == 5);
    const auto& list = p.storage[stage{0}];
    CHECK(list[0] == storage_option{"keep", memory_size{1}, {}, {}, {}, {}});
    CHECK(list[1] ==
          storage_option{"offload", memory_size{1}, {}, {}, memory_size{1}, transfer_times{duration{8}, duration{9}}});
    CHECK(list[2] == storage_option{"full", memory_size{0.1}, {}, duration{10}, {}, {}});
    CHECK(list[3] == storage_option{"ahead", memory_size{0.1}, duration{11}, {}, {}, {}});
    CHECK(list[4] ==
          storage_option{
              "both", memory_size{0.6}, duration{1.5}, {}, memory_size{0.5}, transfer_times{duration{4}, duration{5}}});
    CHECK(p.storage_options(stage{1}) == 2);
    CHECK(p.storage_of(stage{1}, 1).transfer == transfer_times{duration{7}, duration{7}});
}

TEST_CASE("a list of what transfer times describe is written as these") {
    auto changed = json::parse(example);
    auto& list = changed["stages"][0]["storage"];
    list = json::parse(R"([{"name": "keep"}, {"name": "offload", "transfer_size": 1, "offload": 8, "reload": 9}])");
    auto p = parse_problem(changed.dump(), "x");
    CHECK(is_described_by_costs(p));
    CHECK(p.storage_of(stage{0}, 1).transfer == transfer_times{duration{8}, duration{9}});
    CHECK(json::parse(problem_to_json(p))["format"] == "optpipe.problem/1");
    list = json::parse(R"([{"name": "keep"}])");
    CHECK(is_described_by_costs(parse_problem(changed.dump(), "x")));
    list = json::parse(R"([{"name": "offload", "transfer_size": 1, "offload": 8, "reload": 9}])");
    CHECK_FALSE(is_described_by_costs(parse_problem(changed.dump(), "x")));
}

TEST_CASE("version 2 without lists is version 1") {
    auto changed = json::parse(problem_to_json(sample::two_ranks()));
    CHECK(changed["format"] == "optpipe.problem/1");
    changed["format"] = "optpipe.problem/2";
    CHECK(same_storage(parse_problem(changed.dump(), "x"), sample::two_ranks()));
}

TEST_CASE("a problem with storage options is written as people write it") {
    const auto text = problem_to_json(parse_problem(example, "x"));
    CHECK(sample::contains(text, "\"format\": \"optpipe.problem/2\""));
    CHECK(sample::contains(text, R"("storage": [
        { "name": "keep", "held": 1 },
        { "name": "offload", "held": 1, "transfer_size": 1, "offload": 8, "reload": 9 },
        { "name": "full", "held": 0.1, "backward_extra": 10 },
        { "name": "ahead", "held": 0.1, "recompute": 11 },
        { "name": "both", "held": 0.6, "recompute": 1.5, "transfer_size": 0.5, "offload": 4, "reload": 5 } ] })"));
    CHECK(same_storage(parse_problem(text, "x"), parse_problem(example, "x")));
}

TEST_CASE("storage options that contradict are refused, with the field and the reason") {
    REQUIRE(violations_of(example).empty());
    const std::string at = "stages[0].storage[";
    refuses("/stages/0/storage/2/held", 1.5, at + "2].held", "1.5 is above the stage's activation, 1");
    refuses("/stages/0/storage/2/held", -1, at + "2].held", "must not be negative");
    refuses("/stages/0/storage/2/held", "x", at + "2].held", "must be a number");
    refuses("/stages/0/storage/4/transfer_size", 0.7, at + "4].transfer_size", "0.7 is above held, 0.6");
    refuses("/stages/0/storage/3/backward_extra", 1, at + "3].backward_extra", "excludes recompute");
    refuses("/stages/0/storage/3/recompute", -1, at + "3].recompute", "must not be negative");
    refuses("/stages/0/storage/0/transfer_size", 0.5, at + "0].transfer_size", "needs offload and reload");
    refuses("/stages/0/storage/4/offload", nullptr, at + "4].offload", "is missing, but reload is given");
    refuses("/stages/0/storage/4/reload", nullptr, at + "4].reload", "is missing, but offload is given");
    refuses("/stages/0/storage/0/offload", 3, at + "0].reload", "is missing, but offload is given");
    refuses("/stages/0/storage/4/reload", -3, at + "4].reload", "must not be negative");
    refuses("/stages/0/storage/3/name", "full", at + "3].name", "is that of storage[2], too");
    refuses("/stages/0/storage/3/name", "", at + "3].name", "must not be empty");
    refuses("/stages/0/storage/3/name", 3, at + "3].name", "must be a string, is 3");
    refuses("/stages/0/storage/3/name", std::string(33, 'x'), at + "3].name", "must have at most 32 bytes");
    refuses("/stages/0/storage/3", 3, at + "3]", "must be an object, is 3");
    refuses("/stages/0/storage/3/recomputed", 3, at + "3].recomputed", "did you mean recompute?");
    refuses("/stages/0/storage", json::array(), "stages[0].storage", "must hold at least one option");
    refuses("/stages/0/storage", 3, "stages[0].storage", "must be a list, is 3");
    refuses("/stages/0/storage", nullptr, "stages[0].storage", "must be a list, is null");
    refuses("/stages/1/storage", json::array({{{"name", "keep"}}}), "stages[1].storage", "excludes offload and reload");
    refuses("/memory_limit", 0.5, "memory_limit[1]", "0.5 is below 1, what a single microbatch needs");
    auto changed = json::parse(example);
    changed["stages"][0]["storage"][1].erase("name");
    REQUIRE(violations_of(changed.dump()).size() == 1);
    CHECK(violations_of(changed.dump())[0].text() == "stages[0].storage[1].name: is missing");
    changed = json::parse(example);
    while (changed["stages"][0]["storage"].size() < 33)
        changed["stages"][0]["storage"].push_back(
            {{"name", "x" + std::to_string(changed["stages"][0]["storage"].size())}});
    REQUIRE(violations_of(changed.dump()).size() == 1);
    CHECK(sample::contains(violations_of(changed.dump())[0].text(), "holds 33 options, at most 32"));
}

TEST_CASE("a value of a wrong type is one fault, wherever it is") {
    const auto all = json::parse(example).flatten();
    for (const auto& [field, value] : all.items()) {
        CAPTURE(field);
        if (field.ends_with("/note")) continue;
        auto changed = json::parse(example);
        changed[json::json_pointer{field}] = json::object();
        const auto found = violations_of(changed.dump());
        REQUIRE(found.size() == 1);
        CHECK(sample::contains(found[0].reason, "an object"));
    }
}

TEST_CASE("a schedule names the storage option of each forward whose stage has a list") {
    const auto p = parse_problem(example, "x");
    const auto report = example_report(p);
    const auto text = schedule_to_json(p, report);
    CHECK(sample::contains(text, "\"format\": \"optpipe.schedule/2\""));
    CHECK(sample::contains(text, "{ \"op\": \"0F0\", \"start\": 0, \"end\": 10, \"storage\": \"both\" }"));
    CHECK(sample::contains(text, "{ \"op\": \"0RECOMPUTE0\""));
    CHECK(sample::count(text, "storage") == 1);
    const auto again = to_schedule(p, parse_schedule(text, "x"));
    CHECK(validate(p, again).empty());
    CHECK(order_of(again).operations == order_of(report.schedule).operations);
}

TEST_CASE("without a name it is offload where there is an OFFLOAD, else keep") {
    const auto p = parse_problem(example, "x");
    const auto read = [&](const char* operations) {
        const auto text = R"({"format": "optpipe.schedule/1", "operations": [)" + std::string{operations} + "]}";
        return to_schedule(p, parse_schedule(text, "x")).operations;
    };
    for (const auto& timed : read(R"({"op": "0F0", "start": 0, "end": 10}, {"op": "0B0", "start": 20, "end": 30})"))
        CHECK(timed.op.storage == 0);
    for (const auto& timed :
         read(R"({"op": "0OFFLOAD0", "start": 10, "end": 18}, {"op": "0F0", "start": 0, "end": 10})"))
        CHECK(timed.op.storage == 1);
}

TEST_CASE("a storage option that its stage doesn't have, or doesn't follow, is a violation") {
    const auto p = parse_problem(example, "x");
    const auto file = json::parse(schedule_to_json(p, example_report(p)));
    REQUIRE(all_violations(p, file).empty());
    const auto complaint = [&](const json& name, std::size_t at = 0) {
        auto changed = file;
        changed["operations"][at]["storage"] = name;
        const auto found = all_violations(p, changed);
        return found.empty() ? std::string{} : found[0].text();
    };
    CHECK(complaint("fulll") == "0F0: its stage has no storage option \"fulll\"");
    CHECK(sample::contains(complaint("ahead"), "0OFFLOAD0: this stage can't be offloaded"));
    CHECK(complaint("offload") == "rank 0: 0OFFLOAD0 lasts 4, not 8");
    std::size_t second = 0;
    while (file["operations"][second]["op"] != "1F0")
        ++second;
    CHECK(complaint("keep", second).empty());
    CHECK(complaint("offload", second) == "rank 1: 1OFFLOAD0 is missing: its storage option asks for it");
}

TEST_CASE("where a schedule may name storage options") {
    const auto p = parse_problem(example, "x");
    auto file = json::parse(schedule_to_json(p, example_report(p)));
    const auto violations = [](const json& changed) {
        try {
            (void)parse_schedule(changed.dump(), "x");
        } catch (const input_error& refused) {
            return refused.violations();
        }
        return std::vector<violation>{};
    };
    auto changed = file;
    changed["operations"][1]["storage"] = "keep";
    REQUIRE(violations(changed).size() == 1);
    CHECK(violations(changed)[0].text() == "operations[1].storage: belongs to forwards alone");
    changed = file;
    changed["operations"][0]["storage"] = 3;
    REQUIRE(violations(changed).size() == 1);
    CHECK(violations(changed)[0].text() == "operations[0].storage: must be a string, is 3");
    changed = file;
    changed["format"] = "optpipe.schedule/1";
    REQUIRE(violations(changed).size() == 1);
    CHECK(sample::contains(violations(changed)[0].text(), "belong to optpipe.schedule/2"));
}

TEST_CASE("random problems and schedules with storage options read back as they were") {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, {.storage_percent = 100});
        const auto p = parse_problem(problem_to_json(given.problem), "x");
        REQUIRE(validate(given.problem).empty());
        const auto s = oracle::random_schedule(random, {p, given.grid});
        const auto text = schedule_to_json(p, {"random", s, measure(p, s), {}});
        const auto again = to_schedule(p, parse_schedule(text, "x"));
        CHECK(validate(p, again).empty());
        CHECK(order_of(again).operations == order_of(s).operations);
    }
}

#endif
