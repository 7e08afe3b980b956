#include "optpipe/planner/cp/conflict_analysis.hpp"

#include "optpipe/planner/cp/clauses.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/network.hpp"
#include "optpipe/planner/cp/trail.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

/// Two tasks, and three choices that imply nothing by themselves.
struct small_trail {
    cp::model m{};
    cp::literal a = m.add_variable();
    cp::literal b = m.add_variable();
    cp::literal c = m.add_variable();
    cp::bound_index first = cp::earliest_of(m.add_task(1));
    cp::bound_index second = cp::earliest_of(m.add_task(1));
    cp::network arcs{m};
    cp::clause_store clauses{m.variables()};
    cp::trail facts{m, arcs, clauses};

    void raise(cp::bound_index b_, cp::ticks value, const std::vector<cp::fact>& because) {
        REQUIRE(facts.raise(b_, value, because));
    }
    cp::learned_clause learn(const std::vector<cp::fact>& conflict, std::uint32_t assumed = 0) {
        facts.fail(conflict);
        cp::conflict_analysis analysis{m.variables(), 2 * m.tasks.size()};
        return analysis.learn(facts, assumed, [](std::uint32_t) {});
    }
};

} // namespace

TEST_CASE("the choice that implies the conflict alone on its level comes first") {
    small_trail t;
    t.facts.decide(t.a);
    t.facts.decide(t.b);
    t.raise(t.first, 3, {cp::fact::of(t.b)});
    t.raise(t.second, 5, {cp::fact::of(t.a), cp::fact::of(t.first, 2)});
    const auto learned = t.learn({cp::fact::of(t.second, 4), cp::fact::of(t.first, 1)});
    CHECK_FALSE(learned.final);
    CHECK(learned.clause == std::vector<cp::literal>{!t.b, !t.a});
    CHECK(learned.level == 1);
    CHECK(learned.distinct_levels == 2);
}

TEST_CASE("a conflict that is found late is one of the level that it follows from") {
    small_trail t;
    t.facts.decide(t.a);
    t.facts.decide(t.b);
    t.facts.decide(t.c);
    // Both are on the third level, although none of its choices is involved.
    t.raise(t.first, 3, {cp::fact::of(t.b)});
    t.raise(t.second, 5, {cp::fact::of(t.a), cp::fact::of(t.first, 2)});
    const auto learned = t.learn({cp::fact::of(t.second, 4), cp::fact::of(t.first, 1)});
    CHECK_FALSE(learned.final);
    CHECK(learned.clause == std::vector<cp::literal>{!t.b, !t.a});
    CHECK(learned.level == 1);
    CHECK(learned.distinct_levels == 2);
}

TEST_CASE("a conflict of one level that is found on the next gives a unit clause") {
    small_trail t;
    t.facts.decide(t.a);
    t.facts.decide(t.b);
    t.raise(t.first, 3, {cp::fact::of(t.a)});
    const auto learned = t.learn({cp::fact::of(t.first, 1)});
    CHECK_FALSE(learned.final);
    CHECK(learned.clause == std::vector<cp::literal>{!t.a});
    CHECK(learned.level == 0);
}

TEST_CASE("a conflict that depends on no choice is final, wherever it is found") {
    small_trail t;
    t.facts.decide(t.a);
    t.facts.decide(t.b);
    t.raise(t.first, 3, {});
    CHECK(t.learn({cp::fact::of(t.first, 1)}).final);
}

TEST_CASE("a conflict of assumptions teaches nothing, and each assumption counts as a level") {
    small_trail t;
    REQUIRE(t.facts.decide_all(std::vector{t.a, t.b}));
    SUBCASE("below decisions") {
        const auto learned = t.learn({cp::fact::of(t.a), cp::fact::of(t.b)}, 1);
        CHECK(learned.final);
        CHECK(learned.level == 1);
        CHECK(learned.clause.empty());
    }
    SUBCASE("with a decision") {
        t.facts.decide(t.c);
        const auto learned = t.learn({cp::fact::of(t.a), cp::fact::of(t.b), cp::fact::of(t.c)}, 1);
        REQUIRE_FALSE(learned.final);
        CHECK(learned.clause.front() == !t.c);
        CHECK(learned.clause.size() == 3);
        CHECK(learned.level == 1);
        CHECK(learned.distinct_levels == 3);
    }
    SUBCASE("contradictory ones") { CHECK_FALSE(t.facts.decide_all(std::vector{!t.b})); }
}
