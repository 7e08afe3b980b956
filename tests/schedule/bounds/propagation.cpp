// Bounds proven by propagation at the root, and its parts. That it never proves too much is tested here with all
// builders on larger problems, and in bounds.cpp with exhaustive search.
#include "optpipe/schedule/bounds/propagation.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/bounds/chain_maker.hpp"
#include "optpipe/schedule/bounds/completion_tree.hpp"
#include "optpipe/schedule/bounds/order_counts.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::objective_kind;
using optpipe::rank;
using optpipe::stage_costs;
using optpipe::transfer_times;
using namespace optpipe::literals;

constexpr stage_costs unit{1_ms, 1_ms, 1_ms, 1_gb, 0.5_gb, {}};
/// Zero Bubble's profile of 1.5 B parameters.
constexpr stage_costs real{18.5_ms, 18.1_ms, 9.3_ms, 1_gb, 0.5_gb, {}};

optpipe::problem uniform(std::size_t ranks, std::size_t microbatches, const stage_costs& each, double stashes,
                         duration hop = {}) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each}, memory_size{stashes});
    p.p2p = optpipe::hop_times<>{hop};
    return p;
}

bool alone(const optpipe::structural_bounds& b) {
    auto others = b;
    others.propagation = {};
    return b.propagation > others.best() * (1.0 + 1e-6);
}

struct interval {
    double start = 0.0;
    double end = 0.0;
};

/// The computations of each stage and kind in the order in which they run; a full backward is I and W.
std::map<std::pair<optpipe::stage, optpipe::operation_kind>, std::vector<interval>>
chains_of(const optpipe::problem& p, const optpipe::schedule& s) {
    using optpipe::operation_kind;
    const bool is_span = p.objective == objective_kind::span;
    double first = is_span ? p.serial_time().value() : 0.0;
    for (const auto& timed : s.operations)
        if (is_span && p.rank_of(timed.op.stage) == p.rank_of(optpipe::stage{0}) && !is_transfer(timed.op.kind))
            first = std::min(first, timed.start.value());
    std::map<std::pair<optpipe::stage, operation_kind>, std::vector<interval>> chains;
    for (const auto& timed : s.operations) {
        const auto& c = p.costs[timed.op.stage];
        const interval all{timed.start.value() - first, timed.end.value() - first};
        const auto add = [&](operation_kind kind, interval part) { chains[{timed.op.stage, kind}].push_back(part); };
        if (timed.op.kind != operation_kind::backward) {
            add(timed.op.kind, all);
        } else if (!p.split_backward) {
            add(operation_kind::backward_input, all);
        } else {
            const double middle = all.start + c.backward_input.value();
            add(operation_kind::backward_input, {all.start, middle});
            add(operation_kind::backward_weight, {middle, all.end});
        }
    }
    for (auto& [key, chain] : chains)
        std::sort(chain.begin(), chain.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
    return chains;
}

} // namespace

TEST_CASE("orders and windows that are propagated hold in every schedule within the horizon") {
    std::size_t compared = 0, orders = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(300); ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto made = oracle::make_random_problem(random);
        const auto& p = made.problem;
        const auto timed = oracle::random_schedule(random, made);
        const auto chains = chains_of(p, timed);
        const auto found = propagate_order(p, objective_of(p, timed) * (1.0 + 1e-9));
        REQUIRE(found.has_value());
        const double slack = 1e-6 * p.serial_time().value();
        const auto at = [&](const optpipe::operation& op) {
            return chains.at({op.stage, op.kind})[op.microbatch.position()];
        };
        for (const auto& w : found->windows) {
            CHECK(at(w.op).start >= w.earliest_start - slack);
            CHECK(at(w.op).end <= w.latest_end + slack);
        }
        for (const auto& pair : found->orders)
            CHECK(at(pair.before).end <= at(pair.after).start + slack);
        ++compared;
        orders += found->orders.size();
        // Nothing is shorter than what propagation at the root refutes.
        const auto refuted = propagation_bound(p, {});
        CHECK_FALSE(propagate_order(p, refuted * (1.0 - 1e-3)).has_value());
    }
    CHECK(orders > 10 * compared);
}

