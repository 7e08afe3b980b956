#include <doctest/doctest.h>

#if !defined(OPTPIPE_PROGRAM)
TEST_CASE("not built: the program is missing") {}
#else

#include "cli/program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace program;
using nlohmann::json;

namespace {

json lowered(const workplace& place, const std::string& problem, const std::vector<std::string>& options = {},
             const std::vector<std::string>& plan_options = {"--time-limit", "0.2"}) {
    std::vector<std::string> plan{"plan", problem, "--quiet", "--out", place / "plan.json"};
    plan.insert(plan.end(), plan_options.begin(), plan_options.end());
    REQUIRE(run(plan).status == 0);
    std::vector<std::string> lower{"lower", problem, place / "plan.json", "--out", place / "programs.json"};
    lower.insert(lower.end(), options.begin(), options.end());
    const auto done = run(lower);
    REQUIRE_MESSAGE((done.status == 0 && done.out.empty() && done.err.empty()), done);
    return json::parse(place.read("programs.json"));
}

/// Runs the programs as one thread per lane would, with sends that wait for their receives, and returns the operations
/// of each rank in the order in which they ended. Stops if no instruction can start.
std::vector<std::vector<std::string>> run_programs(const json& programs) {
    std::vector<std::vector<bool>> ended;
    for (const auto& p : programs)
        ended.emplace_back(p["instructions"].size());
    const auto is_next = [&](std::size_t r, std::size_t i) {
        const auto& list = programs[r]["instructions"];
        const auto is_over = [&](const json& before) { return ended[r][before.get<std::size_t>()]; };
        if (ended[r][i] || !std::all_of(list[i]["after"].begin(), list[i]["after"].end(), is_over)) return false;
        for (std::size_t before = 0; before < i; ++before)
            if (list[before]["lane"] == list[i]["lane"] && !ended[r][before]) return false;
        return true;
    };
    const auto has_partner = [&](std::size_t r, const json& message) {
        const auto peer = message["peer"].get<std::size_t>();
        const auto& list = programs[peer]["instructions"];
        for (std::size_t i = 0; i < list.size(); ++i)
            if (list[i]["kind"] == "exchange")
                for (const auto& other : list[i]["messages"])
                    if (other["of"] == message["of"] && other["side"] != message["side"] && other["peer"] == r)
                        return ended[peer][i] || is_next(peer, i);
        return false;
    };
    std::vector<std::vector<std::string>> order(ended.size());
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < ended.size(); ++r)
            for (std::size_t i = 0; i < ended[r].size(); ++i) {
                const auto& each = programs[r]["instructions"][i];
                if (!is_next(r, i)) continue;
                if (each["kind"] == "exchange" &&
                    !std::all_of(each["messages"].begin(), each["messages"].end(),
                                 [&](const json& message) { return has_partner(r, message); }))
                    continue;
                moved = ended[r][i] = true;
                if (each.contains("op")) order[r].push_back(each["op"]);
            }
    }
    return order;
}

} // namespace

TEST_CASE("the programs have every operation of the plan, and run to the end") {
    for (const std::string name : {"two-ranks.json", "chunks.json", "stored.json", "v-three-ranks.json"}) {
        CAPTURE(name);
        const workplace place;
        const auto document = lowered(place, data(name));
        CHECK(document["format"] == "optpipe.programs/1");
        std::multiset<std::string> planned;
        const auto plan = json::parse(place.read("plan.json"));
        for (const auto& entry : plan["operations"])
            planned.insert(entry["op"].get<std::string>());
        std::multiset<std::string> ended;
        for (const auto& order : run_programs(document["programs"]))
            ended.insert(order.begin(), order.end());
        CHECK(ended == planned);
    }
}

TEST_CASE("arenas are as large as the plan's peaks, and buffers lie within") {
    const workplace place;
    const auto document = lowered(place, data("stored.json"), {"--alignment", "1", "--bytes-per-unit", "1000"});
    const auto peaks = json::parse(place.read("plan.json"))["peak_memory"];
    CHECK((document["bytes_per_unit"] == 1000.0 && document["alignment"] == 1));
    for (std::size_t r = 0; r < peaks.size(); ++r) {
        const auto& p = document["programs"][r];
        CHECK(p["rank"] == r);
        CHECK(p["device_bytes"].get<double>() == doctest::Approx(1000.0 * peaks[r].get<double>()).epsilon(0.01));
        CHECK(p["message_bytes"] == 0);
        for (const auto& buffer : p["buffers"])
            for (const auto& segment : buffer["segments"])
                CHECK(segment[0].get<std::size_t>() + segment[1].get<std::size_t>() <=
                      p[buffer["arena"].get<std::string>() + "_bytes"].get<std::size_t>());
    }
}

