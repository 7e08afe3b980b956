// Forwards alone: the bound compared with all schedules of small problems, and plans compared with the bound.
#include "optpipe/schedule/bounds/forward_only.hpp"

#include "optpipe/core/error.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/construct/forward_only.hpp"
#include "optpipe/schedule/construct/forward_plan.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

constexpr std::uint64_t first_seed = 8500;

/// The least makespan of all orders in which microbatches keep their order on each stage. As they are alike, exchanging
/// two that don't keep it costs nothing.
class exhaustive_search {
public:
    explicit exhaustive_search(const problem& p)
        : p_{p}, next_(p.graph.stages(), 0), free_(p.graph.ranks()), ends_(p.graph.stages()) {
        descend(p.graph.cells(), duration{});
    }
    [[nodiscard]] duration best() const { return best_; }

private:
    void descend(std::size_t left, duration last) {
        if (last >= best_) return;
        if (left == 0) {
            best_ = last;
            return;
        }
        for (const stage s : p_.graph.all_stages()) {
            const auto m = next_[s];
            if (m == p_.graph.microbatches() || (!p_.is_first(s) && next_[s.previous()] <= m)) continue;
            auto& free = free_[p_.rank_of(s)];
            const auto was = free;
            const auto ready = p_.is_first(s) ? duration{} : ends_[s.previous()][m] + p_.hop(s.previous(), s);
            free = std::max(ready, was) + p_.costs[s].forward;
            ends_[s].push_back(free);
            ++next_[s];
            descend(left - 1, std::max(last, free));
            --next_[s];
            ends_[s].pop_back();
            free_[p_.rank_of(s)] = was;
        }
    }

    const problem& p_;
    per_stage<std::size_t> next_;
    per_rank<duration> free_;
    per_stage<std::vector<duration>> ends_;
    duration best_ = duration::unlimited();
};

template <class Placement> problem even(std::size_t ranks, std::size_t microbatches) {
    stage_costs each;
    each.forward = each.backward_input = each.backward_weight = duration{1.0};
    each.activation = memory_size{1.0};
    const auto shape = to_any_graph(graph<dynamic, dynamic, Placement>{ranks, microbatches});
    return {shape, per_stage<stage_costs>(shape.stages(), each)};
}

bool is_optimal(const schedule_report& report) { return *report.gap() < 1e-9; }

/// The least makespan of all orders of a chain's forwards.
class all_orders {
public:
    explicit all_orders(const problem& p)
        : p_{p}, free_(p.graph.ranks()), ends_(p.graph.stages(), std::vector<duration>(p.graph.microbatches())) {
        descend(p.graph.cells(), duration{});
    }
    [[nodiscard]] duration best() const { return best_; }

private:
    void descend(std::size_t left, duration last) {
        if (last >= best_) return;
        if (left == 0) best_ = last;
        for (const stage s : p_.graph.all_stages())
            for (const microbatch m : p_.graph.all_microbatches()) {
                auto& end = ends_[s][m.position()];
                const auto arrival = arrival_of(s, m);
                if (end > duration{} || arrival.is_unlimited()) continue;
                auto& free = free_[p_.rank_of(s)];
                const auto was = free;
                free = end = std::max(arrival, was) + p_.cost(s, m).forward;
                descend(left - 1, std::max(last, end));
                end = duration{};
                free = was;
            }
    }
    /// Unlimited if the stage before hasn't run.
    duration arrival_of(stage s, microbatch m) const {
        if (p_.is_first(s)) return {};
        const auto sent = ends_[s.previous()][m.position()];
        if (sent == duration{}) return duration::unlimited();
        return sent + p_.message_time({s.previous(), s, 1.0, {}}, m);
    }

    const problem& p_;
    per_rank<duration> free_;
    per_stage<std::vector<duration>> ends_;
    duration best_ = duration::unlimited();
};

/// A chain of equal stages on the ranks `on`, whose microbatches have the factors `given`.
problem chain_on(const std::vector<std::uint32_t>& on, duration hop, const std::vector<cost_factors>& given) {
    per_stage<rank> where(on.size());
    for (const stage s : where.indices())
        where[s] = rank{on[s.position()]};
    const auto ranks = std::size_t{*std::max_element(on.begin(), on.end())} + 1;
    stage_costs each;
    each.forward = duration{1};
    each.gradients = gradient_kind::none;
    problem p{any_graph{ranks, given.size(), placement::map<>{where}}, per_stage<stage_costs>(on.size(), each)};
    p.p2p = hop_times<>{hop};
    p.microbatches.set_factors(given);
    return p;
}

