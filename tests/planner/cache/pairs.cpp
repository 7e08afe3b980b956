#include "optpipe/core/random.hpp"
#include "optpipe/planner/cache/adapt.hpp"
#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/planner/cache/carried_bound.hpp"
#include "optpipe/planner/cache/plan_cache.hpp"
#include "optpipe/planner/cache/text.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/planner/strategies/adaptive_strategy.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/pair_optimum.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_pairs.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"
#include "planner/cache/folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

struct quick_adaptive : adaptive_strategy {
    static strategy_traits traits(const problem&) { return {.first_effort = 2000}; }
};

/// A v with all pairs of B, each as long as a share of its parts in succession.
problem paired_v(std::size_t ranks, std::size_t microbatches, double share = 0.75) {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic, placement::v>{ranks, microbatches}),
              per_stage<stage_costs>(2 * ranks, unit)};
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            if (p.rank_of(f) == p.rank_of(b)) p.overlaps.add({f, b, overlap_kind::backward, duration{3.0 * share}, {}});
    return p;
}
std::vector<overlap> pairs_of(const problem& p) { return {p.overlaps.begin(), p.overlaps.end()}; }
void set_pairs(problem& p, const std::vector<overlap>& pairs) {
    p.overlaps = {};
    for (const auto& each : pairs)
        p.overlaps.add(each);
}
operation_sequence operations_of(const schedule& s) {
    const auto sorted = order_of(s);
    return {sorted.operations.begin(), sorted.operations.end()};
}

} // namespace

TEST_CASE("what counts in pairs makes another problem, and their order in the list doesn't") {
    const auto p = paired_v(2, 4);
    auto reversed = pairs_of(p);
    std::reverse(reversed.begin(), reversed.end());
    auto same = p;
    set_pairs(same, reversed);
    CHECK(canonical_form(same) == canonical_form(p));
    std::set<std::string> names{fingerprint_of(canonical_form(p))};
    const auto is_new = [&](auto change) {
        auto pairs = pairs_of(p);
        change(pairs);
        auto changed = p;
        set_pairs(changed, pairs);
        return !is_same(canonical_form(changed), canonical_form(p)) &&
               names.insert(fingerprint_of(canonical_form(changed))).second;
    };
    CHECK(is_new([](auto& pairs) { pairs.clear(); }));
    CHECK(is_new([](auto& pairs) { pairs.pop_back(); }));
    CHECK(is_new([](auto& pairs) { pairs[1].duration = duration{2.5}; }));
    CHECK(is_new([](auto& pairs) { pairs[1].memory = memory_size{0.25}; }));
    CHECK(is_new([](auto& pairs) { pairs[1].kind = overlap_kind::backward_input; }));
    // Without memory for the pair, what could be held at once would fit.
    auto limited = p;
    for (auto& limit : limited.memory_limit)
        limit = memory_size{8.0};
    CHECK(canonical_form(limited).limits.front() == std::numeric_limits<double>::infinity());
    auto pairs = pairs_of(p);
    pairs[0].memory = memory_size{0.5};
    set_pairs(limited, pairs);
    CHECK(canonical_form(limited).limits.front() == 8.0);
}

TEST_CASE("entries with pairs read back as they were, and marks without pairs are refused") {
    std::size_t paired = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, {.storage_percent = 50, .graph_percent = 30});
        const auto single = oracle::random_schedule(random, given);
        const auto p = oracle::with_random_pairs(random, given.problem);
        const auto timed = oracle::with_all_pairs(p, single);
        const auto objective = objective_of(p, timed);
        const auto entry = make_cache_entry(p, timed, objective, 0.5 * objective, 0.1, "random");
        paired += has_pairs(timed.operations) ? 1 : 0;
        const auto read = parse_cache_entry(to_text(entry));
        REQUIRE(read);
        CHECK(*read == entry);
    }
    CHECK(paired > 10);
    auto plain = paired_v(2, 2);
    plain.overlaps = {};
    auto forged = make_cache_entry(plain, *build_schedule(plain, dual_pipe_v), duration{1.0}, duration{}, 0.1, "x");
    CHECK(parse_cache_entry(to_text(forged)));
    forged.operations.front().is_paired = true;
    CHECK_FALSE(parse_cache_entry(to_text(forged)));
}

