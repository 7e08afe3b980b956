#include "optpipe/planner/modulo/slot_storage.hpp"

#include "optpipe/pipeline/graph.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

using namespace optpipe;

namespace {

/// One stage of activation 4, with a list of options.
problem one_stage(const std::vector<storage_option>& options) {
    const stage_costs each{duration{4.0}, duration{4.0}, duration{2.0}, memory_size{4.0}, memory_size{3.0}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{1, 4}), per_stage<stage_costs>(1, each)};
    if (!options.empty()) p.set_storage(stage{0}, options);
    return p;
}
storage_option option(const std::string& name, double held, double ahead, double inside) {
    return {
        .name = {name}, .held = memory_size{held}, .recompute = duration{ahead}, .backward_extra = duration{inside}};
}
storage_option offloaded(storage_option o, const std::string& name) {
    o.name = {name};
    o.transfer_size = o.held;
    o.transfer = transfer_times{duration{1.0}, duration{1.0}};
    return o;
}

} // namespace

TEST_CASE("without a list a stash is kept or offloaded") {
    auto p = one_stage({});
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{1.0}, duration{1.0}}; });
    const detail::slot_storage storage{p, stage{0}, 3};
    REQUIRE(storage.choices().size() == 1);
    CHECK(storage.choices().front().levels == std::vector<std::size_t>{0, 0, 0});
    REQUIRE(storage.families(0).size() == 1);
    CHECK(storage.families(0).front().kept == storage_index{0});
    CHECK(storage.families(0).front().offloaded == std::vector<storage_index>{1});
}

TEST_CASE("a level takes more work and holds less than the one before; its families differ in where the work is done") {
    const auto keep = option("keep", 4.0, 0.0, 0.0);
    const auto full = option("full", 1.0, 0.0, 4.0);
    const auto p = one_stage({full, keep, option("wasteful", 3.0, 5.0, 0.0), option("full ahead", 1.0, 4.0, 0.0),
                              offloaded(keep, "offload"), offloaded(full, "full, offloaded")});
    const detail::slot_storage storage{p, stage{0}, 1};
    REQUIRE(storage.choices().size() == 2);
    CHECK(storage.families(0).front().first() == storage_index{1});
    CHECK(storage.families(0).front().offloaded == std::vector<storage_index>{4});
    REQUIRE(storage.families(1).size() == 2);
    CHECK(storage.families(1)[0].kept == storage_index{0});
    CHECK(storage.families(1)[0].offloaded == std::vector<storage_index>{5});
    CHECK(storage.families(1)[1].kept == storage_index{3});
    CHECK(storage.families(1)[1].offloaded.empty());
}

TEST_CASE("choices for several slots: the least memory for their work, whatever the order of the slots") {
    const auto p =
        one_stage({option("keep", 4.0, 0.0, 0.0), option("some", 3.0, 0.0, 1.0), option("full", 1.0, 0.0, 2.0)});
    const detail::slot_storage storage{p, stage{0}, 2};
    std::vector<std::vector<std::size_t>> levels;
    for (const auto& choice : storage.choices())
        levels.push_back(choice.levels);
    // Two slots with some work take as much as one with all of it, and hold more.
    CHECK(levels == std::vector<std::vector<std::size_t>>{{0, 0}, {0, 1}, {0, 2}, {1, 2}, {2, 2}});
    CHECK(storage.choices()[2].extra_work == duration{2.0});
    CHECK(storage.choices()[2].held == memory_size{5.0});
}

TEST_CASE("where every option offloads, no stash is kept") {
    const auto p = one_stage({offloaded(option("keep", 4.0, 0.0, 0.0), "offload")});
    const detail::slot_storage storage{p, stage{0}, 2};
    CHECK(!storage.families(0).front().kept);
    CHECK(storage.families(0).front().first() == storage_index{0});
}
