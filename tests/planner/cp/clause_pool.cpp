#include "optpipe/planner/cp/clause_pool.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

cp::clause_pool::clause clause_of(std::uint32_t variable, cp::ticks limit) {
    return {{cp::literal{variable, false}, cp::literal{variable + 1, true}}, 2, limit};
}

} // namespace

TEST_CASE("a member takes what others have learned under its limit or a higher one, each once") {
    cp::clause_pool pool;
    cp::clause_pool::member first{pool};
    cp::clause_pool::member second{pool};
    first.add(clause_of(1, 100));
    first.add(clause_of(3, 80));
    second.add(clause_of(5, 100));

    CHECK(first.take(90).size() == 1);
    const auto taken = second.take(90);
    REQUIRE(taken.size() == 1);
    CHECK(taken.front().literals == std::vector{cp::literal{1, false}, cp::literal{2, true}});
    CHECK(taken.front().distinct_levels == 2);
    CHECK(second.take(90).empty());
    CHECK(cp::clause_pool::member{pool}.take(80).size() == 3);
}

TEST_CASE("the last clauses are kept, and only those of few levels are shared") {
    cp::clause_pool pool{{.most_levels = 3, .most_clauses = 4}};
    cp::clause_pool::member one{pool};
    for (std::uint32_t v = 1; v <= 6; ++v)
        one.add(clause_of(v, 10));
    cp::clause_pool::member other{pool};
    const auto taken = other.take(10);
    REQUIRE(taken.size() == 4);
    for (std::size_t i = 0; i < taken.size(); ++i)
        CHECK(taken[i].literals.front().variable() == i + 3);
    CHECK(one.shares(3));
    CHECK_FALSE(one.shares(4));
}

TEST_CASE("without a pool nothing is shared") {
    cp::clause_pool::member alone;
    CHECK_FALSE(alone.shares(1));
    CHECK(alone.take(0).empty());
}
