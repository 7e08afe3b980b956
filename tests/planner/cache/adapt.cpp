#include "optpipe/planner/cache/adapt.hpp"

#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/cache/plan_cache.hpp"
#include "optpipe/planner/modulo/unroll.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace optpipe;

namespace {

operation_sequence operations_of(const schedule& s) {
    const auto sorted = order_of(s);
    return {sorted.operations.begin(), sorted.operations.end()};
}

operation_sequence operations_of(const problem& p, const order& given) {
    const auto timed = simulate(p, given);
    REQUIRE(timed);
    return operations_of(*timed);
}

outcome<schedule> timed(const problem& p, const operation_sequence& all) {
    order candidate{p.graph, {}};
    candidate.operations.assign(all.begin(), all.end());
    return time_order(p, candidate);
}

duration best_of(const problem& p, const operation_sequence& known, std::size_t from) {
    duration best = duration::unlimited();
    for (const auto& adapted : adapted_orders(known, from, p))
        if (const auto found = timed(p, adapted)) best = std::min(best, objective_of(p, *found));
    return best;
}

problem unit_problem(std::size_t ranks, std::size_t microbatches) {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = memory_size{1.0};
    return problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, unit)};
}

} // namespace

TEST_CASE("a steady state is made longer and shorter without loss") {
    for (const std::size_t ranks : {2U, 4U, 6U}) {
        auto p = unit_problem(ranks, 3 * ranks);
        const auto h1 = operations_of(p, *zero_bubble_h1(p));
        const auto f1b = operations_of(p, *one_forward_one_backward(p));
        for (const std::size_t count : {ranks, 2 * ranks + 1, 3 * ranks, 3 * ranks + 1, 5 * ranks, 20 * ranks}) {
            const auto other = with_microbatches(p, count);
            CAPTURE(ranks);
            CAPTURE(count);
            CHECK(best_of(other, f1b, 3 * ranks) <=
                  objective_of(other, *build_schedule(other, one_forward_one_backward)));
            CHECK(best_of(other, h1, 3 * ranks) <= objective_of(other, *build_schedule(other, zero_bubble_h1)));
        }
    }
}

TEST_CASE("every problem gets a valid order of another's, for more and for fewer microbatches") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(150); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            testing::make_random_problem(random, {.ranks = 3, .stages = 6, .microbatches = 6, .cells = 24}).problem;
        const auto built = adaptive_builder<>{.effort = 2000}(p);
        REQUIRE(built);
        const auto known = operations_of(p, *built);
        const auto from = p.graph.microbatches();
        for (std::size_t to = 1; to <= from + 5; ++to) {
            CAPTURE(to);
            const auto other = with_microbatches(p, to);
            std::size_t valid = 0;
            for (const auto& adapted : adapted_orders(known, from, other)) {
                const auto found = timed(other, adapted);
                if (!found) continue;
                CHECK(oracle::judge(other, *found).valid());
                ++valid;
            }
            CHECK(valid > 0);
            if (to <= from) CHECK(valid == adapted_orders(known, from, other).size());
        }
    }
}

TEST_CASE("a plan of a draw becomes one of another draw, also of more and fewer microbatches") {
    const auto draw = [](random_numbers& random, std::size_t count) {
        auto p = unit_problem(4, count);
        p.memory_limit = per_rank<memory_size>(4, memory_size{6.0});
        std::vector<cost_factors> factors;
        for (std::size_t m = 0; m < count; ++m) {
            const double length = 0.5 + random.share();
            factors.push_back({length, length, length, length, length});
        }
        p.microbatches.set_factors(factors);
        return p;
    };
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(30); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = draw(random, 12);
        const auto known = build_schedule(p, one_forward_one_backward);
        REQUIRE(known);
        const auto entry = make_cache_entry(p, *known, objective_of(p, *known), duration{}, 1.0, "test");
        for (const std::size_t count : {5U, 11U, 12U, 13U, 30U}) {
            CAPTURE(count);
            const auto other = draw(random, count);
            const auto simple = build_schedule(other, one_forward_one_backward);
            REQUIRE(simple);
            auto best = duration::unlimited();
            for (const auto& adapted : adapted_orders(entry, other)) {
                const auto found = timed(other, adapted);
                if (!found) continue;
                CHECK(oracle::judge(other, *found).text() == "");
                best = std::min(best, objective_of(other, *found));
            }
            CHECK(best <= 2.0 * objective_of(other, *simple)); // one microbatch at a time takes far longer
        }
    }
}

