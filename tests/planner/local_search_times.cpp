#include "optpipe/core/random.hpp"
#include "optpipe/planner/local_search/lane_moves.hpp"
#include "optpipe/planner/local_search/lane_objective.hpp"
#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_tails.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

using namespace optpipe;
using namespace optpipe::detail;

namespace {

using id = flat_pipeline::id;

oracle::problem_ranges ranges() {
    oracle::problem_ranges r;
    r.ranks = 4;
    r.microbatches = 6;
    r.cells = 24;
    r.offloading_percent = 70;
    return r;
}

/// The sequences, their times, and what they are worth.
struct bench_table {
    flat_pipeline p;
    lane_orders lanes{p};
    lane_times times{lanes};
    lane_objective objective{lanes, times};

    explicit bench_table(const problem& given) : p{given} {}

    order to_order(const problem& given) {
        order result{given.graph, {}};
        REQUIRE(times.place_all([&](id i) { result.operations.push_back(p.operation_of(i)); }));
        return result;
    }
};

/// Whether the official simulator gives every operation the very same times, and the same objective.
void check_against_simulate(const problem& given, bench_table& t) {
    const auto as_order = t.to_order(given);
    const auto timed = simulate(given, as_order);
    REQUIRE(timed);
    for (const auto& op : timed->operations) {
        const id i = t.p.number(op.op);
        REQUIRE_MESSAGE(t.times.start(i) == op.start.value(), to_string(op.op));
        REQUIRE_MESSAGE(t.times.end(i) == op.end.value(), to_string(op.op));
    }
    t.objective.measure();
    REQUIRE(t.objective.value() == doctest::Approx(objective_of(given, *time_order(given, as_order)).value()));
}

/// All times of the operations in use.
std::vector<double> all_times(const bench_table& t) {
    std::vector<double> result;
    for (id i = 0; i < static_cast<id>(t.p.size()); ++i)
        if (t.lanes.active(i)) {
            result.push_back(t.times.start(i));
            result.push_back(t.times.end(i));
        }
    return result;
}

bool same(const lane_orders::sequences& a, const lane_orders::sequences& b) {
    return a.order == b.order && a.link_order == b.link_order && a.active == b.active;
}

} // namespace

TEST_CASE("sequences get the times that simulate gives, to the last bit") {
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, ranges());
        bench_table t{given.problem};
        t.lanes.load(oracle::random_schedule(random, given));
        REQUIRE(t.lanes.legal_throughout());
        check_against_simulate(given.problem, t);
    }
}

TEST_CASE("what simulate refuses for want of memory isn't legal, and nothing else") {
    std::size_t refused = 0;
    std::size_t accepted = 0;
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(random, ranges());
        auto roomy = given.problem;
        for (const rank r : roomy.graph.all_ranks())
            roomy.memory_limit[r] = roomy.host_memory_limit[r] = memory_size::unlimited();
        bench_table t{roomy};
        t.lanes.load(*simulate(roomy, oracle::random_order(random, roomy)));
        const auto as_order = t.to_order(roomy);

        for (const rank r : roomy.graph.all_ranks()) {
            const auto needed = memory_needed(roomy, as_order)[r];
            if (random.chance(50))
                given.problem.memory_limit[r] = needed - memory_size{random.chance(20) ? 0.25 : 0.0};
            else
                given.problem.memory_limit[r] = memory_size::unlimited();
        }
        bench_table tight{given.problem};
        tight.lanes.load(t.lanes.copy());
        const bool executable = simulate(given.problem, as_order).has_value();
        REQUIRE(tight.lanes.legal_throughout() == executable);
        (executable ? accepted : refused) += 1;
    }
    CHECK(refused > 200);
    CHECK(accepted > 200);
}

