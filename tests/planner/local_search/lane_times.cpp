#include "optpipe/planner/local_search/lane_times.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/planner/local_search/lane_moves.hpp"
#include "optpipe/planner/local_search/lane_objective.hpp"
#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_tails.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

using namespace optpipe;
using namespace optpipe::detail;

namespace {

using id = flat_problem::id;

oracle::problem_ranges ranges() {
    oracle::problem_ranges r;
    r.ranks = 4;
    r.microbatches = 6;
    r.cells = 24;
    r.offloading_percent = 70;
    return r;
}

/// Sequences, their times and their cost.
struct search_fixture {
    flat_problem p;
    lane_orders lanes{p};
    lane_times times{lanes};
    lane_objective objective{lanes, times};

    explicit search_fixture(const problem& given) : p{given} {}

    order to_order(const problem& given) {
        order result{given.graph, {}};
        REQUIRE(times.place_all([&](id i) { result.operations.push_back(lanes.operation_of(i)); }));
        return result;
    }
};

/// Checks that `simulate` gives every operation exactly the same times, and the same objective.
void check_against_simulate(const problem& given, search_fixture& t) {
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
std::vector<double> all_times(const search_fixture& t) {
    std::vector<double> result;
    for (id i = 0; i < static_cast<id>(t.p.size()); ++i)
        if (t.lanes.active(i)) {
            result.push_back(t.times.start(i));
            result.push_back(t.times.end(i));
        }
    return result;
}

bool same(const lane_orders::sequences& a, const lane_orders::sequences& b) {
    return a.order == b.order && a.link_order == b.link_order && a.choices == b.choices;
}

} // namespace

TEST_CASE("sequences get the times that simulate gives, to the last bit") {
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(1500); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, ranges());
        search_fixture t{given.problem};
        t.lanes.load(oracle::random_schedule(random, given));
        REQUIRE(t.lanes.all_legal());
        check_against_simulate(given.problem, t);
    }
}

TEST_CASE("orders that simulate refuses for lack of memory are illegal, and no others") {
    std::size_t refused = 0;
    std::size_t accepted = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(1500); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(random, ranges());
        auto roomy = given.problem;
        for (const rank r : roomy.graph.all_ranks())
            roomy.memory_limit[r] = roomy.host_memory_limit[r] = memory_size::unlimited();
        search_fixture t{roomy};
        t.lanes.load(*simulate(roomy, oracle::random_order(random, roomy)));
        const auto as_order = t.to_order(roomy);

        for (const rank r : roomy.graph.all_ranks()) {
            const auto needed = memory_needed(roomy, as_order)[r];
            if (random.chance(50))
                given.problem.memory_limit[r] = needed - memory_size{random.chance(20) ? 0.25 : 0.0};
            else
                given.problem.memory_limit[r] = memory_size::unlimited();
        }
        search_fixture tight{given.problem};
        tight.lanes.load(t.lanes.copy());
        const bool executable = simulate(given.problem, as_order).has_value();
        REQUIRE(tight.lanes.all_legal() == executable);
        accepted += executable ? 1 : 0;
        refused += executable ? 0 : 1;
    }
    CHECK(refused > oracle::random_cases(200));
    CHECK(accepted > oracle::random_cases(200));
}

TEST_CASE("propagating an edit gives the times of a full computation; rolling it back restores everything") {
    std::size_t kept = 0;
    std::size_t cycles = 0;
    std::size_t not_fifo = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(250); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, ranges());
        search_fixture t{given.problem};
        search_fixture anew{given.problem};
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
                edited = moves.propose(moves.random_operation(random), random);
            if (edited && t.lanes.legal()) {
                anew.lanes.load(t.lanes.copy());
                REQUIRE(anew.lanes.all_legal());
                const bool possible = anew.times.place_all();
                const bool followed = t.times.propagate([](id, double) { return false; });
                // With shared links a transfer may come before its predecessor. The times are still those of a
                // schedule; in the order of their starts, an operation may wait less for memory.
                if (followed && !possible && t.p.channels() > 0) {
                    const auto timed = t.times.to_schedule(given.problem.graph);
                    REQUIRE(validate(given.problem, timed).empty());
                    const auto executed = simulate(given.problem, order_of(timed));
                    REQUIRE(executed);
                    t.objective.measure_changes(t.times.first_change());
                    if (given.problem.objective == objective_kind::makespan)
                        REQUIRE(objective_of(given.problem, *executed).value() <= t.objective.value());
                    ++not_fifo;
                } else {
                    REQUIRE(followed == possible);
                }
                cycles += possible ? 0 : 1;
                if (possible) {
                    REQUIRE(all_times(t) == all_times(anew));
                    t.objective.measure_changes(t.times.first_change());
                    anew.objective.measure();
                    REQUIRE(t.objective.value() == anew.objective.value());
                    REQUIRE(t.objective.mean() == anew.objective.mean());
                }
                if (possible && random.chance(60)) {
                    t.lanes.commit();
                    t.times.commit();
                    t.objective.commit();
                    ++kept;
                    continue;
                }
                t.times.rollback();
            } else if (edited) {
                anew.lanes.load(t.lanes.copy());
                REQUIRE_FALSE(anew.lanes.all_legal());
            }
            t.lanes.rollback();
            REQUIRE(same(t.lanes.copy(), before));
            REQUIRE(all_times(t) == times_before);
        }
        check_against_simulate(given.problem, t);
    }
    CHECK(kept >= oracle::random_cases(2000));
    CHECK(cycles >= oracle::random_cases(100));
    CHECK(not_fifo < cycles / 4);
}