TEST_CASE("optima that searches have proven, without a search") {
    struct proven {
        std::size_t ranks;
        std::size_t microbatches;
        double share;
        double units;
        double milliseconds;
    };
    // Found by mixed-integer and constraint solvers. The limit is this share of one stash per rank and rank.
    for (const auto& known :
         {proven{3, 6, 0.75, 25, 0}, proven{4, 8, 1.0, 27, 456.3}, proven{4, 8, 0.75, 31, 531.9},
          proven{4, 12, 1.0, 39, 639.9}, proven{6, 12, 1.0, 41, 699.3}, proven{6, 12, 0.75, 47, 848.1},
          proven{8, 16, 1.0, 55, 942.3}, proven{8, 16, 0.75, 61, 1093.5}}) {
        CAPTURE(known.ranks);
        CAPTURE(known.microbatches);
        CAPTURE(known.share);
        const double stashes = known.share * static_cast<double>(known.ranks);
        CHECK(strong_bounds_of(uniform(known.ranks, known.microbatches, unit, stashes)).best().value() ==
              doctest::Approx(known.units).epsilon(1e-6));
        if (known.milliseconds > 0.0)
            CHECK(strong_bounds_of(uniform(known.ranks, known.microbatches, real, stashes, 0.6_ms)).best().value() ==
                  doctest::Approx(known.milliseconds).epsilon(1e-6));
    }
}

TEST_CASE("with offloading: weight gradients that memory doesn't allow to be postponed") {
    auto travelling = real;
    travelling.transfer = transfer_times{11.475_ms, 11.475_ms};
    for (const auto& [ranks, stashes, expected] :
         {std::array{4.0, 2.0, 462.0}, std::array{4.0, 3.0, 443.4}, std::array{6.0, 3.0, 702.6},
          std::array{8.0, 4.0, 943.2}, std::array{8.0, 6.0, 906.0}}) {
        const auto count = static_cast<std::size_t>(ranks);
        const auto bounds = strong_bounds_of(uniform(count, 2 * count, travelling, stashes, 0.6_ms));
        CHECK(alone(bounds));
        CHECK(bounds.best().value() == doctest::Approx(expected).epsilon(1e-6));
    }
}

TEST_CASE("alone the best, and met by a schedule") {
    const auto meets = [](const optpipe::problem& p, double grid) {
        const auto bounds = strong_bounds_of(p);
        const auto best = oracle::exhaustive_optimum(p, grid, 2'000'000);
        REQUIRE(best.proven);
        REQUIRE(best.objective.has_value());
        CHECK(bounds.best().value() <= *best.objective * (1.0 + 1e-9));
        return alone(bounds) && bounds.best().value() >= *best.objective * (1.0 - 1e-6);
    };
    CHECK(meets(uniform(2, 4, unit, 2.0, 1_ms), 1.0));
    // Engaged from the first start to the last end.
    int spans = 0;
    int offloads = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(120); ++i) {
        CAPTURE(i);
        oracle::random_numbers random{7'000 + i};
        const auto given = oracle::make_random_problem(
            random, {.cells = 6, .offloading_percent = 80, .span_percent = 60, .split_percent = 90});
        const auto bounds = strong_bounds_of(given.problem);
        if (!alone(bounds)) continue;
        const bool met = meets(given.problem, given.grid);
        spans += met && given.problem.objective == objective_kind::span ? 1 : 0;
        offloads += met && given.problem.whole_offload(optpipe::stage{0}) ? 1 : 0;
    }
    CHECK(spans > 0);
    CHECK(offloads > 0);
}

TEST_CASE("no builder is faster, up to 8×16") {
    constexpr std::uint64_t seed = 71;
    for (std::uint64_t i = 0; i < oracle::random_cases(25); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto p =
            oracle::make_random_problem(random, {.ranks = 8, .stages = 8, .microbatches = 16, .cells = 128}).problem;
        const auto bound = strong_bounds_of(p).best().value();
        optpipe::for_each_builder([&](const auto& build) {
            CAPTURE(build.name);
            if (const auto s = build_schedule(p, build)) CHECK(bound <= objective_of(p, *s).value() * (1.0 + 1e-9));
        });
    }
}

