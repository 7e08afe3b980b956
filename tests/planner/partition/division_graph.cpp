#include "optpipe/planner/partition/division_graph.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

detail::paces_of_stages first_stage(double forward, double gradient) {
    return {detail::pace{duration{forward}, duration{gradient}}, detail::pace{}};
}
/// Three ranks share five pieces. The last rank can't hold four pieces.
detail::division_graph three_ranks() {
    detail::division_graph g{{0, 5}};
    g.add_rank();
    g.add(0, {1, 5}, first_stage(1, 4));
    g.add(0, {2, 5}, first_stage(2, 3));
    g.add_rank();
    g.add(0, {2, 5}, first_stage(1, 1));
    g.add(0, {4, 5}, first_stage(3, 6));
    g.add(1, {4, 5}, first_stage(2, 7));
    g.add_rank();
    g.add(1, {5, 5}, first_stage(1, 1));
    g.update();
    return g;
}

} // namespace

TEST_CASE("a division graph drops edges that are on no path") {
    auto g = three_ranks();
    CHECK(g.edges(0).size() == 2);
    CHECK(g.edges(1).size() == 2);
    CHECK_FALSE(g.empty());
    g.edges(1).clear();
    g.update();
    CHECK(g.empty());
    CHECK(g.edges(0).empty());
}

TEST_CASE("paces are the least of all paths, for each kind of operation apart") {
    auto g = three_ranks();
    const auto last = g.around(2, g.edges(2).front());
    CHECK(last.earlier[0].forward == duration{2});  // by way of two pieces
    CHECK(last.earlier[0].gradient == duration{6}); // by way of one piece
    CHECK(last.later[0].any() == duration{0});
    const auto first = g.around(0, g.edges(0).front());
    CHECK(first.earlier[0].any() == duration{0});
    CHECK(first.later[0].forward == duration{3});
    CHECK(first.later[0].gradient == duration{6});
}

TEST_CASE("a path of a division graph prefers tested edges") {
    auto g = three_ranks();
    CHECK(g.ends_of(g.path()) == std::vector<detail::ends>{{0, 5}, {1, 5}, {4, 5}, {5, 5}});
    g.edges(0).back().is_tested = true;
    CHECK(g.ends_of(g.path()) == std::vector<detail::ends>{{0, 5}, {2, 5}, {4, 5}, {5, 5}});
}
