#include "optpipe/planner/partition/rank_load.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>

using namespace optpipe;
using detail::rank_load;
using detail::stage_load;

namespace {

/// A stage whose passes take 1, and whose stash takes 1.
stage_load unit_stage(double before, double lifetime, double after) {
    stage_load s;
    s.forward = s.gradient = s.weight = duration{1};
    s.before = duration{before};
    s.lifetime = duration{lifetime};
    s.after = duration{after};
    s.stash = memory_size{1};
    return s;
}
rank_load one_stage(const stage_load& s, std::size_t microbatches, double room) {
    return {{s, stage_load{}}, 1, microbatches, memory_size{room}};
}
/// Whether `test` is true from `least` on.
template <class Test> bool begins_at(double least, const Test& test) {
    return test(duration{least + 1e-6}) && !test(duration{least - 1e-6});
}
const auto has_time = [](const rank_load& load) {
    return [&load](duration objective) { return load.has_time(objective); };
};

} // namespace

TEST_CASE("a rank works from its first forward on, and W may be last") {
    const auto load = one_stage(unit_stage(3, 4, 1), 8, 100);
    CHECK(begins_at(3 + 24, has_time(load)));
}

TEST_CASE("a gradient has to pass back after all forwards and gradients") {
    const auto load = one_stage(unit_stage(3, 4, 20), 8, 100);
    CHECK(begins_at(3 + 16 + 20, has_time(load)));
}

TEST_CASE("with room for two stashes, a rank waits for its first gradient after two forwards") {
    auto s = unit_stage(0, 14, 3);
    s.weight = duration{3};
    const auto load = one_stage(s, 8, 2);
    CHECK(begins_at(13 + 8 * 5 - 2, has_time(load)));
}

TEST_CASE("between the first gradient and the last forward, there is all but the work of stashes that fit") {
    auto s = unit_stage(0, 10, 9);
    s.weight = duration{};
    // Before the first gradient 9 pass, as after the last forward with its gradient 9 and 9 more.
    const auto load = one_stage(s, 8, 2);
    CHECK(begins_at(9 + (16 - 2 - 2) + 18, has_time(load)));
}

TEST_CASE("the second stage of a loop begins late, and the first has few forwards before it") {
    std::array stages{unit_stage(1, 22, 1), unit_stage(11, 10, 11)};
    stages[1].forward = duration{2};
    // After the last forward of the second stage, its microbatch needs 8 until its gradient has ended, and then 11.
    CHECK(begins_at(11 + 4 * 2 + 8 + 11, has_time(rank_load{stages, 2, 4, memory_size{100}})));
    // 24 microbatches: work is continuous from the second stage's first forward on, but for 10 forwards before it.
    CHECK(begins_at(1 + 24 * 7, has_time(rank_load{stages, 2, 24, memory_size{100}})));
    // Forwards of the first stage come every 5 units: only 2 are before the second stage's first forward.
    stages[0].pace_before = duration{5};
    CHECK(begins_at(11 + 24 * 7 - 2, has_time(rank_load{stages, 2, 24, memory_size{100}})));
}

TEST_CASE("microbatches pass in rounds of the stashes that fit") {
    auto s = unit_stage(2, 10, 3);
    const auto fits_in = [&](double room) {
        return [&s, room](duration objective) { return one_stage(s, 7, room).has_time_for_rounds(objective); };
    };
    CHECK(begins_at(2 + 2 * 10 + 10 + 3, fits_in(3.9))); // microbatches 0, 3 and 6
    CHECK(begins_at(2 + 10 + 2 + 10 + 3, fits_in(4)));   // microbatches 0, 1, 2 and 6
    s.weight_stash = memory_size{0.5};
    CHECK(begins_at(2 + 2 * 11 + 10 + 3, fits_in(3.4))); // a forward also waits for W
    CHECK(fits_in(7)(duration{}));
    CHECK_FALSE(fits_in(0.9)(duration{1e9}));
}

TEST_CASE("the stashes that a rank holds on average are a mixture of stashes that fit together") {
    std::array stages{unit_stage(0, 12, 0), unit_stage(0, 6, 0)};
    stages[0].stash = memory_size{3};
    stages[1].stash = memory_size{2};
    const auto fits_in = [&](double room) {
        return [&stages, room](duration time) { return rank_load{stages, 2, 4, memory_size{room}}.has_memory(time); };
    };
    // Room for one of each: 4 × 12 for the first stage, and meanwhile enough for the second one.
    CHECK(begins_at(48, fits_in(5)));
    // One first stash, or two of the second stage: one after the other.
    CHECK(begins_at(4 * 12 + 4 * 6 / 2.0, fits_in(4)));
    // Two first stashes, or three of the second stage. One of each is no better.
    CHECK(begins_at(4 * 12 / 2.0 + 4 * 6 / 3.0, fits_in(6)));
    CHECK_FALSE(fits_in(2)(duration{1e9}));
}
