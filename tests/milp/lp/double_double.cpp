#include <optpipe/milp/lp/double_double.hpp>

#include <doctest/doctest.h>

using optpipe::milp::lp::double_double;

TEST_CASE("sums and products lose nothing that two doubles can hold") {
    const auto sum = double_double::sum(1e16, 1.0);
    CHECK(sum.high == 1e16);
    CHECK(sum.low == 1.0);
    const double a = 1.0 + 0x1p-52;
    const auto square = double_double::product(a, a); // 1 + 2^-51 + 2^-104
    CHECK(square.high == 1.0 + 0x1p-51);
    CHECK(square.low == 0x1p-104);
}

TEST_CASE("what is left after large terms cancel is exact") {
    double_double rest;
    for (const double v : {1e16, 1.0, 0x1p-33, -1e16})
        rest += {v, 0.0};
    CHECK(rest.high == 1.0 + 0x1p-33);
    rest += 3.0 * double_double{-1.0, 0.0};
    CHECK(rest.high == -2.0 + 0x1p-33);
}
