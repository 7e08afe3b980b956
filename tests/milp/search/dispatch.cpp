#include "bare_search.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/search/conflict/conflict_search.hpp>
#include <optpipe/milp/search/conflict/disjunctive_structure.hpp>
#include <optpipe/milp/search/conflict/dispatcher.hpp>
#include <optpipe/milp/search/conflict/prover.hpp>
#include <optpipe/milp/search/implied_integers.hpp>
#include <optpipe/milp/solve.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

using namespace optpipe;
using namespace optpipe::milp;
using namespace optpipe::milp::search;

namespace {

struct shop_size {
    std::size_t jobs = 8;
    std::size_t machines = 4;
    std::size_t room = 3;
    double horizon = 0.0;
};

/// Jobs pass all machines, then pass them again in reverse. Between the two visits a job takes one of the few places at
/// the machine. Columns are starts, and one binary for each two visits of a machine.
class reentrant_shop {
public:
    reentrant_shop(const shop_size& size, std::uint64_t seed) : size_{size}, random_{seed} {
        makespan_ = built.add_variable(0.0, size.horizon);
        built.set_cost(makespan_, 1.0);
        for (std::size_t j = 0; j < size.jobs; ++j)
            add_job();
        for (std::size_t k = 0; k < size.machines; ++k)
            add_machine(k);
    }
    model built;

private:
    struct visit {
        variable start;
        double length;
    };

    void add_job() {
        std::vector<visit> visits;
        for (std::size_t v = 0; v < 2 * size_.machines; ++v) {
            visits.push_back(
                {built.add_variable(0.0, size_.horizon), 2.0 + 0.1 * static_cast<double>(random_.below(3))});
            const auto& last = visits.back();
            if (v > 0) built.add_row(visits[v - 1].length, {{last.start, 1.0}, {visits[v - 1].start, -1.0}}, infinity);
            built.add_row(last.length, {{makespan_, 1.0}, {last.start, -1.0}}, infinity);
        }
        jobs_.push_back(std::move(visits));
    }
    void add_machine(std::size_t k) {
        std::vector<std::vector<term>> taken(size_.jobs);
        for (std::size_t i = 0; i < size_.jobs; ++i)
            for (std::size_t j = i + 1; j < size_.jobs; ++j) {
                const auto back = 2 * size_.machines - 1 - k;
                const auto there = add_pair(jobs_[i][k], jobs_[j][k]);
                add_pair(jobs_[i][back], jobs_[j][back]);
                const auto i_out = add_pair(jobs_[i][back], jobs_[j][k]);
                const auto j_out = add_pair(jobs_[j][back], jobs_[i][k]);
                taken[j].insert(taken[j].end(), {{there, 1.0}, {i_out, -1.0}});
                taken[i].insert(taken[i].end(), {{there, -1.0}, {j_out, -1.0}});
            }
        // jobs before i in the order of pairs count as `there`, jobs after it as 1 - there
        for (std::size_t i = 0; i < size_.jobs; ++i) {
            const auto constants = static_cast<double>(size_.jobs - 1 - i);
            built.add_row(-infinity, taken[i], static_cast<double>(size_.room) - 1.0 - constants);
        }
    }
    /// The binary of two visits; 1 means a before b.
    variable add_pair(const visit& a, const visit& b) {
        const auto x = built.add_binary();
        const double h = size_.horizon;
        built.add_row(-h, {{b.start, 1.0}, {a.start, -1.0}, {x, -h - a.length}}, infinity);
        built.add_row(b.length, {{a.start, 1.0}, {b.start, -1.0}, {x, h + b.length}}, infinity);
        return x;
    }

    shop_size size_;
    random_numbers random_;
    variable makespan_;
    std::vector<std::vector<visit>> jobs_;
};

std::optional<std::vector<double>> point_of(conflict_search& s, const problem& p, search_outcome outcome) {
    if (outcome != search_outcome::point) return std::nullopt;
    std::vector<double> values;
    for (std::size_t j = 0; j < p.columns(); ++j)
        values.push_back(s.engine().bounds().lower(j));
    return values;
}

} // namespace

TEST_CASE("binaries that order two columns are found by their rows; what does more than that isn't one") {
    model m;
    const auto a = m.add_variable(0.0, 10.0), b = m.add_variable(0.0, 10.0), c = m.add_variable(0.0, 10.0);
    const auto x = m.add_binary(), longer = m.add_binary(), weak = m.add_binary();
    m.add_row(-10.0, {{b, 1.0}, {a, -1.0}, {x, -13.0}}, infinity);      // x: b 3 or more after a
    m.add_row(-infinity, {{b, 1.0}, {a, -1.0}, {x, -13.0}}, -3.0);      // else a 3 or more after b
    m.add_row(-10.0, {{c, 1.0}, {a, -1.0}, {longer, -12.0}}, infinity); // both ways round
    m.add_row(-10.0, {{a, 1.0}, {c, -1.0}, {longer, -12.0}}, infinity);
    m.add_row(2.0, {{c, 1.0}, {b, -1.0}, {weak, 1.0}}, infinity); // restricts at either value
    const auto p = problem_of(m);
    const disjunctive_structure found{p};
    REQUIRE(found.start_columns().size() == 2);
    REQUIRE(found.decisions(a.position()).size() == 1);
    CHECK(found.decisions(a.position())[0] == at_least(x.position(), 1.0));
    REQUIRE(found.decisions(b.position()).size() == 1);
    CHECK(found.decisions(b.position())[0] == at_most(x.position(), 0.0));
}

