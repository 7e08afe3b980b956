#include "optpipe/core/common_divisor.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

using optpipe::common_divisor_of;

TEST_CASE("the common divisor of decimals with few digits") {
    CHECK(common_divisor_of(std::vector{6.0, -10.0, 4.0}).value() == doctest::Approx(2.0));
    CHECK(common_divisor_of(std::vector{0.25, 1.5, 100.0}).value() == doctest::Approx(0.25));
    CHECK(common_divisor_of(std::vector{0.1, 0.2, 0.7, 0.0}).value() == doctest::Approx(0.1));
    CHECK(common_divisor_of(std::vector{3.0, std::numeric_limits<double>::infinity()}).value() == doctest::Approx(3.0));
    CHECK(common_divisor_of(std::vector{0.0, 0.0}).value() == 0.0);
}

TEST_CASE("numbers of many digits have no common divisor") {
    CHECK_FALSE(common_divisor_of(std::vector{1.0, 1.0 / 3.0}).has_value());
    CHECK_FALSE(common_divisor_of(std::vector{1e13}).has_value());
}

TEST_CASE("a decimal that is too far from a number doesn't stand for it") {
    constexpr double value = 2e7 + 1e-5;
    CHECK(optpipe::common_divisor{}.add(value));
    CHECK_FALSE(optpipe::common_divisor{}.add(value, 1e-9));
    CHECK(optpipe::common_divisor{}.add(0.3, 1e-9));
}
