#include "optpipe/core/format.hpp"

#include "optpipe/core/quantity.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

using optpipe::exact_number;
using optpipe::format_number;

TEST_CASE("format_number drops what says nothing") {
    CHECK(format_number(0.0) == "0");
    CHECK(format_number(3.0) == "3");
    CHECK(format_number(2.5) == "2.5");
    CHECK(format_number(-0.125) == "-0.125");
    CHECK(format_number(246.80000001) == "246.8");
    CHECK(format_number(0.1 + 0.2) == "0.3");
}

TEST_CASE("format_number keeps as many significant digits as it is told") {
    CHECK(format_number(1.0 / 3.0) == "0.333333");
    CHECK(format_number(1.0 / 3.0, 3) == "0.333");
    CHECK(format_number(2.0 / 3.0, 3) == "0.667");
    CHECK(format_number(123456.0) == "123456");
    CHECK(format_number(1234567.0) == "1234570");
    CHECK(format_number(1234567.0, 7) == "1234567");
}

TEST_CASE("format_number writes bytes out, and has an exponent only beyond") {
    CHECK(format_number(40960.0, 4) == "40960");
    CHECK(format_number(-40963.0, 4) == "-40960");
    CHECK(format_number(99996.0, 4) == "100000");
    CHECK(format_number(85899345920.0) == "85899300000");
    CHECK(format_number(999999999999999.0) == "1000000000000000");
    CHECK(format_number(1e15) == "1e+15");
    CHECK(format_number(1e-7) == "1e-07");
}

TEST_CASE("format_number of what is no finite number") {
    CHECK(format_number(std::numeric_limits<double>::infinity()) == "inf");
    CHECK(format_number(-std::numeric_limits<double>::infinity()) == "-inf");
    CHECK(format_number(std::nan("")) == "nan");
}

TEST_CASE("format_number of a quantity is that of its value") {
    CHECK(format_number(optpipe::duration{1.5}) == "1.5");
    CHECK(format_number(optpipe::memory_size{1.0 / 3.0}, 2) == "0.33");
    CHECK(format_number(optpipe::memory_size::unlimited()) == "inf");
}

TEST_CASE("format_number reads back to its digits, and with 17 exactly") {
    constexpr unsigned seed = 20240521;
    INFO("seed ", seed);
    std::mt19937_64 random{seed};
    std::uniform_real_distribution<double> exponent{-12.0, 12.0};
    for (int i = 0; i < 1000; ++i) {
        const double value = std::pow(10.0, exponent(random));
        CAPTURE(value);
        CHECK(std::strtod(format_number(value).c_str(), nullptr) == doctest::Approx(value).epsilon(1e-5));
        CHECK(std::strtod(format_number(value, 17).c_str(), nullptr) == value);
    }
}

TEST_CASE("numbers that read back exactly") {
    CHECK(exact_number(0.1) == "0.1");
    CHECK(exact_number(1.0) == "1");
    CHECK(exact_number(139.937844) == "139.937844");
    CHECK(exact_number(-std::numeric_limits<double>::denorm_min()) == "-5e-324");
    CHECK(exact_number(-std::numeric_limits<double>::max()) == "-1.7976931348623157e+308");
}
