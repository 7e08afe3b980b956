// Constraint programming on graphs and microbatches that differ: no schedule is excluded by the model, and what is
// proven is the best of all orders.
#include "optpipe/planner/cp/assignment.hpp"
#include "optpipe/planner/cp/cp_search.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

constexpr std::uint64_t seed = 31;

/// The i-th of a family of random problems that aren't plain.
std::optional<oracle::random_problem> draw(oracle::random_numbers& random, oracle::problem_ranges ranges) {
    ranges.graph_percent = 100;
    auto r = oracle::make_random_problem(random, ranges);
    return is_plain(r.problem) ? std::nullopt : std::optional{std::move(r)};
}

/// The sides of a model that an assignment breaks, as text; empty if it is a solution.
std::string broken_in(const cp::model& m, const cp::assignment& a) {
    std::string broken;
    const auto is_present = [&](cp::task_index t) { return a.is_true(m.tasks[t].presence); };
    for (const auto& d : m.differences)
        if (a.is_true(d.guard) && is_present(d.from) && is_present(d.to) && a.starts[d.to] < a.starts[d.from] + d.gap)
            broken += "difference; ";
    for (const auto& on : m.machines)
        for (const auto x : on.tasks)
            for (const auto y : on.tasks)
                if (x != y && is_present(x) && is_present(y) && a.starts[x] <= a.starts[y] &&
                    a.starts[x] + m.tasks[x].length > a.starts[y])
                    broken += "machine; ";
    for (const auto& clause : m.clauses)
        if (std::none_of(clause.begin(), clause.end(), [&](cp::literal l) { return a.is_true(l); }))
            broken += "clause; ";
    for (const auto& k : m.knapsacks) {
        cp::ticks used = 0;
        for (const auto& term : k.terms)
            used += a.is_true(term.chosen) ? term.weight : 0;
        if (a.is_true(k.guard) && used > k.capacity) broken += "knapsack; ";
    }
    return broken;
}

/// Enumerates the orders of a problem without transfers: each operation may come once its inputs have come.
class order_enumeration {
public:
    explicit order_enumeration(const problem& p) : p_{&p}, number_{p.graph}, come_(number_.size(), false) {
        for (const stage s : p.graph.all_stages())
            for (const microbatch m : p.graph.all_microbatches())
                add_operations(s, m);
        so_far_.graph = p.graph;
    }

    /// The least objective of all orders; empty if there are more than `most` of them.
    std::optional<duration> best(std::size_t most) {
        left_ = most;
        extend(0);
        return left_ > 0 ? std::optional{best_} : std::nullopt;
    }

private:
    void add_operations(stage s, microbatch m) {
        const auto gradients = p_->costs[s].gradients;
        all_.push_back(forward(s, m));
        if (gradients == gradient_kind::none) return;
        all_.push_back(may_split(*p_, s) ? backward_input(s, m) : backward(s, m));
        if (p_->split_backward && gradients == gradient_kind::full) all_.push_back(backward_weight(s, m));
    }
    bool has_come(const operation& op) const {
        return come_[number_(op)] || (is_gradient(op.kind) && come_[number_(sibling(op, operation_kind::backward))]);
    }
    bool is_ready(const operation& op) const {
        bool ready = !has_come(op);
        for_each_dependency(*p_, op, {}, [&](const operation& before, duration) { ready = ready && has_come(before); });
        return ready;
    }
    /// Operations of different ranks that don't wait for each other come in one order only: by their ranks.
    bool may_follow(const operation& op) const {
        if (so_far_.operations.empty()) return true;
        const auto& last = so_far_.operations.back();
        if (!(p_->rank_of(op.stage) < p_->rank_of(last.stage))) return true;
        bool waits = false;
        for_each_dependency(*p_, op, {}, [&](const operation& before, duration) {
            waits = waits || (before.stage == last.stage && before.microbatch == last.microbatch);
        });
        for_each_release_of_others(*p_, last,
                                   [&](rank r, memory_size) { waits = waits || r == p_->rank_of(op.stage); });
        return waits;
    }
    void extend(std::size_t length) {
        if (left_ == 0) return;
        if (length == all_.size()) {
            --left_;
            if (const auto timed = simulate(*p_, so_far_)) best_ = std::min(best_, objective_of(*p_, *timed));
            return;
        }
        for (const auto& op : all_) {
            if (!is_ready(op) || !may_follow(op)) continue;
            come_[number_(op)] = true;
            so_far_.operations.push_back(op);
            extend(length + 1);
            so_far_.operations.pop_back();
            come_[number_(op)] = false;
        }
    }