TEST_CASE("messages have the lanes and the memory that were asked for") {
    const workplace place;
    const auto document = lowered(place, data("two-ranks.json"),
                                  {"--messages", "single", "--receives", "when-due", "--message-bytes", "100"});
    for (const auto& p : document["programs"]) {
        CHECK(std::count(p["lanes"].begin(), p["lanes"].end(), "communication") == 1);
        CHECK((p["message_bytes"] > 0 && p["message_bytes"].get<std::size_t>() % 256 == 0));
        for (const auto& each : p["instructions"])
            if (each["kind"] == "exchange") {
                CHECK(each["lane"] == "communication");
                for (const auto& message : each["messages"])
                    CHECK(message.contains("buffer"));
            }
    }
}

TEST_CASE("programs of graphs name the buffers that operations share") {
    const workplace place;
    const auto document = lowered(place, data("format3/vocab-small-p3-m3.json"), {"--message-bytes", "64"});
    std::multiset<std::string> planned;
    const auto plan = json::parse(place.read("plan.json"));
    for (const auto& entry : plan["operations"])
        planned.insert(entry["op"].get<std::string>());
    std::multiset<std::string> ended;
    for (const auto& order : run_programs(document["programs"]))
        ended.insert(order.begin(), order.end());
    CHECK(ended == planned);
    std::set<std::string> values;
    for (const auto& p : document["programs"])
        for (const auto& each : p["instructions"])
            for (const auto& link : each.value("links", json::array())) {
                values.insert(link["value"].get<std::string>());
                CHECK(link["buffer"].get<std::size_t>() < p["buffers"].size());
            }
    CHECK(values == std::set<std::string>{"boundary", "partial"});
}

TEST_CASE("forwards alone are lowered, too") {
    const workplace place;
    const auto document = lowered(place, data("two-ranks.json"), {}, {"--forward-only"});
    CHECK(document["forward_only"] == true);
    CHECK(run_programs(document["programs"])[0].size() == 4);
}

TEST_CASE("bad plans and options are refused with one line, and write nothing") {
    const workplace place;
    const auto problem = data("two-ranks.json");
    REQUIRE(run({"plan", problem, "--time-limit", "0.2", "--quiet", "--out", place / "plan.json"}).status == 0);
    const auto lower = [&](const std::vector<std::string>& more, const std::string& plan) {
        std::vector<std::string> arguments{"lower", problem, place / plan, "--out", place / "programs.json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run(arguments);
    };
    auto document = json::parse(place.read("plan.json"));
    document["operations"].erase(0);
    for (const auto* derived : {"objective", "bound", "gap", "bubble_rate", "peak_memory"})
        document.erase(derived);
    place.write("lacking.json", document.dump());
    const auto lacking = lower({}, "lacking.json");
    CHECK_MESSAGE((lacking.status == 2 && lacking.says({"lacking.json"})), lacking);
    CHECK(lower({"--messages", "two"}, "plan.json").says({"--messages", "two"}));
    CHECK(lower({"--receives", "late"}, "plan.json").says({"--receives", "late"}));
    CHECK(lower({"--alignment", "0"}, "plan.json").says({"--alignment", "0"}));
    CHECK(lower({"--bytes-per-unit", "-1"}, "plan.json").says({"--bytes-per-unit", "-1"}));
    CHECK(lower({"--message-bytes", "-1"}, "plan.json").status == 2);
    const auto large = lower({"--bytes-per-unit", "1e18"}, "plan.json");
    CHECK_MESSAGE((large.status == 2 && large.says({"plan.json", "can't be addressed", "bytes_per_unit"})), large);
    CHECK_FALSE(place.has("programs.json"));
}

TEST_CASE("a unit of memory that is a byte has one byte, and others have a GB") {
    const workplace place;
    auto problem = json::parse(content_of(data("two-ranks.json")));
    for (const auto& [unit, bytes] : {std::pair{"B", 1.0}, {"GB", 1e9}}) {
        problem["memory_unit"] = unit;
        CHECK(lowered(place, place.write("p.json", problem.dump()))["bytes_per_unit"] == bytes);
    }
}

#endif
