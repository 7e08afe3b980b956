#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/io/chrome_trace.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;
using json = nlohmann::json;

namespace {

json trace_of(const problem& p) { return json::parse(schedule_to_chrome_trace(p, sample::report_of(p))); }

std::vector<json> of_phase(const json& trace, const std::string& phase) {
    std::vector<json> events;
    for (const auto& event : trace["traceEvents"])
        if (event["ph"] == phase) events.push_back(event);
    return events;
}

/// The only slice that contains the event, strictly inside.
std::string slice_at(const json& trace, const json& event) {
    std::string name;
    for (const auto& slice : of_phase(trace, "X")) {
        const double start = slice["ts"];
        const double end = start + slice["dur"].get<double>();
        if (slice["pid"] == event["pid"] && slice["tid"] == event["tid"] && start < event["ts"] && event["ts"] < end)
            name += slice["name"];
    }
    return name;
}

} // namespace

TEST_CASE("every operation is a slice on the lane of its rank") {
    const auto trace = trace_of(sample::two_ranks());
    const auto slices = of_phase(trace, "X");
    CHECK(slices.size() == 12);
    std::map<std::string, json> by_name;
    for (const auto& slice : slices)
        by_name[slice["name"]] = slice;
    REQUIRE(by_name.size() == 12);
    const auto& offload = by_name["PP:0OFFLOAD0"];
    CHECK(offload["ts"] == 2000.0);
    CHECK(offload["dur"] == 1000.0);
    CHECK(offload["args"] == json{{"stage", 0}, {"microbatch", 0}, {"kind", "OFFLOAD"}});
    CHECK(offload["pid"] == by_name["PP:0F1"]["pid"]);
    CHECK(offload["tid"] != by_name["PP:0F1"]["tid"]);
    CHECK(offload["tid"] != by_name["PP:0RELOAD0"]["tid"]);
    CHECK(by_name["PP:1F0"]["pid"] != by_name["PP:0F0"]["pid"]);
}

TEST_CASE("processes are ranks, threads are lanes") {
    const auto trace = trace_of(sample::two_ranks());
    std::map<std::pair<int, int>, std::string> threads;
    std::map<int, std::string> processes;
    for (const auto& event : of_phase(trace, "M")) {
        if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
        if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
    }
    CHECK(processes.size() == 2);
    CHECK(processes.begin()->second == "rank 0");
    CHECK(threads.size() == 6);
    for (const auto& slice : of_phase(trace, "X")) {
        const std::string kind = slice["args"]["kind"];
        const auto lane = kind == "OFFLOAD" ? "offload" : kind == "RELOAD" ? "reload" : "compute";
        CHECK(threads.at({slice["pid"], slice["tid"]}) == lane);
    }
}

TEST_CASE("arrows join what hands over") {
    const auto trace = trace_of(sample::two_ranks());
    std::map<int, std::pair<std::string, std::string>> arrows;
    for (const auto& event : of_phase(trace, "s"))
        CHECK(arrows.emplace(event["id"], std::pair{slice_at(trace, event), ""}).second);
    for (const auto& event : of_phase(trace, "f")) {
        CHECK(event["bp"] == "e");
        REQUIRE(arrows.count(event["id"]) == 1);
        CHECK(arrows[event["id"]].second.empty());
        arrows[event["id"]].second = slice_at(trace, event);
    }
    std::map<std::pair<std::string, std::string>, int> found;
    for (const auto& [id, arrow] : arrows)
        ++found[arrow];
    const decltype(found) expected{{{"PP:0F0", "PP:1F0"}, 1},       {{"PP:0F1", "PP:1F1"}, 1},
                                   {{"PP:1I0", "PP:0I0"}, 1},       {{"PP:1B1", "PP:0B1"}, 1},
                                   {{"PP:0F0", "PP:0OFFLOAD0"}, 1}, {{"PP:0OFFLOAD0", "PP:0RELOAD0"}, 1},
                                   {{"PP:0RELOAD0", "PP:0I0"}, 1}};
    CHECK(found == expected);
}

TEST_CASE("counters follow the memory of the device and of the host") {
    const auto trace = trace_of(sample::two_ranks());
    std::vector<std::pair<double, double>> device;
    std::vector<std::pair<double, double>> host;
    for (const auto& event : of_phase(trace, "C")) {
        if (event["pid"] != 1) continue;
        auto& curve = event["name"] == "device memory [GB]" ? device : host;
        if (event["name"] != "device memory [GB]") CHECK(event["name"] == "host memory [GB]");
        curve.emplace_back(event["ts"].get<double>(), event["args"]["in use"].get<double>());
    }
    using points = std::vector<std::pair<double, double>>;
    CHECK(device == points{{0, 2}, {2000, 4}, {3000, 2}, {6000, 4}, {10000, 3}, {11000, 2}, {17000, 0}});
    CHECK(host == points{{2000, 2}, {7000, 0}});
}

