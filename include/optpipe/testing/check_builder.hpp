#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "optpipe/testing/problem_code.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "optpipe/testing/shrink_problem.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::testing {

/// The number and sizes of the problems on which a builder is tested.
struct builder_trials {
    std::size_t problems = 200;
    std::uint64_t seed = 1;
    problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 8, .cells = 48};
    /// The builder must apply to at least this share of the problems. A builder for one placement and split backwards
    /// applies to about a tenth of the problems.
    double least_share = 0.05;
};

/// A fault of a builder, on the smallest problem found that shows the fault.
struct builder_failure {
    std::string reason;
    /// The smallest problem found with this failure. `code_of` prints a problem as C++; `problem_to_json` writes a
    /// problem file.
    problem smallest;
    /// The builder's order for the problem. Empty if the builder gave no order.
    std::vector<operation> order{};
    /// Number of problems with the same failure. With `seed`, `make_random_problem` makes the first problem with this
    /// failure.
    std::size_t alike = 0;
    std::uint64_t seed = 0;

    /// The failure as text, with the problem as C++ for a test.
    [[nodiscard]] std::string text() const {
        constexpr std::size_t shown = 60;
        std::string all = reason + "\n" + std::to_string(alike) + (alike == 1 ? " problem fails" : " problems fail") +
                          " like that, the first with seed " + std::to_string(seed) + "; the smallest found:\n" +
                          code_of(smallest);
        if (order.empty()) return all;
        all += "which gets the order";
        for (std::size_t i = 0; i < std::min(order.size(), shown); ++i)
            all += " " + to_string(order[i]);
        return all + (order.size() > shown ? " ... (" + std::to_string(order.size()) + " operations)\n" : "\n");
    }
};

/// The results of testing a builder.
struct builder_report {
    std::size_t problems = 0;
    /// Number of problems for which the builder gave an order.
    std::size_t applied = 0;
    double least_share = 0.0;
    /// For each kind of failure, one example.
    std::vector<builder_failure> failures{};

    [[nodiscard]] bool applies_often_enough() const {
        return applied > 0 && static_cast<double>(applied) >= least_share * static_cast<double>(problems);
    }
    [[nodiscard]] bool passed() const { return failures.empty() && applies_often_enough(); }
    [[nodiscard]] std::string text() const {
        std::string all = "applies to " + std::to_string(applied) + " of " + std::to_string(problems) + " problems";
        if (!applies_often_enough())
            all += ", which tells little: `least_share` asks for " + format_number(100.0 * least_share) + " %";
        for (const auto& f : failures)
            all += "\n\n" + f.text();
        return all;
    }
};

namespace detail {

enum class builder_mistake { none, throws, two_answers, no_order, wrong_order, invalid_schedule };

/// The verdict on a builder for one problem. Verdicts with the same fault and detail count as equal.
struct builder_verdict {
    builder_mistake mistake = builder_mistake::none;
    int detail = 0;
    std::string reason{};
    bool applied = false;
    std::vector<operation> order{};

    [[nodiscard]] bool is_like(const builder_verdict& other) const {
        return mistake == other.mistake && detail == other.detail;
    }
};

/// The obstacle to simulating an order, as a number.
inline int obstacle_of(const problem& p, const order& given) {
    placer<any_graph> place{p};
    for (const auto& op : with_storage_of_transfers(p, given).operations)
        if (const auto met = place.place(op); met != placer<any_graph>::obstacle::none) return static_cast<int>(met);
    return -1; // operations are missing
}

inline void judge_order(const problem& p, const order& given, builder_verdict& v) {
    auto without_limits = p;
    for (const rank r : p.graph.all_ranks())
        without_limits.memory_limit[r] = without_limits.host_memory_limit[r] = memory_size::unlimited();
    if (const auto timed = simulate(without_limits, given); !timed) {
        v.mistake = builder_mistake::wrong_order;
        v.detail = obstacle_of(without_limits, given);
        v.reason = "its order can't be executed: " + describe(timed.why()) + " (position " +
                   std::to_string(timed.why().position) + ")";
        return;
    }
    const auto timed = time_order(p, given);
    if (!timed) return;
    const auto found = validate(p, *timed);
    if (found.empty()) return;
    v.mistake = builder_mistake::invalid_schedule;
    v.reason = "its schedule is invalid: " + found.front().text();
    for_each_fault(p, *timed, [&](const fault& f) { v.detail = static_cast<int>(f.rule); });
}

template <class Builder> builder_verdict judge_builder(const Builder& build, const problem& p) {
    builder_verdict v;
    try {
        const auto built = build(p);
        const auto again = build(p);
        v.applied = built.has_value();
        if (built) v.order.assign(built->operations.begin(), built->operations.end());
        if (built.has_value() != again.has_value() || (built && built->operations != again->operations)) {
            v.mistake = builder_mistake::two_answers;
            v.reason = "two calls with the same problem give two answers";
        } else if (built) {
            judge_order(p, *built, v);
        } else if (built.why().reason == refusal_reason::not_executable) {
            v.mistake = builder_mistake::no_order;
            v.reason = "gives no order: " + describe(built.why());
        }
    } catch (...) {
        v.mistake = builder_mistake::throws;
        v.reason = "throws: " + caught_reason();
    }
    return v;
}

} // namespace detail

/// Tests a builder on random problems of every kind. Random problems have only two storage options: keep, and offload
/// the entire stash. `build_uniform_schedule` (schedule/construct/uniform_storage.hpp) calls builders with one option
/// at a time. A builder fails if it throws, or if its order or its schedule is invalid. A builder also fails if a
/// second call gives a different answer. Each kind of failure is reported once, on the smallest problem found. A
/// builder that refuses nearly all problems also fails.
template <class Builder>
[[nodiscard]] builder_report check_builder(const Builder& build, const builder_trials& trials = {}) {
    static_assert(check_schedule_builder<Builder>());
    builder_report report{.problems = trials.problems, .least_share = trials.least_share};
    std::vector<detail::builder_verdict> known;
    for (std::size_t i = 0; i < trials.problems; ++i) {
        random_numbers random{trials.seed + i};
        auto p = make_random_problem(random, trials.ranges).problem;
        auto verdict = detail::judge_builder(build, p);
        if (verdict.applied) ++report.applied;
        if (verdict.mistake == detail::builder_mistake::none) continue;
        const auto same = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.is_like(verdict); });
        if (same == known.end()) {
            report.failures.push_back({.reason = {}, .smallest = std::move(p), .seed = trials.seed + i});
            known.push_back(verdict);
            report.failures.back().alike = 1;
        } else {
            ++report.failures[static_cast<std::size_t>(same - known.begin())].alike;
        }
    }
    for (std::size_t k = 0; k < known.size(); ++k) {
        auto& failure = report.failures[k];
        failure.smallest = shrink_problem(std::move(failure.smallest), [&](const problem& p) {
            return detail::judge_builder(build, p).is_like(known[k]);
        });
        auto verdict = detail::judge_builder(build, failure.smallest);
        failure.reason = verdict.is_like(known[k]) ? std::move(verdict.reason) : known[k].reason;
        failure.order = std::move(verdict.order);
    }
    return report;
}

} // namespace optpipe::testing
