// The model with lists of storage options, compared with exhaustive search; and conversions between schedules and
// points.
#include "optpipe/formulation/storage_options.hpp"

#include "formulation/model_checks.hpp"
#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/named_plan.hpp"
#include "optpipe/formulation/priority_schedule.hpp"
#include "optpipe/formulation/variable_names.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/milp/io/write_mps.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

using namespace optpipe;
using namespace model_checks;
using formulation::formulate;
using formulation::overtaking;

namespace {

/// A family of random problems with lists of storage options: the i-th depends only on `seed` and i.
struct family {
    std::uint64_t seed;
    testing::problem_ranges ranges;
    /// Factor on the memory limits.
    double tightened = 1.0;

    [[nodiscard]] testing::random_problem draw(random_numbers& random) const {
        auto wanted = ranges;
        wanted.storage_percent = 100;
        auto r = testing::make_random_problem(random, wanted);
        for (auto& limit : r.problem.memory_limit)
            limit = tightened * limit;
        return r;
    }
};

const family small{31, {.cells = 5, .offloading_percent = 60}};
const family two_ranks{
    32, {.ranks = 2, .stages = 4, .microbatches = 4, .cells = 6, .offloading_percent = 60, .span_percent = 10}};
const family not_split{33, {.cells = 5, .offloading_percent = 60, .split_percent = 0}};
const family little_memory{34, {.cells = 4, .offloading_percent = 40}, 0.4};

struct tally {
    std::size_t compared = 0;
    std::size_t infeasible = 0;
    /// Properties of optimal schedules.
    std::size_t offloaded = 0;
    std::size_t recomputed = 0;
    std::size_t mixed = 0; ///< microbatches of one stage with different options
};

void count_uses(const problem& p, const schedule& s, tally& seen) {
    bool offloads = false, recomputes = false;
    per_stage<std::set<storage_index>> used(p.graph.stages());
    for (const auto& timed : s.operations) {
        offloads = offloads || timed.op.kind == operation_kind::offload;
        recomputes = recomputes || timed.op.kind == operation_kind::recompute;
        used[timed.op.stage].insert(timed.op.storage);
    }
    seen.offloaded += offloads ? 1 : 0;
    seen.recomputed += recomputes ? 1 : 0;
    seen.mixed += std::any_of(used.begin(), used.end(), [](const auto& u) { return u.size() > 1; }) ? 1 : 0;
}

void compare(const family& of, std::uint64_t i, tally& seen) {
    CAPTURE(of.seed);
    CAPTURE(i);
    random_numbers random{of.seed * 1'000'003 + i};
    const auto made = of.draw(random);
    const auto& p = made.problem;
    if (is_described_by_costs(p)) return;
    const auto best = oracle::exhaustive_optimum(p, made.grid, 20'000);
    if (!best.proven) return;
    formulation::options o;
    o.with = some_of(random.below(std::size_t{1} << 8));
    if (best.objective && random.chance(50)) o.horizon = duration{*best.objective};
    const auto f = formulate(p, o);
    REQUIRE(f.has_value());
    REQUIRE((*f)->is_exact);
    const auto found = solved(**f);
    if (!best.objective) {
        ++seen.infeasible;
        CHECK(std::holds_alternative<milp::infeasible>(found.why));
        return;
    }
    ++seen.compared;
    count_uses(p, best.schedule, seen);
    check_witness(p, **f, best.schedule);
    CHECK(std::holds_alternative<milp::optimal>(found.why));
    CHECK_MESSAGE(near(found.objective, *best.objective), found.objective << " instead of " << *best.objective);
    check_solution(p, **f, found);
    const auto verdict = oracle::judge(p, *schedule_of(**f, *found.incumbent));
    CHECK_MESSAGE(verdict.valid(), verdict.text());
}

tally compare_many(const family& of, std::uint64_t count) {
    tally seen;
    for (std::uint64_t i = 0; i < count; ++i)
        compare(of, i, seen);
    MESSAGE(seen.compared << " problems; the optimum offloads in " << seen.offloaded << ", recomputes in "
                          << seen.recomputed << ", mixes options in " << seen.mixed << "; " << seen.infeasible
                          << " have none");
    return seen;
}

problem file(std::string_view name) {
    return read_problem(std::string{OPTPIPE_SOURCE_DIR "/tests/data/"}.append(name));
}

/// The same problem with the options of every stage in a list.
problem listed(problem p) {
    for (const stage s : p.graph.all_stages()) {
        storage_list<false> options;
        for (std::size_t o = 0; o < p.storage_options(s); ++o)
            options.push_back(p.storage_of(s, o));
        p.storage[s] = options;
        p.costs[s].transfer = std::nullopt;
    }
    return p;
}

} // namespace

TEST_CASE("storage options: the optimum of the model is that of the problem, whatever strengthens it") {
    const auto seen = compare_many(small, oracle::random_cases(200));
    CHECK(seen.compared > oracle::random_cases(120));
    CHECK(seen.offloaded > oracle::random_cases(15));
    CHECK(seen.recomputed > oracle::random_cases(15));
    // Fewer cases may have none.
    CHECK(seen.mixed + 2 > oracle::random_cases(7));
}

TEST_CASE("storage options: more microbatches on two ranks, v placements among them") {
    CHECK(compare_many(two_ranks, oracle::random_cases(120)).compared > oracle::random_cases(60));
}

TEST_CASE("storage options: full backwards alone") {
    CHECK(compare_many(not_split, oracle::random_cases(100)).compared > oracle::random_cases(60));
}

TEST_CASE("storage options: too little memory for any of them") {
    CHECK(compare_many(little_memory, oracle::random_cases(150)).infeasible > oracle::random_cases(15));
}

TEST_CASE("storage options: random schedules are points of the model") {
    std::size_t points = 0, restored = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(300); ++seed) {
        random_numbers random{seed};
        const auto made = oracle::make_random_problem(random, {.ranks = 3, .cells = 10, .storage_percent = 100});
        const auto& p = made.problem;
        if (is_described_by_costs(p)) continue;
        const auto f = formulate(p);
        REQUIRE(f.has_value());
        for (int k = 0; k < 5; ++k) {
            const auto timed = oracle::random_schedule(random, made);
            if (objective_of(p, timed) > p.serial_time()) continue;
            INFO("seed " << seed << ", schedule " << k);
            CHECK(is_point(p, **f, timed));
            ++points;
            // Its times as priorities give a schedule again, unless memory is filled by work that can't be finished.
            const auto times = formulation::times_of(**f, *values_of(**f, timed));
            const auto listed = formulation::priority_schedule(*(*f)->operations, times);
            restored += listed.has_value() ? 1 : 0;
            if (listed) CHECK(is_valid(p, *listed));
        }
    }
    MESSAGE(points << " schedules, " << restored << " of them as lists of priorities");
    CHECK(points > oracle::random_cases(500));
    CHECK(restored > points / 2);
}

