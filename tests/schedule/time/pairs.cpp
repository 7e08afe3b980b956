// Pairs: their rules, times and measures.
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/idle.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "schedule/pair_problems.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

/// One rank with one stage: F 2, I 2, W 1, and pairs of F and B of 4, of F and I of 3.
problem one_rank(std::size_t microbatches) {
    const stage_costs costs{.forward = duration{2.0},
                            .backward_input = duration{2.0},
                            .backward_weight = duration{1.0},
                            .activation = memory_size{1.0},
                            .weight_stash = memory_size{0.5}};
    problem p{any_graph{1, microbatches, placement::map<>{per_stage<rank>(1)}}, per_stage<stage_costs>(1, costs)};
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{4.0}, memory_size{0.25}});
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward_input, duration{3.0}, memory_size{}});
    return p;
}

/// An order, written "0F0 (0F1;0B0)OVERLAP_F_B 0B1".
order spelled(const problem& p, const std::string& text) {
    order result{p.graph, {}};
    std::istringstream words{text};
    for (std::string word; words >> word;)
        if (const auto pair = parse_pair(word)) {
            result.operations.push_back(pair->forward);
            result.operations.push_back(pair->backward);
        } else {
            result.operations.push_back(*parse_operation(word));
        }
    return result;
}
schedule timed(const problem& p, const std::string& text) {
    const auto s = simulate(p, spelled(p, text));
    REQUIRE_MESSAGE(s, describe(s.why()));
    return *s;
}
std::string why_not(const problem& p, const order& given) {
    const auto s = simulate(p, given);
    return s ? "" : describe(s.why());
}
std::string faults(const problem& p, const schedule& s) {
    std::string text;
    for (const auto& each : validate(p, s))
        text += each.text() + "\n";
    return text;
}

constexpr auto a_pair = pair_of(forward(stage{2}, microbatch{5}), backward(stage{3}, microbatch{1}));
static_assert(a_pair.forward.is_paired && a_pair.backward.is_paired);
static_assert(spelling(a_pair).view() == "(2F5;3B1)OVERLAP_F_B");
static_assert(!is_second_part(a_pair.forward) && is_second_part(a_pair.backward));
static_assert(!sibling(a_pair.backward, operation_kind::backward_weight).is_paired);

} // namespace

TEST_CASE("a pair has one spelling") {
    CHECK(to_string(a_pair) == "(2F5;3B1)OVERLAP_F_B");
    CHECK(parse_pair("(2F5;3B1)OVERLAP_F_B") == a_pair);
    CHECK(parse_pair("(2F5;3I1)OVERLAP_F_B") == pair_of(a_pair.forward, backward_input(stage{3}, microbatch{1})));
    for (const auto* text : {"", "(", "2F5", "(2F5;3B1)", "(2F5;3B1)OVERLAP", "(2F5)OVERLAP_F_B",
                             "(3B1;2F5)OVERLAP_F_B", "(2F5;3W1)OVERLAP_F_B", "(2F5;3B1;2F6)OVERLAP_F_B",
                             ")2F5;3B1(OVERLAP_F_B", "(2F5;3B1)OVERLAP_F_B ", ";(2F5)OVERLAP_F_B"})
        CHECK_FALSE(parse_pair(text));
}

TEST_CASE("a pair lasts as long as the problem says, and is measured once") {
    const auto p = one_rank(2);
    const auto s = timed(p, "0F0 (0F1;0B0)OVERLAP_F_B 0B1");
    CHECK(faults(p, s) == "");
    CHECK(last_end(s).value() == 9.0); // 2 + 4 + 3
    const auto m = measure(p, s);
    CHECK(m.busy[rank{0}].value() == 9.0);
    CHECK(m.bubble_rate == 0.0);
    CHECK(m.pairs == 1);
    CHECK(m.peak_memory[rank{0}].value() == 2.25);
    CHECK(memory_curve(p, s, rank{0}).size() == 4); // at 0, 2, 6, 9
    CHECK(idle_times(p, s).empty());
    const auto split = timed(p, "0F0 (0F1;0I0)OVERLAP_F_B 0I1 0W1 0W0");
    CHECK(faults(p, split) == "");
    CHECK(last_end(split).value() == 9.0); // 2 + 3 + 2 + 1 + 1
    CHECK(measure(p, split).peak_memory[rank{0}].value() == 2.0);
}