std::vector<cost_factors> messages(const std::vector<double>& factors) {
    std::vector<cost_factors> result(factors.size());
    for (std::size_t m = 0; m < factors.size(); ++m)
        result[m].message = factors[m];
    return result;
}

} // namespace

TEST_CASE("what validate objects to is refused, but for backwards and memory") {
    problem p{to_any_graph(graph<2, 3>{}), per_stage<stage_costs>(2)};
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_forwards(p)), doctest::Contains("stages[0].forward: must be above 0"),
                         input_error);
    p.change_stages([&](auto& each) {
        each.forward = duration{1};
        each.activation = memory_size{2};
    });
    p.memory_limit[rank{0}] = memory_size{1};
    CHECK(plan_forwards(p)->measures.objective == duration{4});
    const per_stage<rank> where(2, rank{2});
    p.graph = any_graph{2, 3, placement::map<>{where}};
    CHECK_THROWS_WITH_AS(static_cast<void>(plan_forwards(p)),
                         doctest::Contains("stages[0].rank: is 2, there are 2 ranks"), input_error);
}

TEST_CASE("no schedule of forwards beats the bound") {
    constexpr testing::problem_ranges ranges{.ranks = 3, .stages = 4, .microbatches = 4, .cells = 12};
    std::size_t tight = 0;
    std::size_t planned_best = 0;
    constexpr std::size_t problems = 200;
    for (std::uint64_t seed = first_seed; seed < first_seed + problems; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto p = testing::make_random_problem(random, ranges).problem;
        p.objective = objective_kind::makespan;
        const auto best = exhaustive_search{p}.best();
        const auto slack = 1e-9 * best;
        const auto report = *plan_forwards(p);
        REQUIRE(forward_bound(p) <= best + slack);
        CHECK(report.measures.objective >= best - slack);
        tight += forward_bound(p) >= best - slack ? 1 : 0;
        planned_best += report.measures.objective <= best + slack ? 1 : 0;
    }
    MESSAGE(tight << " bounds of " << problems << " are the optimum, " << planned_best << " plans");
    CHECK(tight > problems * 3 / 4);
    CHECK(planned_best > problems * 3 / 4);
}

TEST_CASE("with a stage on each rank the plan is optimal, by makespan and by span, and its bound proves it") {
    std::size_t seen = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + 200; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto p =
            testing::make_random_problem(random, {.ranks = 5, .stages = 5, .microbatches = 8, .cells = 40}).problem;
        if (p.graph.stages() != p.graph.ranks()) continue;
        ++seen;
        for (const auto objective : {objective_kind::makespan, objective_kind::span}) {
            p.objective = objective;
            const auto report = *plan_forwards(p);
            CHECK(validate_forward_only(p, report.schedule).empty());
            CHECK(is_optimal(report));
        }
    }
    CHECK(seen > 50);
}

TEST_CASE("with several on each rank, too, where the stages take equally long") {
    for (const std::size_t ranks : {2U, 4U, 8U})
        for (const std::size_t rounds : {1U, 2U, 4U}) {
            CHECK(is_optimal(*plan_forwards(even<placement::loop<2>>(ranks, rounds * ranks))));
            CHECK(is_optimal(*plan_forwards(even<placement::loop<4>>(ranks, rounds * ranks))));
            for (const std::size_t extra : {0U, 1U})
                CHECK(is_optimal(*plan_forwards(even<placement::v>(ranks, rounds * ranks + extra))));
        }
}

TEST_CASE(
    "forwards of graphs, slices and microbatches that differ: plans are valid, and no bound is above the optimum") {
    constexpr testing::problem_ranges ranges{
        .ranks = 3, .stages = 4, .microbatches = 4, .cells = 7, .offloading_percent = 0, .graph_percent = 100};
    std::size_t optimal = 0, seen = 0;
    const auto last = first_seed + oracle::random_cases(150);
    for (std::uint64_t seed = first_seed; seed < last; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto made = testing::make_random_problem(random, ranges);
        const auto& p = made.problem;
        const auto report = plan_forwards(p);
        const auto best = oracle::exhaustive_optimum(forward_problem(p), made.grid);
        if (!best.proven) continue;
        REQUIRE(report.has_value() == best.objective.has_value());
        if (!report) continue;
        ++seen;
        CHECK(validate_forward_only(p, report->schedule).empty());
        CHECK(report->bound->value() <= *best.objective * (1.0 + 1e-9));
        CHECK(report->measures.objective.value() >= *best.objective * (1.0 - 1e-9));
        optimal += is_optimal(*report) ? 1 : 0;
    }
    MESSAGE(optimal << " of " << seen << " plans are proven optimal");
    CHECK(seen > (last - first_seed) * 3 / 4);
    CHECK(optimal > seen / 2);
}

