#include "optpipe/pipeline/stage_groups.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace optpipe;

} // namespace

TEST_CASE("there are no groups unless some are added") {
    const stage_groups<> none;
    CHECK(none.empty());
    CHECK_FALSE(none.has(stage{0}));
    CHECK_FALSE(none.together(stage{0}, stage{0}));
    none.for_each_member(stage{0}, [](stage, duration) { FAIL("visits a member of no group"); });
}

TEST_CASE("a group that breaks the contract changes nothing") {
    if (!contracts_throw()) return;
    stage_groups<> groups;
    groups.add(std::vector{stage{1}}, duration{2}, 3);
    const auto before = groups;
    CHECK_THROWS_AS(groups.add(std::vector{stage{0}, stage{3}}, duration{}, 3), contract_error);
    CHECK_THROWS_AS(groups.add(std::vector{stage{0}, stage{1}}, duration{}, 3), contract_error);
    CHECK_THROWS_AS(groups.add(std::vector{stage{0}}, duration{}, 1), contract_error);
    CHECK(groups == before);
}

TEST_CASE("stages of a group know each other and its delay") {
    stage_groups<> groups;
    groups.add(std::vector{stage{4}, stage{1}}, duration{2}, 6);
    groups.add(std::vector{stage{2}}, duration{3}, 6);
    CHECK(groups.size() == 2);
    CHECK(groups.has(stage{1}));
    CHECK_FALSE(groups.has(stage{5}));
    CHECK(groups.together(stage{1}, stage{4}));
    CHECK_FALSE(groups.together(stage{1}, stage{2}));
    CHECK_FALSE(groups.together(stage{0}, stage{5}));
    std::vector<stage> members;
    groups.for_each_member(stage{4}, [&](stage member, duration delay) {
        members.push_back(member);
        CHECK(delay == duration{2});
    });
    CHECK(members == std::vector{stage{1}, stage{4}});
    stage_groups<6> fixed;
    fixed.add(std::vector{stage{2}}, duration{3}, 6);
    fixed.for_each_member(stage{2}, [&](stage member, duration delay) {
        CHECK(member == stage{2});
        CHECK(delay == duration{3});
    });
}