TEST_CASE("following an edit gives what placing all anew gives; taking it back restores everything") {
    std::size_t kept = 0;
    std::size_t circles = 0;
    std::size_t out_of_turn = 0;
    for (std::uint64_t seed = 1; seed <= 250; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, ranges());
        bench_table t{given.problem};
        bench_table anew{given.problem};
        t.lanes.load(oracle::random_schedule(random, given));
        REQUIRE(t.times.place_all());
        t.objective.measure();
        lane_moves moves{t.lanes, t.times};
        for (int step = 0; step < 150; ++step) {
            CAPTURE(step);
            const auto before = t.lanes.copy();
            const auto times_before = all_times(t);
            bool edited = true;
            for (auto edits = 1 + random.below(3); edits > 0 && edited; --edits)
                edited = moves.draw(moves.random_operation(random), random);
            if (edited && t.lanes.legal()) {
                anew.lanes.load(t.lanes.copy());
                REQUIRE(anew.lanes.legal_throughout());
                const bool possible = anew.times.place_all();
                const bool followed = t.times.follow([](id, double) { return false; });
                // Where links are shared, a transfer may stand before what it waits for; the times are right.
                if (followed && !possible && t.p.channels() > 0) {
                    const auto executed = simulate(given.problem, order_of(t.times.to_schedule(given.problem.graph)));
                    REQUIRE(executed);
                    t.objective.measure_changes(t.times.first_change());
                    if (given.problem.objective == objective_kind::makespan)
                        REQUIRE(objective_of(given.problem, *executed).value() == t.objective.value());
                    ++out_of_turn;
                } else {
                    REQUIRE(followed == possible);
                }
                circles += possible ? 0 : 1;
                if (possible) {
                    REQUIRE(all_times(t) == all_times(anew));
                    t.objective.measure_changes(t.times.first_change());
                    anew.objective.measure();
                    REQUIRE(t.objective.value() == anew.objective.value());
                    REQUIRE(t.objective.mean() == anew.objective.mean());
                }
                if (possible && random.chance(60)) {
                    t.lanes.keep();
                    t.times.keep();
                    t.objective.keep();
                    ++kept;
                    continue;
                }
                t.times.take_back();
            } else if (edited) {
                anew.lanes.load(t.lanes.copy());
                REQUIRE_FALSE(anew.lanes.legal_throughout());
            }
            t.lanes.take_back();
            REQUIRE(same(t.lanes.copy(), before));
            REQUIRE(all_times(t) == times_before);
        }
        check_against_simulate(given.problem, t);
    }
    CHECK(kept > 2000);
    CHECK(circles > 100);
    CHECK(out_of_turn < circles / 4);
}

TEST_CASE("a cutoff hardly ever ends what isn't worse") {
    std::size_t cut = 0;
    std::size_t wrongly = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(random, ranges());
        given.problem.objective = objective_kind::makespan;
        bench_table t{given.problem};
        t.lanes.load(oracle::random_schedule(random, given));
        REQUIRE(t.times.place_all());
        t.objective.measure();
        lane_moves moves{t.lanes, t.times};
        lane_tails tails{t.lanes, t.times};
        for (int step = 0; step < 100; ++step) {
            const double value = t.objective.value();
            if (moves.draw(moves.random_operation(random), random) && t.lanes.legal()) {
                tails.find([&](id) { return 0.0; });
                const bool within = t.times.follow([&](id i, double start) { return start + tails[i] > value + 1e-9; });
                if (!within) {
                    t.times.take_back();
                    const bool possible = t.times.follow([](id, double) { return false; });
                    if (possible) t.objective.measure_changes(t.times.first_change());
                    wrongly += possible && t.objective.value() <= value ? 1 : 0;
                    ++cut;
                } else {
                    t.objective.measure_changes(t.times.first_change());
                    if (t.objective.value() <= value) {
                        t.lanes.keep();
                        t.times.keep();
                        t.objective.keep();
                        continue;
                    }
                }
                t.times.take_back();
            }
            t.lanes.take_back();
            t.objective.measure();
        }
    }
    CHECK(cut > 1000);
    CHECK(wrongly < cut / 50);
}
