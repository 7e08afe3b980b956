#include "optpipe/core/tolerance.hpp"

#include <doctest/doctest.h>

using optpipe::duration;
using optpipe::memory_size;
using optpipe::tolerance;

TEST_CASE("a tolerance is relative to the largest number at hand") {
    CHECK(tolerance{}.relative == 1e-6);
    CHECK(tolerance{}.at(1000.0) == doctest::Approx(1e-3));
    CHECK(tolerance{0.25}.at(8.0) == 2.0);
    CHECK(tolerance{0.25}.at(duration{8}) == duration{2});
    CHECK(tolerance{0.25}.at(memory_size{8}) == memory_size{2});
    CHECK(tolerance{}.at(memory_size{}) == memory_size{0});
}

TEST_CASE("a tolerance hides rounding and nothing more") {
    double sum = 0.0;
    for (int i = 0; i < 1000; ++i)
        sum += 0.1;
    CHECK(sum != 100.0);
    CHECK(sum <= 100.0 + tolerance{}.at(100.0));
    CHECK(sum >= 100.0 - tolerance{}.at(100.0));
    CHECK_FALSE(100.001 <= 100.0 + tolerance{}.at(100.0));
}
