// Plans of graphs and of microbatches that differ.
#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "optpipe/io/json.hpp"
#include "optpipe/planner/plan.hpp"
#include "optpipe/schedule/bounds/graph_bound.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <utility>

namespace {

using namespace optpipe;

problem example(const std::string& name) {
    return read_problem(OPTPIPE_SOURCE_DIR "/tests/data/format3/" + name + ".json");
}

plan_result checked_plan(const problem& p, const plan_options& how = {}) {
    const auto planned = plan(p, how);
    REQUIRE(planned);
    const auto& found = *planned;
    const auto judged = oracle::judge(p, found.schedule);
    CHECK(judged.text() == "");
    CHECK(judged.objective == doctest::Approx(found.objective.value()));
    CHECK(found.bound <= found.objective);
    CHECK(found.bound.value() >= graph_bound(p).value() * (1.0 - 1e-9));
    return found;
}

} // namespace

TEST_CASE("a plan that is called proven is the optimum") {
    constexpr std::uint64_t seed = 11;
    int proven = 0;
    const auto cases = oracle::random_cases(30);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = oracle::make_random_problem(
            random, {.cells = 8, .storage_percent = i % 3 == 0 ? 100U : 0U, .graph_percent = 100});
        const auto& p = given.problem;
        if (is_plain(p)) continue;
        const auto best = oracle::exhaustive_optimum(p, given.grid, 5'000);
        if (!best.proven) continue;
        const auto found = checked_plan(p);
        REQUIRE(best.objective);
        CHECK(found.objective.value() >= *best.objective * (1.0 - 1e-9));
        CHECK(found.bound.value() <= *best.objective * (1.0 + 1e-9));
        if (found.why != plan_end::optimal) continue;
        ++proven;
        CHECK(found.objective.value() <= *best.objective * (1.0 + 1e-6));
    }
    if (cases >= 30) CHECK(proven > 15);
}

TEST_CASE("slices of sequences: Seq1F1B's 28.5, and the optimum") {
    const auto found = checked_plan(example("slice-linear-p4-m8-k2"));
    CHECK(found.objective.value() == doctest::Approx(25.5));
    CHECK(found.bound.value() == doctest::Approx(25.5));
    CHECK(found.why == plan_end::optimal);
}

TEST_CASE("microbatches that differ: better than 1F1B in their best order, and no worse than what is published") {
    const auto found = checked_plan(example("uneven-dynapipe"));
    CHECK(found.bound.value() >= 199.2 - 1e-6);
    CHECK(found.objective.value() <= 208.8 + 1e-6);
    std::set<std::string> methods;
    for (const auto& each : found.builders) {
        if (!each.objective) continue;
        methods.insert(each.method);
        CHECK(found.objective.value() <= each.objective->value() * (1.0 + 1e-9));
    }
    for (const auto* name : {"1f1b", "graph-1f1b", "dynapipe"})
        CHECK(methods.count(name) == 1);
    CHECK(methods.count("adaptive") == 0); // not published
}

TEST_CASE("small graphs: close to their optima, which no bound exceeds") {
    const std::pair<const char*, double> optima[] = {{"mtp-small-p2-m3-d1-mem3.5", 82.0},
                                                     {"slice-small-v-p2-m2-k2-mem3", 27.0},
                                                     {"slice-small-linear-p2-m2-k2-a050-mem1.75", 35.000004},
                                                     {"unet-small-v-p2-m4-mem4.5", 50.0},
                                                     {"vision-small-none-p3-m3-mem2.5", 48.3},
                                                     {"vocab-small-p3-m3", 56.0}};
    for (std::size_t i = 0; i < std::size(optima); i += oracle::stride(3)) {
        const auto& [name, optimum] = optima[i];
        CAPTURE(name);
        const auto found = checked_plan(example(name));
        CHECK(found.bound.value() <= optimum * (1.0 + 1e-9));
        CHECK(found.objective.value() >= optimum * (1.0 - 1e-9));
        CHECK(found.objective.value() <= optimum * (1.0 + 1e-9));
    }
}

TEST_CASE("problems with pairs: near the best known, by searches that know pairs") {
    constexpr double step = 1.0; // between objectives
    plan_options quick;
    quick.without = {"adaptive"}; // which takes most of the time, and finds nothing better
    const std::pair<const char*, double> best_known[] = {{"pair-small-v-p2-m2", 26.0},
                                                         {"pair-small-loop2-p2-m3", 35.0}};
    for (std::size_t i = 0; i < std::size(best_known); i += oracle::stride(2)) {
        const auto& [name, best] = best_known[i];
        CAPTURE(name);
        const auto found = checked_plan(example(name), quick);
        CHECK(found.objective.value() <= best + step);
        CHECK(found.bound.value() <= best * (1.0 + 1e-9));
        for (const auto& each : found.contributions) {
            CAPTURE(each.name);
            CHECK(each.name != "cp");
            CHECK(each.name != "propagation");
        }
    }
}

#endif