    const problem* p_;
    operation_numbering<any_graph> number_;
    std::vector<bool> come_;
    std::vector<operation> all_;
    order so_far_;
    std::size_t left_ = 0;
    duration best_ = duration::unlimited();
};

/// Whether a full backward may be better than I and then W, and so is worth a decision.
bool may_need_full_backwards(const problem& p) {
    return std::any_of(p.costs.begin(), p.costs.end(), [&](const stage_costs& c) {
        return p.split_backward && c.gradients == gradient_kind::full && c.weight_stash > c.activation;
    });
}

} // namespace

TEST_CASE("every schedule is a solution of the model, and the solution is a schedule as long") {
    std::size_t with_choices = 0;
    std::size_t sorted = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(600); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 1'000'003 + i};
        const auto given = draw(random, {.cells = 14, .storage_percent = i % 2 == 0 ? 100U : 0U});
        if (!given) continue;
        const auto& p = given->problem;
        const cp::pipeline_model m{p, cp::bounding_form(p)};
        // On the grid, because nothing waits unnecessarily.
        const auto drawn = *simulate(p, oracle::random_order(random, p));
        const auto read = cp::assignment_of(m, drawn);
        CHECK(broken_in(m.tasks(), read) == "");
        const auto written = cp::schedule_of(m, read);
        REQUIRE(written);
        const auto verdict = oracle::judge(p, *written);
        CHECK(verdict.text() == "");
        CHECK(verdict.objective <= oracle::judge(p, drawn).objective * (1.0 + 1e-9));
        ++(m.has_choices() ? with_choices : sorted);
    }
    CHECK(with_choices > oracle::random_cases(100));
    CHECK(sorted > oracle::random_cases(100));
}

TEST_CASE("what is proven is the best of all orders") {
    std::size_t compared = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(250); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 2'000'003 + i};
        const auto given = draw(random, {.ranks = 2,
                                         .stages = 3,
                                         .microbatches = 3,
                                         .cells = 4,
                                         .offloading_percent = 0,
                                         .span_percent = 0,
                                         .split_percent = 50});
        if (!given || may_need_full_backwards(given->problem)) continue;
        const auto& p = given->problem;
        const auto best = order_enumeration{p}.best(20'000);
        if (!best) continue;
        ++compared;
        search_state state{p};
        cp_search(state, {.conflicts = 100'000});
        CHECK(state.proven());
        CHECK(state.objective().value() == doctest::Approx(best->value()));
    }
    CHECK(compared > oracle::random_cases(60));
}

TEST_CASE("limits that no order fits: that is proven") {
    std::size_t infeasible = 0;
    for (std::uint64_t i = 0; i < oracle::random_cases(100); ++i) {
        CAPTURE(seed);
        CAPTURE(i);
        oracle::random_numbers random{seed * 3'000'003 + i};
        auto given = draw(random, {.ranks = 2, .stages = 3, .cells = 4, .offloading_percent = 0, .span_percent = 0});
        if (!given || may_need_full_backwards(given->problem)) continue;
        auto& p = given->problem;
        for (auto& limit : p.memory_limit)
            limit = 0.7 * limit;
        const auto best = order_enumeration{p}.best(20'000);
        if (!best || !best->is_unlimited()) continue;
        ++infeasible;
        search_state state{p};
        cp_search(state, {.conflicts = 100'000});
        CHECK_FALSE(state.incumbent());
        CHECK(state.bound().is_unlimited());
    }
    CHECK(infeasible >= oracle::random_cases(8));
}
