#include "optpipe/planner/local_search/critical_path.hpp"

#include "optpipe/core/random.hpp"
#include "optpipe/planner/local_search/lane_moves.hpp"
#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

using namespace optpipe;
using namespace optpipe::detail;

namespace {
using id = flat_problem::id;
}

TEST_CASE("a block of a critical path is all that follows each other on one rank; its ends can be left") {
    std::size_t blocks = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(100); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        oracle::problem_ranges ranges;
        ranges.offloading_percent = 50;
        const auto given = oracle::make_random_problem(random, ranges);
        const auto s = oracle::random_schedule(random, given);
        const flat_problem p{given.problem};
        lane_orders lanes{p};
        lane_times times{lanes};
        lanes.load(s);
        if (!lanes.all_legal() || !times.place_all()) continue;
        critical_path path{lanes, times};
        id last = 0;
        for (id r = 0; r < p.ranks(); ++r)
            if (times.end(lanes.last_compute(r)) >= times.end(lanes.last_compute(last))) last = r;
        path.find(lanes.last_compute(last));

        const auto& chain = path.operations();
        const auto lane = [&](std::size_t place) {
            const auto& f = lanes.facts(chain[place]);
            return 2 * f.rank + (is_transfer(f.kind) ? 1 : 0);
        };
        for (std::size_t place = 0; place < chain.size(); ++place) {
            const auto block = path.block_around(place);
            REQUIRE(block.last <= place);
            REQUIRE(block.first >= place);
            REQUIRE(block.first < chain.size());
            for (auto other = block.last; other <= block.first; ++other)
                CHECK(lane(other) == lane(place));
            if (block.last > 0) CHECK(lane(block.last - 1) != lane(place));
            if (block.first + 1 < chain.size()) CHECK(lane(block.first + 1) != lane(place));
            if (block.last == block.first) continue;
            ++blocks;

            lane_moves moves{lanes, times};
            const id i = chain[block.first];
            const id past = chain[block.last];
            CHECK_FALSE(moves.shift_past(i, past, false));
            CHECK_FALSE(moves.shift_past(i, i, true));
            const id to = lanes.position(past);
            if (lanes.position(i) > to) continue; // both started at once
            REQUIRE(moves.shift_past(i, past, true));
            CHECK(p.slot_number(lanes[to]) == p.slot_number(i)); // of this kind, but maybe of another microbatch
            lanes.rollback();
            CHECK(lanes[to] == past);
        }
    }
    CHECK(blocks > 0);
}
