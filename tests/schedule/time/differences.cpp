#include "optpipe/schedule/time/differences.hpp"

#include "optpipe/pipeline/graph.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

using namespace optpipe;

namespace {

constexpr stage s0{0};
constexpr microbatch m0{0};
constexpr microbatch m1{1};

timed_operation at(const operation& op, double start, double end) { return {op, duration{start}, duration{end}}; }

/// One rank, one stage, two microbatches, with an offload.
schedule plan() {
    schedule s{any_graph{1, 2, placement::map<>{per_stage<rank>(1)}}, {}};
    s.operations = {at(forward(s0, m0), 0, 2),   at(forward(s0, m1), 2, 4),        at(offload_of(s0, m0), 2, 3),
                    at(reload_of(s0, m0), 4, 5), at(backward_input(s0, m0), 5, 7), at(backward_weight(s0, m0), 7, 8),
                    at(backward(s0, m1), 8, 11)};
    return s;
}

timed_operation& find(schedule& s, const operation& op) {
    for (auto& timed : s.operations)
        if (timed.op == op) return timed;
    throw error{"no " + to_string(op)};
}

std::vector<std::string> texts(const std::vector<violation>& found) {
    std::vector<std::string> all;
    for (const auto& v : found)
        all.push_back(v.text());
    return all;
}
using sentences = std::vector<std::string>;

} // namespace

TEST_CASE("a difference adds up") {
    time_difference d;
    CHECK(d.mean() == duration{});
    d.add(duration{2}, duration{1.5});
    CHECK(d.worst == duration{-0.5}); // faster than planned, not equal to it
    d.add(duration{2}, duration{3.5});
    d.add(duration{2}, duration{2});
    CHECK(d.count == 3);
    CHECK(d.planned == duration{6});
    CHECK(d.measured == duration{7});
    CHECK(d.worst == duration{1.5});
    CHECK(d.mean().value() == doctest::Approx(1.0 / 3.0));
}

TEST_CASE("kinds are compared one by one") {
    auto measured = plan();
    find(measured, forward(s0, m0)) = at(forward(s0, m0), 0.5, 3);
    find(measured, forward(s0, m1)) = at(forward(s0, m1), 1, 2.5);
    find(measured, reload_of(s0, m0)) = at(reload_of(s0, m0), 3, 4);
    const auto kinds = compare_kinds(plan(), measured);
    REQUIRE(kinds.size() == 6);
    for (const auto& d : kinds)
        CHECK(d.count == (d.kind == operation_kind::forward ? 2 : 1));
    const auto& f = kinds.front();
    REQUIRE(f.kind == operation_kind::forward);
    CHECK(f.planned == duration{4});
    CHECK(f.measured == duration{4});
    CHECK(f.worst == duration{0.5});
    CHECK(f.latest == duration{0.5});
    const auto& back = kinds.back();
    REQUIRE(back.kind == operation_kind::reload);
    CHECK(back.worst == duration{});
    CHECK(back.latest == duration{-1});
}

TEST_CASE("only what both have is compared") {
    auto planned = plan();
    planned.operations.push_back(at(forward(stage{9}, m0), 0, 1));
    schedule measured{planned.graph, {}};
    measured.operations = {at(forward(s0, m0), 1, 2), at(forward(stage{9}, m0), 0, 1), at(backward(s0, m0), 2, 3)};
    const auto kinds = compare_kinds(planned, measured);
    REQUIRE(kinds.size() == 1);
    CHECK(kinds[0].count == 1);
    CHECK(kinds[0].measured == duration{1});
}

TEST_CASE("a measurement may take any time, in any order") {
    auto measured = plan();
    for (auto& timed : measured.operations)
        timed = {timed.op, duration{20} - timed.end, duration{40} - 2 * timed.start};
    CHECK(measurement_violations(plan(), measured).empty());
}

TEST_CASE("a measurement has the operations of the plan, once each, with times") {
    auto measured = plan();
    measured.operations.erase(measured.operations.begin());
    CHECK(texts(measurement_violations(plan(), measured)) == sentences{"operations: 0F0 of the plan is missing"});
    measured = plan();
    measured.operations.push_back(measured.operations[1]);
    CHECK(texts(measurement_violations(plan(), measured)) == sentences{"operations: 0F1 appears twice"});
    measured = plan();
    measured.operations.push_back(at(forward(stage{9}, m0), 0, 1));
    CHECK(texts(measurement_violations(plan(), measured)) == sentences{"operations: 9F0: no such stage or microbatch"});
    measured = plan();
    find(measured, backward(s0, m1)).op = backward_input(s0, m1);
    CHECK(texts(measurement_violations(plan(), measured)) ==
          sentences{"operations: 0B1 of the plan is missing", "operations: 0I1 isn't in the plan"});
    const double infinite = std::numeric_limits<double>::infinity();
    const double none = std::numeric_limits<double>::quiet_NaN();
    for (const auto& [start, end, says] : {std::tuple{3.0, 2.0, "ends before it starts"},
                                           {-1.0, 2.0, "starts before 0"},
                                           {1.0, infinite, "never ends"},
                                           {none, 2.0, "ends before it starts"},
                                           {0.0, none, "ends before it starts"}}) {
        measured = plan();
        find(measured, forward(s0, m1)) = at(forward(s0, m1), start, end);
        CHECK(texts(measurement_violations(plan(), measured)) == sentences{"operations: 0F1 " + std::string{says}});
    }
}
