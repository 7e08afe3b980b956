#include "optpipe/planner/partition/rank_load.hpp"

#include "optpipe/core/random.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

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

TEST_CASE("only microbatches with a stash of the first stage have passed the second stage before its gradients") {
    std::array stages{unit_stage(0, 42, 0), unit_stage(10, 20, 0)};
    stages[0].stash = memory_size{50};
    stages[1].stash = memory_size{};
    // 41 pass before the first gradient of the first stage, and as much after its last forward. Two microbatches leave
    // F0, F1 and G1 before that time, and two others leave F1, G1 and G0 after it. All else is in between.
    CHECK(begins_at(41 + (8 * 4 - 2 * 3 - 2 * 3) + 41, has_time(rank_load{stages, 2, 8, memory_size{100}})));
    // Each W of the second stage needs its gradient.
    stages[1].weight = duration{4.8};
    CHECK(begins_at(41 + (8 * 9.8 - 2 * 7.8), has_time(rank_load{stages, 2, 8, memory_size{100}})));
}

TEST_CASE("stashes of the second stage need room beside those of the first") {
    std::array stages{unit_stage(0, 42, 0), unit_stage(10, 31.5, 0)};
    stages[0].stash = memory_size{10};
    stages[1].stash = memory_size{25};
    // Five microbatches are between F0 and G0, or two of which one is between F1 and G1. 40.5 pass before the first
    // gradient of the second stage, and 41 after the last forward of the first stage: with five F0, and F1, G1 and G0.
    CHECK(begins_at(40.5 + (8 * 4 - 5 - 5 * 3) + 41, has_time(rank_load{stages, 2, 8, memory_size{50}})));
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

TEST_CASE("random stages: the average stashes are a mixture of two numbers of first stashes") {
    random_numbers random{20261130};
    const auto number = [&](std::size_t most) { return static_cast<double>(random.between(1, most)); };
    std::size_t fitting = 0;
    const auto cases = oracle::random_cases(1000);
    for (std::uint64_t i = 0; i < cases; ++i) {
        CAPTURE(i);
        std::array stages{unit_stage(0, number(40), 0), unit_stage(0, number(40), 0)};
        stages[0].stash = memory_size{number(5)};
        stages[1].stash = memory_size{number(5)};
        const std::size_t microbatches = random.between(2, 12);
        const auto room = number(40);
        const auto time = std::max(stages[0].lifetime, stages[1].lifetime).value() + number(100);
        const auto average = [&](std::size_t s) {
            return static_cast<double>(microbatches) * stages[s].lifetime.value() / time;
        };
        const auto beside = [&](double n) {
            const auto left = room - n * stages[0].stash.value();
            return std::min(std::floor(left / stages[1].stash.value()), static_cast<double>(microbatches));
        };
        const auto most = std::min(std::floor(room / stages[0].stash.value()), static_cast<double>(microbatches));
        bool fits = false;
        for (double fewer = 0; fewer <= std::min(average(0), most); ++fewer)
            for (double more = std::ceil(average(0)); more <= most; ++more) {
                const auto share = more > fewer ? (average(0) - fewer) / (more - fewer) : 0.0;
                fits = fits || average(1) <= (1 - share) * beside(fewer) + share * beside(more) + 1e-9;
            }
        fitting += fits ? 1 : 0;
        // Longer by rounding.
        CHECK(rank_load{stages, 2, microbatches, memory_size{room}}.has_memory(duration{time * (1 + 1e-8)}) == fits);
    }
    CHECK(fitting >= cases / 10);
    CHECK(fitting <= cases - cases / 10);
}