TEST_CASE("orders that make no sense are adapted to some that make none") {
    const auto p = unit_problem(2, 6);
    const operation_sequence nonsense{forward(stage{0}, microbatch{1}), reload_of(stage{5}, microbatch{0}),
                                      forward(stage{0}, microbatch{0})};
    for (const auto& known : {operation_sequence{}, nonsense})
        for (const std::size_t from : {1U, 3U, 6U, 9U})
            for (const auto& adapted : adapted_orders(known, from, p))
                CHECK_FALSE(timed(p, adapted));
}

namespace {

/// A valid schedule with some storage option for each stage and microbatch.
struct stored_case {
    problem p;
    schedule known;
};
stored_case some_stored_case(std::uint64_t seed) {
    random_numbers random{seed};
    const auto given = oracle::make_random_problem(
        random, {.ranks = 3, .stages = 5, .microbatches = 5, .cells = 20, .storage_percent = 100});
    return {given.problem, oracle::random_schedule(random, given)};
}

/// The number of valid adapted orders. The others must be refused.
std::size_t valid_orders(const problem& p, const operation_sequence& known, std::size_t from) {
    std::size_t valid = 0;
    for (const auto& adapted : adapted_orders(known, from, p)) {
        const auto found = timed(p, adapted);
        if (!found) continue;
        const auto verdict = oracle::judge(p, *found);
        CHECK_MESSAGE(verdict.valid(), verdict.text());
        ++valid;
    }
    return valid;
}

} // namespace

TEST_CASE("with storage options, an order is adapted to more and fewer microbatches") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(200); ++seed) {
        CAPTURE(seed);
        const auto [p, known] = some_stored_case(seed);
        const auto from = p.graph.microbatches();
        for (std::size_t to = 1; to <= from + 4; ++to) {
            CAPTURE(to);
            const auto other = with_microbatches(p, to);
            const auto valid = valid_orders(other, operations_of(known), from);
            CHECK(valid > 0);
            if (to <= from) CHECK(valid == adapted_orders(operations_of(known), from, other).size());
        }
    }
}

TEST_CASE("a steady state is made longer without loss, whatever the position of its storage option") {
    const std::size_t ranks = 4;
    auto p = unit_problem(ranks, 3 * ranks);
    for (auto& list : p.storage) {
        list = {{"full", memory_size{0.1}, {}, duration{1.0}, {}, {}}, keep_stash(p.costs[stage{0}])};
    }
    const auto keep = *find_common_option(p, "keep");
    const auto one_option = [&](const problem& q) {
        return with_storage(q, keep, *one_forward_one_backward(uniform_problem(q, keep)));
    };
    const auto known = operations_of(p, one_option(p));
    for (const std::size_t count : {2 * ranks + 1, 3 * ranks + 1, 5 * ranks, 20 * ranks}) {
        CAPTURE(count);
        const auto other = with_microbatches(p, count);
        CHECK(best_of(other, known, 3 * ranks) <= objective_of(other, *simulate(other, one_option(other))));
    }
}

TEST_CASE("lists in another order: the same schedule") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(200); ++seed) {
        CAPTURE(seed);
        const auto [p, known] = some_stored_case(seed);
        auto other = p;
        for (auto& list : other.storage)
            std::reverse(list.begin(), list.end());
        const auto translated = translate_storage(operations_of(known), canonical_storage(p), canonical_storage(other));
        const auto found = timed(other, translated);
        REQUIRE(found);
        CHECK(objective_of(other, *found) == objective_of(p, *timed(p, operations_of(known))));
        for (std::size_t i = 0; i < translated.size(); ++i) {
            const auto before = storage_of(p, operations_of(known)[i]);
            auto after = storage_of(other, translated[i]);
            after.name = before.name; // twins may differ in their names
            CHECK(after == before);
        }
    }
}