TEST_CASE("start plus tail is at most the makespan, and as much for something that starts at once") {
    std::size_t states = 0;
    std::size_t out_of_order = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(random, ranges());
        given.problem.objective = objective_kind::makespan;
        given.problem.host_memory_limit = per_rank<memory_size>(given.problem.graph.ranks(), memory_size::unlimited());
        search_fixture t{given.problem};
        t.lanes.load(oracle::random_schedule(random, given));
        REQUIRE(t.times.place_all());
        lane_moves moves{t.lanes, t.times};
        lane_tails tails{t.lanes, t.times};
        for (int step = 0; step < 100; ++step) {
            if (!moves.propose(moves.random_operation(random), random) || !t.lanes.legal() ||
                !t.times.propagate([](id, double) { return false; })) {
                t.times.rollback();
                t.lanes.rollback();
                continue;
            }
            t.lanes.commit();
            t.times.commit();
            t.objective.measure();
            tails.find([](id) { return 0.0; });
            double from_start = 0.0;
            for (id i = 0; i < static_cast<id>(t.p.size()); ++i) {
                if (!t.lanes.active(i)) continue;
                REQUIRE(tails[i] >= t.lanes.facts(i).duration);
                REQUIRE(t.times.start(i) + tails[i] <= t.objective.value() + 1e-9);
                if (t.times.start(i) == 0.0) from_start = std::max(from_start, tails[i]);
            }
            REQUIRE(from_start == doctest::Approx(t.objective.value()));
            ++states;
            lane_orders copy{t.p};
            copy.load(t.lanes.copy());
            out_of_order += lane_times{copy}.place_all() ? 0 : 1;
        }
    }
    CHECK(states > 1000);
    CHECK(out_of_order > 10); // on shared links, where lanes wait for each other
}

// With shared links, tails follow the starts from before the move, so a tail may be too long.
TEST_CASE("a cutoff rejects only moves that are worse, with shared links nearly always") {
    std::size_t cut = 0;
    std::size_t cut_with_links = 0;
    std::size_t wrongly = 0;
    for (std::uint64_t seed = 1; seed <= 600; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        auto given = oracle::make_random_problem(random, ranges());
        given.problem.objective = objective_kind::makespan;
        search_fixture t{given.problem};
        t.lanes.load(oracle::random_schedule(random, given));
        REQUIRE(t.times.place_all());
        t.objective.measure();
        lane_moves moves{t.lanes, t.times};
        lane_tails tails{t.lanes, t.times};
        for (int step = 0; step < 100; ++step) {
            const double value = t.objective.value();
            if (moves.propose(moves.random_operation(random), random) && t.lanes.legal()) {
                tails.find([&](id) { return 0.0; });
                const bool within =
                    t.times.propagate([&](id i, double start) { return start + tails[i] > value + 1e-9; });
                if (!within) {
                    t.times.rollback();
                    const bool possible = t.times.propagate([](id, double) { return false; });
                    if (possible) t.objective.measure_changes(t.times.first_change());
                    const bool is_wrong = possible && t.objective.value() <= value;
                    if (t.p.channels() > 0) {
                        wrongly += is_wrong ? 1 : 0;
                        ++cut_with_links;
                    } else {
                        REQUIRE_FALSE(is_wrong);
                        ++cut;
                    }
                } else {
                    t.objective.measure_changes(t.times.first_change());
                    if (t.objective.value() <= value) {
                        t.lanes.commit();
                        t.times.commit();
                        t.objective.commit();
                        continue;
                    }
                }
                t.times.rollback();
            }
            t.lanes.rollback();
            t.objective.measure();
        }
    }
    CHECK(cut > 1000);
    CHECK(cut_with_links > 1000);
    CHECK(wrongly < cut_with_links / 10); // 4 % are seen; a tenth is a guess
}

