#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "io/sample.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/io/chrome_trace.hpp"
#include "optpipe/io/json_trace.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace optpipe;

namespace {

/// Two ranks with a stage each and two microbatches; the second stage has options that a trace can't tell apart.
problem traced_problem() {
    auto p = sample::two_ranks();
    for (const stage s : p.graph.all_stages())
        p.set_stage(s, p.costs[s]);
    p.storage[stage{0}].push_back({"again", memory_size{1}, duration{1}, {}, {}, {}});
    p.storage[stage{1}].push_back({"inside", memory_size{1}, {}, duration{1}, {}, {}});
    return p;
}

std::string range(std::string_view name, double start, double took, std::string_view more = "") {
    return R"({"ph": "X", "name": ")" + std::string{name} + R"(", "pid": 1, "tid": 1, "ts": )" + std::to_string(start) +
           R"(, "dur": )" + std::to_string(took) + std::string{more} + "}";
}

std::string list_of(const std::vector<std::string>& events) {
    std::string text;
    for (const auto& each : events)
        text += (text.empty() ? "" : ",\n") + each;
    return "[" + text + "]";
}
std::string trace_of(const std::vector<std::string>& events) {
    return R"({"schemaVersion": 1, "deviceProperties": [{"ph": "X", "name": "PP:0F0"}], "traceEvents": )" +
           list_of(events) + R"(, "x": {"traceEvents": [3]}, "x": 1})";
}

/// The median of a class in milliseconds; 0 if nothing was measured.
double median(const cost_profile& profile, std::uint32_t s, operation_kind kind) {
    for (const auto& [key, e] : profile.operations())
        if (key.stage == stage{s} && key.kind == kind) return e.median.value();
    return 0.0;
}

cost_profile profile_of(const std::string& text, const trace_options& options = {}) {
    cost_profile profile;
    add_trace(profile, traced_problem(), 0, text, "t.json", options);
    return profile;
}

std::string refusal_of(const std::string& text, const trace_options& options = {}) {
    try {
        static_cast<void>(profile_of(text, options));
    } catch (const input_error& e) {
        return e.what();
    }
    return "";
}

} // namespace

TEST_CASE("ranges of a trace become costs, step by step, whatever else the trace has") {
    const std::vector<std::string> events{
        R"({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python", "ts": 7, "deep": [[{}]]}})",
        range("aten::mm", 0, 5),
        range("PP:send of 0F0 to rank 1", 0, 5),
        range("PP:0F0", 5e12, 2000),
        range("PP:0F1", 5e12 + 3000, 2100),
        range("PP:0F0", 5e12 + 9000, 3000),
        range("PP:0F1", 5e12 + 14000, 3100)};
    for (const auto& text : {trace_of(events), list_of(events)}) {
        const auto profile = profile_of(text);
        CHECK(profile.steps() == 2);
        const auto& first = profile.measured_steps().begin()->second;
        REQUIRE(first.operations.size() == 2);
        CHECK(first.operations[0].took.value() == doctest::Approx(2.0));
        CHECK(first.operations[1].took.value() == doctest::Approx(2.1));
    }
}

TEST_CASE("ranges as pairs of events, and several at once for one operation") {
    const auto begin = [](std::string_view name, double at) {
        return R"({"ph": "B", "name": ")" + std::string{name} + R"(", "pid": "a", "tid": "b", "ts": )" +
               std::to_string(at) + "}";
    };
    const auto end = [](double at) {
        return R"({"ph": "E", "pid": "a", "tid": "b", "ts": )" + std::to_string(at) + "}";
    };
    const auto pairs = profile_of(
        trace_of({end(1), begin("PP:0F0", 1000), begin("inner", 1100), end(1200), end(4000), begin("PP:0F1", 5000)}));
    CHECK(median(pairs, 0, operation_kind::forward) == doctest::Approx(3.0));
    const auto streams = profile_of(trace_of({range("PP:0F0", 0, 100), range("PP:0F0", 50, 150)}));
    CHECK(streams.steps() == 1);
    CHECK(median(streams, 0, operation_kind::forward) == doctest::Approx(0.2));
    // Kineto has the range of the launches, and that of the work on the GPU.
    const auto gpu = profile_of(trace_of({range("PP:0F0", 0, 10, R"(, "cat": "user_annotation")"),
                                          range("PP:0F0", 50, 500, R"(, "cat": "gpu_user_annotation")")}));
    CHECK(gpu.steps() == 1);
    CHECK(median(gpu, 0, operation_kind::forward) == doctest::Approx(0.5));
}

TEST_CASE("the list of a trace may end without its bracket, as Chrome allows") {
    auto text = list_of({range("PP:0F0", 0, 100)});
    text.pop_back();
    for (const auto& cut : {text, text + ",", text + ",\n"})
        CHECK(median(profile_of(cut), 0, operation_kind::forward) == doctest::Approx(0.1));
}