TEST_CASE("times are in microseconds, whatever the unit of the problem") {
    auto p = sample::two_ranks();
    for (const auto& [unit, factor] :
         {std::pair{"us", 1.0}, {"µs", 1.0}, {"ms", 1e3}, {"s", 1e6}, {"ns", 1e-3}, {"slots", 1e3}}) {
        p.time_unit = unit;
        double last = 0.0;
        for (const auto& slice : of_phase(trace_of(p), "X"))
            last = std::max(last, slice["ts"].get<double>() + slice["dur"].get<double>());
        CHECK(last == doctest::Approx(17.0 * factor));
    }
}

TEST_CASE("names are quoted, and what the problem doesn't have is left out") {
    auto p = sample::two_ranks();
    p.name = "\"\n\xff";
    auto report = sample::report_of(p);
    report.schedule.operations.push_back(sample::at(forward(stage{7}, microbatch{0}), 0, 1));
    const auto trace = json::parse(schedule_to_chrome_trace(p, report));
    CHECK(trace["otherData"]["problem"] == "\"\n\xEF\xBF\xBD");
    CHECK(of_phase(trace, "X").size() == 12);
}

TEST_CASE("a measurement and its plan are processes beside each other") {
    const auto p = sample::two_ranks();
    const auto plan = sample::report_of(p);
    auto slower = plan;
    slower.method = "measured";
    for (auto& timed : slower.schedule.operations)
        timed = {timed.op, 2 * timed.start, 2 * timed.end};
    const auto trace = json::parse(overlay_to_chrome_trace(p, plan, slower));
    CHECK(trace["otherData"]["method"] == "measured");
    std::map<int, std::pair<std::string, int>> processes;
    for (const auto& event : of_phase(trace, "M")) {
        if (event["name"] == "process_name") processes[event["pid"]].first = event["args"]["name"];
        if (event["name"] == "process_sort_index") processes[event["pid"]].second = event["args"]["sort_index"];
    }
    const decltype(processes) expected{
        {1, {"rank 0 plan", 0}}, {2, {"rank 0 measured", 1}}, {3, {"rank 1 plan", 2}}, {4, {"rank 1 measured", 3}}};
    CHECK(processes == expected);
    std::map<int, double> last;
    for (const auto& slice : of_phase(trace, "X"))
        last[slice["pid"]] = std::max(last[slice["pid"]], slice["ts"].get<double>() + slice["dur"].get<double>());
    CHECK(last == std::map<int, double>{{1, 17000.0}, {2, 34000.0}, {3, 13000.0}, {4, 26000.0}});
    // Each has its own arrows.
    std::map<int, std::vector<std::string>> arrows;
    for (const auto* phase : {"s", "f"})
        for (const auto& event : of_phase(trace, phase))
            arrows[event["id"]].push_back(slice_at(trace, event));
    CHECK(arrows.size() == 14);
    for (const auto& [id, ends] : arrows) {
        REQUIRE(ends.size() == 2);
        CHECK(!ends[0].empty());
        CHECK(!ends[1].empty());
    }
}

TEST_CASE("recomputation is a slice among the computations") {
    const auto p = sample::recomputing();
    const auto trace = json::parse(schedule_to_chrome_trace(p, sample::recomputing_report(p)));
    json recompute;
    json forward;
    for (const auto& slice : of_phase(trace, "X")) {
        if (slice["name"] == "PP:0RECOMPUTE0") recompute = slice;
        if (slice["name"] == "PP:0F0") forward = slice;
    }
    REQUIRE(recompute.is_object());
    CHECK(recompute["ts"] == 4000.0);
    CHECK(recompute["dur"] == 2000.0);
    CHECK(recompute["args"]["kind"] == "RECOMPUTE");
    CHECK(recompute["tid"] == forward["tid"]);
    CHECK(recompute["pid"] == forward["pid"]);
}

TEST_CASE("a window has some ranks, and whole slices of what lies in its time") {
    const auto p = sample::two_ranks();
    const auto trace = json::parse(
        schedule_to_chrome_trace(p, sample::report_of(p), {.first_rank = 1, .from = duration{4}, .to = duration{8}}));
    std::string slices;
    for (const auto& slice : of_phase(trace, "X"))
        slices += slice["name"].get<std::string>() + " " + slice["ts"].dump() + " ";
    CHECK(slices == "PP:1F0 3000 PP:1I0 5000 PP:1F1 7000 ");
    for (const auto& event : trace["traceEvents"])
        CHECK(event["pid"] == 2);
}

#endif