TEST_CASE("other lists: an order follows the options that are there, or is refused") {
    std::size_t cases = 0;
    std::size_t valid = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(400); ++seed) {
        CAPTURE(seed);
        const auto [p, known] = some_stored_case(seed);
        auto other = p;
        // The lists of another problem, if they fit.
        const auto donor = some_stored_case(seed + 1000).p;
        for (const stage s : p.graph.all_stages()) {
            const stage from{s.position() % donor.graph.stages()};
            if (is_described_by_costs(p.costs[s], p.storage[s]) ||
                is_described_by_costs(donor.costs[from], donor.storage[from]))
                continue;
            other.storage[s] = donor.storage[from];
            for (auto& option : other.storage[s]) {
                option.held = std::min(option.held, p.costs[s].activation);
                option.transfer_size = std::min(option.transfer_size, option.held);
            }
        }
        if (!validate(other).empty()) continue;
        const auto translated = translate_storage(operations_of(known), canonical_storage(p), canonical_storage(other));
        ++cases;
        valid += valid_orders(other, translated, p.graph.microbatches());
    }
    CHECK(cases >= oracle::random_cases(100));
    CHECK(valid >= oracle::random_cases(50));
}

TEST_CASE("the most similar option has the nearest numbers, then the same operations") {
    const canonical_option keep{.held = 1.0};
    const canonical_option ahead{.held = 0.2, .recompute = 0.3};
    const canonical_option inside{.held = 0.2, .backward_extra = 0.3};
    const canonical_option offload{.held = 1.0, .transfer_size = 1.0, .offload = 2.0, .reload = 2.0};
    const canonical_option both{.held = 0.5, .transfer_size = 0.5, .recompute = 0.1, .offload = 1.0, .reload = 1.0};
    const canonical_option nothing{.held = 1.0, .offload = 0.0, .reload = 0.0};
    const canonical_options all{nothing, keep, ahead, inside, offload, both};
    for (std::size_t i = 0; i < all.size(); ++i)
        CHECK(most_similar(all, all[i]) == i);
    CHECK(most_similar(all, {.held = 0.9, .recompute = 0.01}) == 1);
    CHECK(most_similar(all, {.held = 0.3, .backward_extra = 0.2}) == 3);
    CHECK(most_similar(all, {.held = 0.9, .transfer_size = 0.9, .offload = 2.1, .reload = 2.3}) == 4);
    // Without the option itself: one that holds as much, although it has other operations.
    CHECK(most_similar({keep, ahead}, inside) == 1);
    CHECK(most_similar({keep, keep}, keep) == 0);
}

TEST_CASE("operations that another option lacks are left out, and those that it needs are added") {
    auto p = unit_problem(1, 1);
    const auto one = memory_size{1.0};
    const transfer_times times{duration{1.0}, duration{1.0}};
    p.storage[stage{0}] = {{"keep", one, {}, {}, {}, {}}, {"both", one, duration{0.5}, {}, one, times}};
    const auto adapted = [&](std::string_view spelled, storage_index option) {
        operation_sequence all;
        std::istringstream words{std::string{spelled}};
        for (std::string word; words >> word;) {
            all.push_back(*parse_operation(word));
            if (all.back().kind == operation_kind::forward) all.back().storage = option;
        }
        std::string text;
        for (const auto& op : follow_storage(p, all)) {
            CHECK(op.storage == option);
            text += (text.empty() ? "" : " ") + to_string(op);
        }
        return text;
    };
    CHECK(adapted("0F0 0OFFLOAD0 0RELOAD0 0RECOMPUTE0 0B0", 0) == "0F0 0B0");
    CHECK(adapted("0F0 0I0 0W0", 1) == "0F0 0OFFLOAD0 0RELOAD0 0RECOMPUTE0 0I0 0W0");
    CHECK(adapted("0F0 0RECOMPUTE0 0B0", 1) == "0F0 0OFFLOAD0 0RELOAD0 0RECOMPUTE0 0B0");
    CHECK(adapted("0F0 0OFFLOAD0 0RELOAD0 0B0", 1) == "0F0 0OFFLOAD0 0RELOAD0 0RECOMPUTE0 0B0");
}

TEST_CASE("orders with options or operations that a problem doesn't have stay as they are") {
    const auto p = some_stored_case(1).p;
    auto odd = forward(stage{0}, microbatch{0});
    odd.storage = 200;
    for (const auto& op : {odd, forward(stage{99}, microbatch{0}), forward(stage{0}, microbatch{99})})
        CHECK(follow_storage(p, {op}) == operation_sequence{op});
}
