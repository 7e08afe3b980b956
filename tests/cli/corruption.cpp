#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "optpipe/io/json.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// The ways to corrupt a schedule, each at a random place. Times change by much more than the tolerance, or not at all.
class vandal {
public:
    vandal(oracle::random_numbers& random, const problem& p) : random_{random}, p_{p} {}

    std::string spoil(schedule_report& report) {
        auto& ops = report.schedule.operations;
        auto& one = ops[random_.below(ops.size())];
        auto& other = ops[random_.below(ops.size())];
        const auto name = to_string(one.op);
        switch (random_.below(12)) {
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
        case 8:
            start_at(one, other.start + 0.25 * (one.end - one.start));
            return "start " + name + " soon after " + to_string(other.op);
        case 9: {
            auto& last = last_of_its_kind(ops, one.op.kind);
            start_at(last, latest(ops));
            return "put off " + to_string(last.op) + " to the end";
        }
        case 10: return reload_late(ops);
        default: return misstate(report);
        }
    }

private:
    using operations = decltype(schedule::operations);

    static void exchange_times(timed_operation& a, timed_operation& b) {
        const auto first = std::min(a.start, b.start);
        const auto last = std::max(a.end, b.end);
        auto& early = a.start <= b.start ? b : a;
        auto& late = a.start <= b.start ? a : b;
        early = {early.op, first, first + (early.end - early.start)};
        if (&early != &late) late = {late.op, last - (late.end - late.start), last};
    }
    static void start_at(timed_operation& t, duration start) { t = {t.op, start, start + (t.end - t.start)}; }
    static duration latest(const operations& ops) {
        duration end{};
        for (const auto& t : ops)
            end = std::max(end, t.end);
        return end;
    }
    static timed_operation& last_of_its_kind(operations& ops, operation_kind kind) {
        timed_operation* last = nullptr;
        for (auto& t : ops)
            if (t.op.kind == kind && (!last || t.start > last->start)) last = &t;
        return *last;
    }
    /// Makes a reload end only when its gradient starts. If that is wrong, it is because the host is full.
    std::string reload_late(operations& ops) {
        const auto from = random_.below(ops.size());
        for (std::size_t i = 0; i < ops.size(); ++i) {
            auto& t = ops[(from + i) % ops.size()];
            if (t.op.kind != operation_kind::reload) continue;
            for (const auto& g : ops)
                if (is_gradient(g.op.kind) && g.op.stage == t.op.stage && g.op.microbatch == t.op.microbatch)
                    start_at(t, g.start - (t.end - t.start));
            return "end " + to_string(t.op) + " as late as possible";
        }
        return "do nothing";
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

/// Judges a file as `optpipe check` does.
bool library_accepts(const problem& p, const std::string& text) {
    const auto document = parse_schedule(text, "corrupted");
    if (!document.unreadable.empty()) return false;
    const auto timed = to_schedule(p, document);
    return validate(p, timed).empty() &&
           claims_violations(document, measure(p, timed), claim_slacks_of(p, timed)).empty();
}

/// Judges by the oracle's reading of the rules, including the claims.
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

/// Claims the measures of the operations, if they can be measured, and no bound.
void claim_truly(const problem& p, schedule_report& report) {
    const operation_numbering<any_graph> number{p.graph};
    for (const auto& timed : report.schedule.operations)
        if (!number.contains(timed.op) || timed.op.storage >= p.storage_options(timed.op.stage)) return;
    report.measures = measure(p, report.schedule);
    report.bound.reset();
}

/// Removes a tenth of the memory that a rank or its host needs, if it needs any.
std::string shrink(problem& p, const schedule_report& plan, oracle::random_numbers& random) {
    const rank r{random.below(p.graph.ranks())};
    if (random.chance(50)) {
        p.memory_limit[r] = 0.9 * plan.measures.peak_memory[r];
        return "shrink the memory of rank " + std::to_string(r.value());
    }
    p.host_memory_limit[r] = 0.9 * plan.measures.peak_host_memory[r];
    return "shrink the host of rank " + std::to_string(r.value());
}

/// The problem with exactly the memory on devices and hosts that its plan needs, so that nothing more fits.
problem with_tight_limits(problem p, const schedule_report& plan) {
    p.memory_limit = plan.measures.peak_memory;
    p.host_memory_limit = plan.measures.peak_host_memory;
    return p;
}

/// Corrupts a plan of `p` and counts the refusals of both.
std::size_t refused(const problem& p, const schedule_report& original, oracle::random_numbers& random,
                    std::size_t corruptions) {
    CHECK(library_accepts(p, schedule_to_json(p, original)));
    CHECK(oracle_accepts(p, original));
    std::size_t count = 0;
    for (std::size_t i = 0; i < corruptions; ++i) {
        auto report = original;
        auto changed = p;
        const auto what = random.chance(10) ? shrink(changed, report, random) : vandal{random, p}.spoil(report);
        // Otherwise its claims reveal most corruptions, and no rule is tested.
        if (random.chance(60)) claim_truly(p, report);
        const bool accepted = library_accepts(changed, schedule_to_json(p, report));
        CHECK_MESSAGE(accepted == oracle_accepts(changed, report),
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
        const auto plan = planned(p);
        total += refused(p, plan, random, 150);
        total += refused(with_tight_limits(p, plan), plan, random, 150);
    }
    // Some corruptions do no harm; a judge that refuses all or none would be useless.
    CHECK(total > 900);
    CHECK(total < 1200);
}

TEST_CASE("and those of random schedules for random problems") {
    oracle::random_numbers random{7};
    for (std::size_t i = 0; i < 100; ++i) {
        const auto seed = random.next();
        CAPTURE(seed);
        oracle::random_numbers own{seed};
        const auto given = oracle::make_random_problem(own, {.microbatches = 6, .cells = 16, .offloading_percent = 80});
        const auto plan = make_report(given.problem, "random", oracle::random_schedule(own, given));
        refused(given.problem, plan, own, 10);
        refused(with_tight_limits(given.problem, plan), plan, own, 10);
    }
}

#endif