TEST_CASE("factors and recomputation count in the duration of a pair") {
    auto p = one_rank(2);
    std::vector<cost_factors> factors(2);
    factors[0] = {1.0, 2.0, 2.0, 3.0, 1.0}; // of the backward: 6
    factors[1] = {0.5, 1.0, 1.0, 1.0, 1.0}; // of the forward: 1
    p.microbatches.set_factors(factors);
    const auto length = [&](const std::string& text) {
        const auto s = timed(p, text);
        CHECK(faults(p, s) == "");
        return last_end(s).value();
    };
    // 4 · (1 + 6) / (2 + 3) = 5.6, but no less than the backward
    CHECK(length("0F0 (0F1;0B0)OVERLAP_F_B 0B1") == doctest::Approx(2.0 + 6.0 + 3.0));
    factors[1].forward = 2.0;
    p.microbatches.set_factors(factors);
    CHECK(length("0F0 (0F1;0B0)OVERLAP_F_B 0B1") == doctest::Approx(2.0 + 8.0 + 3.0)); // 4 · (4 + 6) / 5
    p.set_storage(stage{0}, std::vector<storage_option>{{"full", memory_size{0.5}, {}, duration{1.5}, {}, {}}});
    CHECK(length("0F0 (0F1;0B0)OVERLAP_F_B 0B1") == doctest::Approx(2.0 + 8.0 + 1.5 + 3.0 + 2.0 * 1.5));
    CHECK(measure(p, timed(p, "0F0 (0F1;0B0)OVERLAP_F_B 0B1")).peak_memory[rank{0}].value() ==
          doctest::Approx(3.0 * 0.5 + 0.5 + 0.25)); // no factor on the memory of a pair
}

TEST_CASE("orders with pairs that can't be are refused") {
    auto p = one_rank(3);
    const auto refusal_of = [&](const std::string& text) { return why_not(p, spelled(p, text)); };
    CHECK(refusal_of("0F0 (0F1;0B0)OVERLAP_F_B 0B1 0F2 0B2") == "");
    CHECK(refusal_of("(0F0;0B0)OVERLAP_F_B") == "0B0 (rank 0) comes before 0F0 (rank 0), which it waits for");
    auto open = spelled(p, "0F0 (0F1;0B0)OVERLAP_F_B 0B1 0F2 0B2");
    open.operations[2].is_paired = false;
    CHECK(why_not(p, open) == "0B0 (rank 0) is between the parts of a pair");
    open = spelled(p, "0F0 0B0 0F1 0B1 0F2 0B2");
    open.operations[3].is_paired = true;
    CHECK(why_not(p, open).find("0B1 (rank 0) is marked as a part of a pair") == 0);
    open.operations[2].is_paired = open.operations[4].is_paired = true;
    open.operations[3].is_paired = false;
    CHECK(why_not(p, open) != "");
    open = spelled(p, "0F0 0B0 0F1 0B1 0B2 0F2");
    open.operations.back().is_paired = true;
    CHECK(why_not(p, open) != "");
    p.overlaps = {};
    CHECK(refusal_of("0F0 (0F1;0B0)OVERLAP_F_B 0B1 0F2 0B2").find("0B0 (rank 0) is marked as a part of a pair") == 0);
    auto small = one_rank(2);
    small.memory_limit[rank{0}] = memory_size{2.0};
    CHECK(why_not(small, spelled(small, "0F0 (0F1;0B0)OVERLAP_F_B 0B1")) ==
          "rank 0 needs 2.25 of memory, its limit is 2");
}

TEST_CASE("a refusal names the part that waits") {
    auto p = pair_problem(1, 2, 5, true);
    CHECK(why_not(p, spelled(p, "0F0 1F0 (1F1;1B0)OVERLAP_F_B")) ==
          "1F1 (rank 0) comes before 0F1 (rank 0), which it waits for");
}

TEST_CASE("validate finds every fault of a pair") {
    const auto p = one_rank(2);
    const auto good = timed(p, "0F0 (0F1;0B0)OVERLAP_F_B 0B1");
    auto s = good;
    const auto part = [&](operation_kind kind, std::size_t m) -> timed_operation& {
        return *std::find_if(s.operations.begin(), s.operations.end(), [&](const timed_operation& t) {
            return t.op.kind == kind && t.op.microbatch.position() == m;
        });
    };
    part(operation_kind::backward, 0).op.is_paired = false;
    CHECK(faults(p, s).find("0F1 is marked as a part of a pair, but no other part runs with it at 2") !=
          std::string::npos);
    s = good;
    for (auto& each : s.operations)
        each.op.is_paired = false;
    CHECK(faults(p, s).find("while 0F1 runs until 6") != std::string::npos);
    s = good;
    part(operation_kind::forward, 1).end += duration{1.0};
    CHECK(faults(p, s).find("no other part runs with it") != std::string::npos);
    s = good;
    for (auto& each : s.operations)
        if (each.start >= duration{2.0}) each.end += duration{1.0};
    CHECK(faults(p, s).find("0F1 lasts 5, not 4") != std::string::npos);
    auto unlisted = p;
    unlisted.overlaps = {};
    CHECK(faults(unlisted, good).find("(0F1;0B0)OVERLAP_F_B isn't listed in overlaps") != std::string::npos);
    auto small = p;
    small.memory_limit[rank{0}] = memory_size{2.0};
    CHECK(faults(small, good).find("holds 2.25") != std::string::npos);
}

TEST_CASE("the memory of a pair counts where everything is compared") {
    auto p = one_rank(2);
    CHECK(p.memory_scale().value() == 1.0);
    p.overlaps = {};
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{4.0}, memory_size{7.0}});
    CHECK(p.memory_scale().value() == 7.0);
    CHECK_FALSE(is_plain(p));
}