TEST_CASE("storage options: values by name are the schedule") {
    const auto p = file("storage/store-p2-m4-k100.json");
    random_numbers random{1};
    const auto f = formulate(p);
    REQUIRE(f.has_value());
    const auto& model = (*f)->model;
    const auto leading = formulation::leading_names(*(*f)->operations);
    REQUIRE(leading.size() <= model.variables());
    for (std::size_t j = 0; j < leading.size(); ++j)
        CHECK(leading[j] == model.name(milp::variable{j}));
    const auto given = *simulate(p, oracle::random_order(random, p));
    const auto point = values_of(**f, given);
    REQUIRE(point.has_value());
    formulation::named_values named;
    for (std::size_t j = 0; j < leading.size(); ++j)
        named[leading[j]] = (*point)[j];
    const auto& operations = *(*f)->operations;
    const auto plan = formulation::plan_of(operations, named, "named");
    for (std::size_t a = 0; a < operations.size(); ++a) {
        const auto op = plan.operation_of(operations, a);
        if (!plan.takes_place(operations, a) || op.kind == operation_kind::backward) continue;
        const double end = plan.start[a] + duration_of(p, op).value();
        CHECK(end == doctest::Approx(named.at(formulation::end_name(operations, a))));
    }
    const auto back = formulation::schedule_of(operations, plan);
    REQUIRE(back.has_value());
    CHECK(is_valid(p, *back));
    CHECK(objective_of(p, *back) <= objective_of(p, given) * (1.0 + 1e-9));

    std::erase_if(named, [](const auto& value) { return value.first.starts_with("storage.1.2."); });
    CHECK_THROWS_WITH_AS(static_cast<void>(formulation::plan_of(operations, named, "named")),
                         doctest::Contains("storage.1.2: no storage option is chosen"), input_error);
}

