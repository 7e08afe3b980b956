#include "optpipe/core/deadline.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <limits>

using optpipe::deadline_after;

TEST_CASE("a limit that the clock can't tell is no deadline") {
    using clock = std::chrono::steady_clock;
    using seconds = std::chrono::duration<double>;
    const auto start = clock::now();
    CHECK(deadline_after(start, seconds{1.5}) == start + std::chrono::milliseconds{1500});
    CHECK(deadline_after(start, seconds{4e9}) > start + std::chrono::hours{24 * 365 * 100});
    CHECK(deadline_after(start, seconds{-1.0}) == start);
    CHECK(deadline_after(start, seconds{-std::numeric_limits<double>::infinity()}) == start);
    for (const double endless : {5e9, 1e300, std::numeric_limits<double>::infinity(), std::nan("")})
        CHECK(deadline_after(start, seconds{endless}) == clock::time_point::max());
}