TEST_CASE("a schedule is read and written with the storage option of every stash") {
    std::size_t offloaded = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(200); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, ranges());
        const auto& p = given.problem;
        search_fixture t{p};
        const auto s = oracle::random_schedule(random, given);
        t.lanes.load(s);
        REQUIRE(t.times.place_all());
        for (const auto& each : s.operations) {
            const auto& op = each.op;
            const id i = t.p.number(op);
            REQUIRE(t.lanes.active(i));
            auto read = t.lanes.operation_of(i);
            const bool is_split = op.kind == operation_kind::backward && read.kind == operation_kind::backward_input;
            CHECK((!is_split || !t.p.full_may_pay(t.p.stage_of(i)))); // splitting saves no memory there
            if (is_split) read.kind = op.kind;
            CHECK(read == op);
            if (op.kind != operation_kind::offload) continue;
            CHECK(p.storage_of(op.stage, t.lanes.storage(i)).offloads());
            ++offloaded;
        }
    }
    CHECK(offloaded > oracle::random_cases(100));
}

TEST_CASE("a new storage option brings its operations and takes those of the old one") {
    stage_costs costs;
    costs.forward = costs.backward_input = costs.backward_weight = duration{1.0};
    costs.activation = costs.weight_stash = memory_size{1.0};
    costs.transfer = transfer_times{duration{1.0}, duration{1.0}};
    problem given{to_any_graph(graph<dynamic, dynamic>{1, 3}), per_stage<stage_costs>(1, costs)};
    given.memory_limit[rank{0}] = memory_size{1.0};
    search_fixture t{given};
    t.lanes.load(*time_order(given, one_at_a_time(given)));
    REQUIRE(t.times.place_all());
    REQUIRE(t.p.options(0) == 2);
    lane_moves moves{t.lanes, t.times};
    random_numbers random{1};
    const id second = t.p.number(0, operation_kind::forward, 1);
    CHECK_FALSE(moves.set_storage(second, 0, random)); // it has this option
    for (const id option : {1, 0}) {
        REQUIRE(moves.set_storage(second, option, random));
        CHECK(t.lanes.legal());
        CHECK(t.times.propagate([](id, double) { return false; }));
        CHECK(t.lanes.storage(second) == option);
        CHECK(t.lanes.is_offloaded(second) == (option == 1));
        const id gradient = t.lanes.gradient(second);
        CHECK(gradient + t.lanes.facts(gradient).own_input ==
              t.p.sibling(second, option == 1 ? operation_kind::reload : operation_kind::forward));
        t.lanes.commit();
        t.times.commit();
        check_against_simulate(given, t);
    }
    REQUIRE(moves.set_storage(second, 1, random));
    t.lanes.rollback();
    CHECK(t.lanes.storage(second) == 0);
    CHECK_FALSE(t.lanes.is_offloaded(second));
}

TEST_CASE("what takes too much memory is relieved by another storage option of a stash that is there") {
    stage_costs unit;
    unit.forward = unit.backward_input = unit.backward_weight = duration{1.0};
    unit.activation = unit.weight_stash = memory_size{1.0};
    problem p{to_any_graph(graph<dynamic, dynamic>{1, 3}), per_stage<stage_costs>(1, unit)};
    p.split_backward = false;
    p.memory_limit[rank{0}] = memory_size{1.5};
    p.storage[stage{0}] = {keep_stash(unit), {"full", memory_size{0.25}, {}, duration{1.0}, {}, {}}};
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        search_fixture t{p};
        t.lanes.load(*time_order(p, one_at_a_time(p)));
        const auto forward = [&](id m) { return t.p.number(0, operation_kind::forward, m); };
        for (id m = 0; m < 3; ++m)
            t.lanes.choose(forward(m), {});
        t.lanes.commit();
        REQUIRE(t.lanes.all_legal());
        REQUIRE(t.times.place_all());
        lane_moves moves{t.lanes, t.times};
        CHECK_FALSE(moves.relieve(random)); // nothing was edited

        // F0 F1 B0 B1: the second forward needs 1 in addition to 1.
        t.lanes.shift(t.lanes.position(forward(1)), t.lanes.position(forward(0)) + 1);
        CHECK_FALSE(t.lanes.legal());
        CHECK(t.lanes.overflow() == t.lanes.position(forward(1)));
        REQUIRE(moves.relieve(random));
        CHECK(t.lanes.storage(forward(0)) + t.lanes.storage(forward(1)) == 1);
        CHECK(t.lanes.storage(forward(2)) == 0); // not held at that time
        CHECK(t.lanes.legal());
        t.lanes.rollback();
        CHECK(t.lanes.storage(forward(0)) + t.lanes.storage(forward(1)) == 0);
    }
}
