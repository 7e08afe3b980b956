#include <optpipe/core/random.hpp>
#include <optpipe/schedule/profile/estimate.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

std::vector<duration> durations(const std::vector<double>& values) {
    std::vector<duration> result;
    for (const double v : values)
        result.emplace_back(v);
    return result;
}

double uniform(random_numbers& random) { return std::ldexp(static_cast<double>(random.next() >> 11U), -53); }

/// The coverage of [x(k+1), x(n-k)] by adding up all outcomes of n fair coins.
double coverage(std::size_t n, std::size_t left_out) {
    std::size_t inside = 0;
    for (std::uint64_t coins = 0; coins < (std::uint64_t{1} << n); ++coins) {
        std::size_t below = 0;
        for (std::size_t i = 0; i < n; ++i)
            below += (coins >> i) & 1U;
        if (below > left_out && below < n - left_out) ++inside;
    }
    return static_cast<double>(inside) / static_cast<double>(std::uint64_t{1} << n);
}

} // namespace

TEST_CASE("median and spread of samples, with outliers left out") {
    const auto e = estimate_of(durations({10.0, 10.2, 9.8, 10.1, 9.9, 10.0, 25.0}));
    CHECK(e.count == 6);
    CHECK(e.outliers == 1);
    CHECK(e.median == duration{10.0});
    CHECK(e.spread.value() == doctest::Approx(1.4826 * 0.1));
    CHECK(e.low == duration{9.8});
    CHECK(e.high == duration{10.2});
    CHECK(e.confidence == doctest::Approx(1.0 - 2.0 / 64.0));

    const auto one = estimate_of(durations({3.0}));
    CHECK(one.median == duration{3.0});
    CHECK(one.spread == duration{});
    CHECK(one.confidence == 0.0);
    CHECK(estimate_of({}).count == 0);
    CHECK(estimate_of(durations({0.0, 0.0, 0.0})).median == duration{});
}

TEST_CASE("among equal samples a little difference is no outlier") {
    const auto e = estimate_of(durations({10.0, 10.0, 10.0, 10.0, 10.05, 11.0}));
    CHECK(e.outliers == 1);
}

TEST_CASE("the interval has the confidence that all outcomes of coins give, and is the narrowest that reaches it") {
    for (std::size_t n = 1; n <= 16; ++n)
        for (const double asked : {0.5, 0.8, 0.95, 0.99}) {
            const auto found = detail::median_interval_of(n, asked);
            CAPTURE(n);
            CAPTURE(asked);
            CHECK(2 * found.left_out < n);
            CHECK(found.confidence == doctest::Approx(coverage(n, found.left_out)));
            if (found.left_out > 0) CHECK(found.confidence >= asked);
            if (2 * (found.left_out + 1) < n) CHECK(coverage(n, found.left_out + 1) < asked);
        }
    const auto few = detail::median_interval_of(1000, 0.95);
    const auto many = detail::median_interval_of(1001, 0.95);
    CHECK(few.left_out > many.left_out);
    CHECK(many.left_out > 400);
}

TEST_CASE("the interval holds the true median about as often as it says") {
    random_numbers random{5};
    std::size_t holds = 0;
    constexpr std::size_t trials = 2000;
    for (std::size_t t = 0; t < trials; ++t) {
        std::vector<duration> samples;
        for (int i = 0; i < 15; ++i)
            samples.emplace_back(1.0 + 0.1 * (uniform(random) + uniform(random) - 1.0));
        const auto e = estimate_of(samples);
        holds += e.low <= duration{1.0} && duration{1.0} <= e.high ? 1 : 0;
    }
    CHECK(static_cast<double>(holds) / trials > 0.93);
}

TEST_CASE("warm-up is found, and noise isn't taken for it") {
    CHECK(warm_up_length(std::vector<double>{}) == 0);
    CHECK(warm_up_length(std::vector<double>{1.0}) == 0);
    CHECK(warm_up_length(std::vector<double>{5.0, 2.0, 1.01, 1.0, 0.99, 1.0, 1.0, 1.01}) == 2);
    CHECK(warm_up_length(std::vector<double>{9.0, 1.0, 1.0, 1.0, 1.0}) == 1);
    CHECK(warm_up_length(std::vector<double>{1.0, 1.0, 1.0, 1.0, 9.0}) == 0);
    CHECK(warm_up_length(std::vector<double>(50, 1.0)) == 0);
    random_numbers random{11};
    std::size_t left_out = 0;
    constexpr std::size_t trials = 500;
    for (std::size_t t = 0; t < trials; ++t) {
        std::vector<double> pace;
        for (int i = 0; i < 20; ++i)
            pace.push_back(1.0 + 0.1 * (uniform(random) + uniform(random) + uniform(random) - 1.5));
        left_out += warm_up_length(pace);
    }
    CHECK(left_out < trials / 2);
}