TEST_CASE("storage options: a horizon is rounded to multiples of what any option takes") {
    auto p = file("storage/store-p2-m4-k100.json");
    const duration unit{10.0}, extra{3.0};
    for (const stage s : p.graph.all_stages()) {
        auto& c = p.costs[s];
        c.forward = c.backward_input = c.backward_weight = unit;
        p.storage[s] = {{"keep", c.activation}, {"full", 0.5 * c.activation, {}, extra}};
    }
    p.p2p = hop_times<>{};
    formulation::options o;
    o.horizon = 20.0 * unit + extra;
    const auto f = formulate(p, o);
    REQUIRE(f.has_value());
    CHECK((*f)->horizon == doctest::Approx(o.horizon.value()));
}

TEST_CASE("storage options: keep and offload need one variable per microbatch, in a list or not") {
    for (const auto* name : {"problems/offload-p2-m4-mem050-k100.json", "problems/unit-p4-m8-mem075.json"})
        for (const auto form : {overtaking::forbidden, overtaking::pooled, overtaking::allowed}) {
            CAPTURE(name);
            const auto p = file(name);
            formulation::options o;
            o.overtaking = form;
            o.with.propagation = false; // which deduces nothing with lists
            const auto f = formulate(p, o), same = formulate(listed(p), o);
            REQUIRE((f.has_value() && same.has_value()));
            const auto& t = *(*f)->operations;
            const auto& size = (*f)->sizes[static_cast<std::size_t>(formulation::family::storage_options)];
            CHECK(size.variables == (t.any_may_offload() ? t.cells() : 0));
            CHECK(size.rows == 0);
            const bool is_same = milp::model_to_mps((*f)->model) == milp::model_to_mps((*same)->model);
            CHECK(is_same);
        }
}

TEST_CASE("storage options: the model lacks those that are never better") {
    auto p = file("storage/store-p2-m4-k100.json");
    const stage s{0};
    auto slow = p.storage_of(s, 1);
    slow.name = "slow";
    slow.recompute = 2.0 * slow.recompute;
    p.storage[s].push_back(slow);
    const formulation::operation_table limited{p};
    CHECK(limited.options(s) == std::vector<storage_index>{0, 1, 2, 3});
    CHECK(limited.replacement(s, 4) == 1);
    p.memory_limit[p.rank_of(s)] = memory_size::unlimited();
    const formulation::operation_table unlimited{p};
    CHECK(unlimited.options(s) == std::vector<storage_index>{0});
    for (storage_index o = 0; o < 5; ++o)
        CHECK(unlimited.replacement(s, o) == 0);
}

TEST_CASE("storage options: only the form that names microbatches knows them") {
    for (const auto form : {overtaking::forbidden, overtaking::pooled}) {
        formulation::options o;
        o.overtaking = form;
        const auto f = formulate(file("storage/store-p2-m4-k100.json"), o);
        REQUIRE_FALSE(f.has_value());
        CHECK(f.why().sentence ==
              std::string_view{"with these storage options there is only the model that names microbatches"});
    }
}