TEST_CASE("ranges with names of the user's own") {
    trace_options options;
    for (const auto* each : {"F=step * forward s{stage} m{microbatch}", "B=step * backward s{stage} m{microbatch}"})
        options.patterns.push_back(range_pattern::parse(each, "--range"));
    const auto profile = profile_of(list_of({range("step 10 forward s0 m1", 0, 1000), range("PP:0F0", 0, 1),
                                             range("step 10 backward s0 m1", 1000, 2000)}),
                                    options);
    CHECK(median(profile, 0, operation_kind::forward) == doctest::Approx(1.0));
    CHECK(median(profile, 0, operation_kind::backward) == doctest::Approx(2.0));

    trace_options counted;
    counted.patterns.push_back(range_pattern::parse("F=forward-compute", "--range"));
    const auto text = list_of({range("forward-compute", 0, 1000), range("forward-compute", 2000, 1000),
                               range("forward-compute", 4000, 1000)});
    CHECK(refusal_of(text, counted).starts_with("t.json: F: the name of its ranges has no {stage}"));
    counted.rank = rank{1};
    CHECK(profile_of(text, counted).steps() == 2);
    CHECK(median(profile_of(text, counted), 1, operation_kind::forward) == doctest::Approx(1.0));

    for (const auto* bad : {"F", "X=a", "=a", "F=", "F={rank}", "F={stage"})
        CHECK_THROWS_AS(static_cast<void>(range_pattern::parse(bad, "--range")), input_error);
}

TEST_CASE("storage options follow from a cell's operations, or from the plan") {
    const auto told = profile_of(list_of({range("PP:0F0", 0, 100), range("PP:0RECOMPUTE0", 200, 300)}));
    CHECK(median(told, 0, operation_kind::recompute) == doctest::Approx(0.3));
    const auto text = list_of({range("PP:1F0", 0, 100), range("PP:1B0", 200, 300)});
    CHECK(refusal_of(text) ==
          "t.json: 1B0: may be of the storage option \"keep\" or \"inside\"; the plan tells, with --plan");
    schedule plan{traced_problem().graph, {{{stage{1}, operation_kind::forward, microbatch{0}, 1}, {}, duration{1}}}};
    trace_options options;
    options.plan = &plan;
    const auto profile = profile_of(text, options);
    CHECK(median(profile, 1, operation_kind::backward) == doctest::Approx(0.3));
    CHECK(profile.operations().back().of.storage == storage_index{1});
}

TEST_CASE("a trace that can't be read is refused with its place") {
    CHECK(refusal_of("").starts_with("t.json: line 1, column 1: isn't JSON"));
    CHECK(refusal_of("{\"traceEvents\": [\n{\"ph\" \"X\"}]}").starts_with("t.json: line 2, column 9: isn't JSON"));
    CHECK(refusal_of(trace_of({range("PP:0F0", 0, 1)}).substr(0, 120)).starts_with("t.json: line "));
    CHECK(refusal_of("[{\"ph\": \"X\", \"ts\": 1e999}]").starts_with("t.json: byte "));
    CHECK(refusal_of(std::string(100000, '[')).starts_with("t.json: line 1, column 100001: isn't JSON"));
    CHECK(refusal_of("3") == "t.json: has no range of an operation among 0 events; operations are named as in PP:2F5, "
                             "or by --range");
    CHECK(refusal_of("[3, {\"name\": \"PP:0F0\"}]").starts_with("t.json: has no range of an operation among 1 events"));
    CHECK(refusal_of(R"([{"ph": "X", "name": "PP:0F0", "ts": 1}])") ==
          "t.json: event 0 (PP:0F0): must have numbers ts and dur, with dur not negative");
    CHECK(refusal_of(list_of({range("PP:0F0", 5, -1)})).starts_with("t.json: event 0 (PP:0F0): "));
    CHECK(refusal_of(list_of({range("PP:7F0", 5, 1)})) == "t.json: 7F0: the problem has no such stage or microbatch");
    CHECK(refusal_of(list_of({range("PP:1OFFLOAD0", 5, 1)})).starts_with("t.json: operations: 1OFFLOAD0"));
    auto p = traced_problem();
    p.time_unit = "cycles";
    cost_profile profile;
    CHECK_THROWS_AS(add_trace(profile, p, 0, "[]", "t.json"), input_error);
}

TEST_CASE("our own traces give the costs that they show; in a trace of both, those of the measurement") {
    const auto p = sample::two_ranks();
    const auto report = sample::report_of(p);
    auto slow = report;
    for (auto& timed : slow.schedule.operations) {
        timed.start = 2.0 * timed.start;
        timed.end = 2.0 * timed.end;
    }
    cost_profile planned;
    add_trace(planned, p, 0, schedule_to_chrome_trace(p, report), "plan.json");
    CHECK(median(planned, 0, operation_kind::forward) == doctest::Approx(p.costs[stage{0}].forward.value()));
    cost_profile both;
    const auto text = overlay_to_chrome_trace(p, report, slow);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::tmpfile(), std::fclose};
    REQUIRE(file);
    REQUIRE(std::fwrite(text.data(), 1, text.size(), file.get()) == text.size());
    std::rewind(file.get());
    add_trace(both, p, 0, file.get(), "both.json");
    CHECK(both.steps() == 1);
    CHECK(median(both, 0, operation_kind::forward) == doctest::Approx(2.0 * p.costs[stage{0}].forward.value()));
}

#endif