TEST_CASE("as many stashes as fit by the rule of comparisons") {
    // 3 × 0.1 is above 0.3, but fits.
    auto each = unit;
    each.activation = 0.1_gb;
    each.weight_stash = 0.1_gb;
    const auto exact = strong_bounds_of(uniform(4, 8, each, 0.1 + 0.1 + 0.1)).best();
    CHECK(strong_bounds_of(uniform(4, 8, each, 0.3)).best().value() == doctest::Approx(exact.value()));
    CHECK(strong_bounds_of(uniform(4, 8, each, 0.3 * (1.0 - 9e-7))).best().value() == doctest::Approx(exact.value()));
    CHECK(strong_bounds_of(uniform(4, 8, each, 0.3 * (1.0 - 1e-4))).best() > exact);
}

TEST_CASE("a problem without any schedule is refuted at last") {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic, optpipe::placement::loop<>> g{
        2, 4, optpipe::placement::loop<>{3}};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{unit}, 2_gb);
    CHECK(propagation_bound(p, 1_ms).is_unlimited());
    p.change_stages([&](auto& c) { c.transfer = transfer_times{1_ms, 1_ms}; });
    CHECK(propagation_bound(p, 1_ms) < p.serial_time());
}

TEST_CASE("the time by which a set of jobs can be done") {
    for (std::uint64_t i = 0; i < 200; ++i) {
        CAPTURE(i);
        oracle::random_numbers random{i};
        std::vector<std::pair<double, double>> jobs(random.between(1, 12));
        for (auto& [head, length] : jobs) {
            head = static_cast<double>(random.below(20));
            length = static_cast<double>(random.between(1, 5));
        }
        std::sort(jobs.begin(), jobs.end());
        optpipe::detail::completion_tree tree;
        tree.clear(jobs.size());
        std::vector<char> in(jobs.size(), false);
        for (std::size_t n = 0; n < jobs.size(); ++n) {
            const std::size_t j = random.below(jobs.size());
            tree.insert(j, jobs[j].first, jobs[j].second);
            in[j] = true;
            double now = 0.0;
            for (std::size_t k = 0; k < jobs.size(); ++k)
                if (in[k]) now = std::max(now, jobs[k].first) + jobs[k].second;
            CHECK(tree.completion() == now);
        }
    }
}

TEST_CASE("propagation knows the memory of graphs, and never refutes the optimum") {
    constexpr std::uint64_t seed = 7;
    int proven = 0;
    int raised = 0;
    int tight = 0;
    const auto cases = oracle::random_cases(300);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.cells = 8, .storage_percent = i % 3 == 0 ? 100U : 0U, .graph_percent = 100});
        const auto& p = given.problem;
        const auto best = oracle::exhaustive_optimum(p, given.grid, 5'000);
        if (!best.proven || is_plain(p)) continue;
        REQUIRE(best.objective);
        const auto bounds = strong_bounds_of(p);
        CHECK(bounds.best().value() <= *best.objective * (1.0 + 1e-9));
        ++proven;
        raised += alone(bounds) ? 1 : 0;
        tight += bounds.best().value() >= *best.objective * (1.0 - 1e-6) ? 1 : 0;
    }
    if (cases < 300) return;
    CHECK(proven > 200);
    CHECK(raised > 50);
    CHECK(tight > 200);
}

TEST_CASE("orders on one device") {
    const auto p = uniform(2, 3, unit, 9.0);
    const auto c = optpipe::detail::chains_of(p);
    optpipe::detail::order_counts order{c, c.devices[0]};
    REQUIRE(order.mirror());
    // W1 after I1 after F1; the number of gradients before the last forward is open.
    CHECK(order.first(0, 2, 0, 1) == 2);
    CHECK(order.first(0, 0, 1, 2) == 0);
    CHECK(order.most(0, 1, 2) == 2);
    CHECK(order.most(0, 2, 0) == 0);
    // F2 after I1: then W0 may still come later, but not after F2 if W0 precedes I1.
    CHECK(order.raise(0, 1, 2, 2));
    CHECK(!order.raise(0, 1, 2, 1));
    CHECK(order.raise(1, 2, 1, 1));
    order.close();
    REQUIRE(order.mirror());
    CHECK(order.first(0, 0, 2, 2) == 1);
    CHECK(order.first(1, 1, 0, 1) == 1); // I1, the second from the end, precedes F2.
    // I1 also after F2: each of them would have to be first.
    CHECK(order.raise(1, 0, 1, 3));
    CHECK(!order.mirror());
}