TEST_CASE("the dispatcher gives the column first that can be first, and then what is left") {
    model m;
    const auto a = m.add_variable(4.0, 20.0), b = m.add_variable(0.0, 20.0), c = m.add_variable(2.0, 20.0);
    const auto order = [&](variable first, variable second) {
        const auto x = m.add_binary();
        m.add_row(-20.0, {{second, 1.0}, {first, -1.0}, {x, -21.0}}, infinity);
        return x.position();
    };
    const auto ab = order(a, b), bc = order(b, c), ac = order(a, c);
    const auto p = problem_of(m);
    dispatcher rule{p};
    domains d{p};
    random_numbers random{1};
    rule.change_rule(d, random);
    std::vector<literal> decided;
    while (const auto l = rule.next(d)) {
        d.push_level();
        d.raise(*l, {});
        decided.push_back(*l);
    }
    CHECK(decided == std::vector<literal>{at_most(ab, 0.0), at_least(bc, 1.0), at_most(ac, 0.0)});
    d.back_to(1);
    rule.reset_current();
    CHECK(rule.next(d) == at_least(bc, 1.0));
}

TEST_CASE("dispatching worker_results points where start_columns are few, and a plain search doesn't") {
    const reentrant_shop shop{{.jobs = 12, .machines = 6, .room = 4, .horizon = 110.0}, 1};
    const auto p = problem_of(shop.built);
    constexpr std::size_t conflicts = 400, rules = 2;
    conflict_search plain{p, 1};
    CHECK(plain.run(rules * conflicts, {}) == search_outcome::budget);

    conflict_search search{p, 1};
    REQUIRE(search.can_dispatch());
    auto outcome = search_outcome::budget;
    for (std::size_t k = 0; k < rules && outcome == search_outcome::budget; ++k) {
        search.begin_dispatching();
        outcome = search.run(conflicts, {});
    }
    const auto point = point_of(search, p, outcome);
    REQUIRE(point.has_value());
    CHECK(check(shop.built, *point, {.relative = 1e-3}).empty());
}

TEST_CASE("what is dispatched are points, and nothing is refuted that has one") {
    std::size_t points = 0, refuted = 0;
    constexpr std::uint64_t models = 40;
    for (std::uint64_t seed = 1; seed <= models; ++seed) {
        CAPTURE(seed);
        const double horizon = 12.0 + static_cast<double>(seed % 8);
        const reentrant_shop shop{{.jobs = 3, .machines = 2, .room = 2, .horizon = horizon}, seed};
        const auto p = problem_of(shop.built);
        conflict_search search{p, seed};
        auto outcome = search_outcome::budget;
        for (int turn = 0; turn < 20 && outcome == search_outcome::budget; ++turn) {
            search.begin_dispatching();
            outcome = search.run(400, {});
        }
        solve_options options;
        options.conflict_search = false;
        const auto known = solve(shop.built, options);
        if (outcome == search_outcome::refuted) {
            ++refuted;
            CHECK(std::holds_alternative<infeasible>(known.why));
        } else if (const auto point = point_of(search, p, outcome)) {
            ++points;
            CHECK(known.incumbent.has_value());
            CHECK(check(shop.built, *point, {.relative = 1e-3}).empty());
        }
    }
    CHECK(points + refuted == models);
    CHECK(points > models / 4);
    CHECK(refuted > models / 8);
}

TEST_CASE("a rule may take longer than the turn in which it is tried, but not out of all proportion") {
    const reentrant_shop shop{{.jobs = 12, .machines = 6, .room = 4, .horizon = 110.0}, 1};
    bare_search bare{shop.built};
    REQUIRE(implied_integers{bare.instance}.apply() > 0);
    const auto entries = bare.instance.entries.size();
    prover patient{bare.shared, 0.0, 110.0, 1};
    prover hasty{bare.shared, 0.0, 110.0, 1};
    constexpr std::size_t turns = 8;
    for (std::size_t turn = 0; turn < turns; ++turn) {
        patient.work(1, entries);
        hasty.work(1, entries / 20);
    }
    CHECK(patient.found().point != nullptr);
    CHECK(hasty.found().point == nullptr);
}

TEST_CASE("the solver's first point comes from dispatching, the same at any number of threads") {
    const reentrant_shop shop{{.jobs = 10, .machines = 5, .room = 3, .horizon = 120.0}, 7};
    std::vector<double> objectives;
    for (const std::size_t threads : {1U, 2U}) {
        solve_options options;
        options.deterministic = true;
        options.threads = threads;
        options.tree_search = false;
        options.relative_gap = 0.9;
        const auto r = solve(shop.built, options);
        REQUIRE(r.incumbent.has_value());
        CHECK(check(shop.built, *r.incumbent).empty());
        objectives.push_back(r.objective);
    }
    CHECK(objectives[0] == objectives[1]);
}