TEST_CASE("with pairs, a carried bound is one: against all orders") {
    std::size_t carried = 0;
    const auto cases = oracle::random_cases(60);
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto known = oracle::make_random_problem(random, {.cells = 3, .graph_percent = 50}).problem;
        for (const stage s : known.graph.all_stages()) {
            const std::vector<storage_option> keep{keep_stash(known.costs[s])};
            known.set_storage(s, keep);
        }
        for (const rank r : known.graph.all_ranks())
            known.memory_limit[r] = memory_size::unlimited();
        known.objective = objective_kind::makespan;
        known = oracle::with_random_pairs(random, known);
        if (known.overlaps.empty()) continue;
        auto asked = known;
        auto pairs = pairs_of(asked);
        auto& changed = pairs[random.below(pairs.size())];
        const auto longest =
            asked.costs[changed.forward].forward + length_of(asked.costs[changed.backward], changed.kind);
        changed.duration = random.chance(50) ? longest : 0.5 * (changed.duration + longest);
        if (random.chance(30)) asked.costs[stage{0}].forward = 0.75 * asked.costs[stage{0}].forward;
        set_pairs(asked, pairs);
        const auto before = oracle::pair_optimum{known}.makespan();
        const auto after = oracle::pair_optimum{asked}.makespan();
        const double bound = carried_bound(canonical_form(known), duration{before} / canonical_units_of(known).time,
                                           canonical_form(asked)) *
                             canonical_units_of(asked).time.value();
        CHECK(bound <= after * (1.0 + 1e-9));
        carried += bound > 0.9 * after ? 1 : 0;
    }
    if (cases >= 60) CHECK(carried > 10);
    // The factor of a pair is weighted by the durations of its parts: with factors, only the same problem has a bound.
    auto known = paired_v(2, 2);
    known.microbatches.set_factors(std::vector<cost_factors>{{.forward = 2.0}, {}});
    auto asked = known;
    CHECK(carried_bound(canonical_form(known), 1.0, canonical_form(asked)) > 0.999);
    asked.costs[stage{0}].backward_weight = duration{4.0};
    CHECK(carried_bound(canonical_form(known), 1.0, canonical_form(asked)) == 0.0);
}

TEST_CASE("an order with pairs is adapted to more and fewer microbatches, and marks stay on whole pairs") {
    for (const std::size_t ranks : {2U, 4U}) {
        const auto p = paired_v(ranks, 4 * ranks);
        const auto known = operations_of(*build_schedule(p, dual_pipe_v));
        for (const std::size_t to : {ranks, 2 * ranks + 1, 4 * ranks, 5 * ranks + 1, 12 * ranks}) {
            CAPTURE(to);
            const auto other = paired_v(ranks, to);
            std::size_t valid = 0;
            std::size_t paired = 0;
            for (const auto& adapted : adapted_orders(known, 4 * ranks, other)) {
                order candidate{other.graph, {}};
                candidate.operations.assign(adapted.begin(), adapted.end());
                const auto timed = simulate(other, candidate);
                if (!timed) continue;
                CHECK(oracle::judge(other, *timed).valid());
                ++valid;
                paired += has_pairs(timed->operations) ? 1 : 0;
            }
            CHECK(valid > 0);
            if (to > 2 * ranks) CHECK(paired > 0); // fewer leave no pair whole
        }
    }
}

TEST_CASE("plans with pairs come from the cache, and others with pairs start from them") {
    const temporary_folder folder;
    const plan_options options{.cache = folder.path().string()};
    const auto p = paired_v(2, 6);
    const auto first = plan(p, options, {quick_adaptive{}});
    REQUIRE(first);
    CHECK(has_pairs(first->schedule.operations));
    const auto again = plan(p, options, {quick_adaptive{}});
    REQUIRE(again);
    CHECK(again->cached == cache_use::exact);
    CHECK(again->objective == first->objective);
    const auto other = plan(paired_v(2, 7, 0.8), options, {quick_adaptive{}});
    REQUIRE(other);
    CHECK(other->cached == cache_use::near);
    CHECK(other->bound <= other->objective);
    auto plain = p;
    plain.overlaps = {};
    CHECK(plan(plain, options, {quick_adaptive{}})->cached == cache_use::none);
    // An entry doesn't say how many distinct pairs were allowed.
    auto limited = options;
    limited.most_distinct_pairs = 1;
    CHECK(plan(p, limited, {quick_adaptive{}})->cached == cache_use::none);
}
