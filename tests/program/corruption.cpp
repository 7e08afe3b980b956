#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "optpipe/io/json.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/reference_checker.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// The ways to spoil a schedule, each at a random place. Times change by much more than the tolerance, or not at all.
class vandal {
public:
    vandal(oracle::random_numbers& random, const problem& p) : random_{random}, p_{p} {}

    std::string spoil(schedule_report& report) {
        auto& ops = report.schedule.operations;
        auto& one = ops[random_.below(ops.size())];
        auto& other = ops[random_.below(ops.size())];
        const auto name = to_string(one.op);
        switch (random_.below(9)) {
        case 0: std::swap(one.op, other.op); return "swap " + name + " with " + to_string(other.op);
        case 1: exchange_times(one, other); return "let " + name + " and " + to_string(other.op) + " change places";
        case 2: shift(one); return "shift " + name;
        case 3: one.end += 0.37 * (one.end - one.start); return "stretch " + name;
        case 4: ops.erase(ops.begin() + (&one - ops.data())); return "drop " + name;
        case 5: ops.push_back(timed_operation{one}); return "duplicate " + name;
        case 6: retarget(one.op); return "retarget " + name + " to " + to_string(one.op);
        case 7:
            one.op.kind = all_operation_kinds[random_.below(6)];
            return "change " + name + " to " + to_string(one.op);
        default: return misstate(report);
        }
    }

private:
    static void exchange_times(timed_operation& a, timed_operation& b) {
        const auto first = std::min(a.start, b.start);
        const auto last = std::max(a.end, b.end);
        auto& early = a.start <= b.start ? b : a;
        auto& late = a.start <= b.start ? a : b;
        early = {early.op, first, first + (early.end - early.start)};
        if (&early != &late) late = {late.op, last - (late.end - late.start), last};
    }
    void shift(timed_operation& t) {
        constexpr double shares[] = {-2.0, -1.0, -0.5, -0.03, 0.03, 0.5, 1.0, 2.0};
        const auto by = shares[random_.below(8)] * (t.end - t.start);
        t.start += by;
        t.end += by;
    }
    void retarget(operation& op) {
        if (random_.chance(50))
            op.stage = stage{random_.below(p_.graph.stages() + 1)};
        else
            op.microbatch = microbatch{random_.below(p_.graph.microbatches() + 1)};
    }
    std::string misstate(schedule_report& report) {
        auto& m = report.measures;
        constexpr double factors[] = {0.5, 0.999, 1.001, 2.0};
        const double factor = factors[random_.below(4)];
        switch (random_.below(4)) {
        case 0: m.objective = factor * m.objective; return "misstate the objective";
        case 1: m.bubble_rate = factor * m.bubble_rate; return "misstate the bubble rate";
        case 2: {
            auto& peak = m.peak_memory[rank{random_.below(p_.graph.ranks())}];
            peak = factor * peak;
            return "misstate a peak";
        }
        default: report.bound = factor * m.objective; return "misstate the bound";
        }
    }

    oracle::random_numbers& random_;
    const problem& p_;
};

/// As `optpipe check` judges a file.
bool library_accepts(const problem& p, const std::string& text) {
    const auto document = parse_schedule(text, "corrupted");
    if (!document.unreadable.empty()) return false;
    const auto timed = to_schedule(p, document);
    return validate(p, timed).empty() &&
           claims_violations(document, measure(p, timed), claim_slacks_of(p, timed)).empty();
}

/// As the rules are read by the oracle, claims included.
bool oracle_accepts(const problem& p, const schedule_report& report) {
    const auto judged = oracle::judge(p, report.schedule);
    if (!judged.valid()) return false;
    constexpr double slack = 1e-5;
    const auto differ = [](double a, double b) { return std::abs(a - b) > slack * std::max(1.0, std::abs(b)); };
    if (differ(report.measures.objective.value(), judged.objective)) return false;
    if (differ(report.measures.bubble_rate, judged.bubble_rate)) return false;
    for (const rank r : p.graph.all_ranks())
        if (differ(report.measures.peak_memory[r].value(), judged.peak_memory[r.position()])) return false;
    return !report.bound || report.bound->value() <= judged.objective * (1.0 + slack);
}

schedule_report planned(const problem& p) {
    const auto order = adaptive_builder<>{{}, 1}(p);
    REQUIRE(order);
    auto timed = time_order(p, *order);
    REQUIRE(timed);
    return make_report(p, "adaptive", *std::move(timed), bounds_of(p).best());
}

/// Corrupts plans of `p` and counts what both refuse.
std::size_t refused(const problem& p, oracle::random_numbers& random, std::size_t corruptions) {
    const auto original = planned(p);
    CHECK(library_accepts(p, schedule_to_json(p, original)));
    CHECK(oracle_accepts(p, original));
    std::size_t count = 0;
    for (std::size_t i = 0; i < corruptions; ++i) {
        auto report = original;
        const auto what = vandal{random, p}.spoil(report);
        const bool accepted = library_accepts(p, schedule_to_json(p, report));
        CHECK_MESSAGE(accepted == oracle_accepts(p, report),
                      p.name << ": " << what << ": the library says " << accepted);
        count += accepted ? 0 : 1;
    }
    return count;
}

} // namespace

TEST_CASE("the library and an independent reading of the rules refuse the same corrupted schedules") {
    oracle::random_numbers random{20240607};
    std::size_t total = 0;
    for (const std::string name : {"two-ranks", "v-three-ranks", "chunks", "whole-backward"}) {
        const auto p = read_problem(OPTPIPE_SOURCE_DIR "/tests/data/" + name + ".json");
        total += refused(p, random, 100);
    }
    // Some corruptions do no harm; a judge that refused all or none would be none.
    CHECK(total > 300);
    CHECK(total < 400);
}

TEST_CASE("and those of plans for random problems") {
    oracle::random_numbers random{7};
    for (std::size_t i = 0; i < 60; ++i) {
        const auto seed = random.next();
        CAPTURE(seed);
        oracle::random_numbers own{seed};
        const auto given = oracle::make_random_problem(own);
        refused(given.problem, own, 10);
    }
}

#endif