TEST_CASE("a microbatch may overtake in transit: the plan does, and the bound allows it") {
    const auto by_message = *plan_forwards(chain_on({0, 1}, duration{10}, messages({1, .1, .1, .1, .1})));
    CHECK(by_message.measures.objective == duration{12});
    CHECK(is_optimal(by_message));
    const auto by_scale = *plan_forwards(chain_on({0, 1, 2, 0}, duration{2}, {equal_factors(2.0), equal_factors(1.0)}));
    CHECK(by_scale.measures.objective == duration{20});
    CHECK(is_optimal(by_scale));
}

TEST_CASE("chains with messages that differ: no bound is above the optimum") {
    const std::vector<std::vector<std::uint32_t>> placements{{0, 1}, {0, 1, 0}, {0, 1, 2}, {0, 1, 1}};
    std::size_t optimal = 0, planned = 0;
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(300); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto& on = placements[random.below(placements.size())];
        const auto count = on.size() == 2 ? 2 + random.below(2) : 2;
        std::vector<cost_factors> given(count);
        for (auto& each : given) {
            each.forward = static_cast<double>(1 + random.below(3));
            each.message = static_cast<double>(1 + random.below(8));
        }
        const auto p = chain_on(on, duration{1}, given);
        const auto best = all_orders{p}.best();
        CHECK(forward_bound(p) <= best);
        if (seed % 20 != 0) continue;
        ++planned;
        const auto report = *plan_forwards(p);
        CHECK(report.measures.objective >= best);
        optimal += report.measures.objective == best ? 1 : 0;
    }
    MESSAGE(optimal << " of " << planned << " plans are optimal");
    CHECK(2 * optimal >= planned);
}

TEST_CASE("keys and values that don't fit are refused") {
    auto p = even<placement::linear>(2, 4);
    p.change_stages([](auto& each) { each.kv = memory_size{1}; });
    p.microbatches.set_sequences(std::vector{0, 0, 0, 1});
    p.memory_limit = per_rank<memory_size>(2, memory_size{3});
    const auto report = plan_forwards(p);
    REQUIRE(report);
    CHECK(report->measures.peak_memory[rank{0}] == memory_size{3});
    p.memory_limit = per_rank<memory_size>(2, memory_size{2});
    const auto refused = plan_forwards(p);
    REQUIRE_FALSE(refused);
    CHECK(refused.why().reason == refusal_reason::over_memory);
}

TEST_CASE("by span forwards start as late as those behind them allow") {
    auto p = even<placement::loop<2>>(2, 3);
    p.objective = objective_kind::span;
    p.costs[stage{0}].forward = p.costs[stage{2}].forward = duration{2};
    p.costs[stage{3}].forward = duration{4};
    const auto as_soon_as_possible = forward_schedule(p, forward_preference::shallowest_stage);
    CHECK(objective_of(forward_problem(p), as_soon_as_possible) == duration{18});
    const auto report = *plan_forwards(p);
    CHECK(report.measures.objective == duration{15});
    CHECK(validate_forward_only(p, report.schedule).empty());
    CHECK(is_optimal(report));
}

TEST_CASE("a plan of forwards says what it is, and holds nothing") {
    constexpr testing::problem_ranges ranges{
        .ranks = 4, .stages = 8, .microbatches = 6, .cells = 40, .offloading_percent = 50};
    for (std::uint64_t seed = first_seed; seed < first_seed + 100; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = testing::make_random_problem(random, ranges).problem;
        const auto report = *plan_forwards(p);
        CHECK(report.forward_only);
        CHECK(report.method == "forward-only");
        CHECK(validate_forward_only(p, report.schedule).empty());
        CHECK(report.schedule.operations.size() == p.graph.cells());
        CHECK(*report.bound <= report.measures.objective);
        for (const auto peak : report.measures.peak_memory)
            CHECK(peak == memory_size{});
    }
}
