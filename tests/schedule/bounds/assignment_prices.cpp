// Prices hold for every row and column, and their sum is what the best assignment gains.
#include "optpipe/schedule/bounds/assignment_prices.hpp"

#include "optpipe/core/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace {

using namespace optpipe;

double best_assignment(const detail::gain_table& of) {
    const auto n = std::max(of.rows, of.columns);
    std::vector<std::size_t> column_of(n);
    std::iota(column_of.begin(), column_of.end(), std::size_t{0});
    double best = 0.0;
    do {
        double sum = 0.0;
        for (std::size_t i = 0; i < of.rows; ++i)
            if (column_of[i] < of.columns) sum += of(i, column_of[i]);
        best = std::max(best, sum);
    } while (std::next_permutation(column_of.begin(), column_of.end()));
    return best;
}

} // namespace

TEST_CASE("the least prices are dual to the best assignment") {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        detail::gain_table gains{random.between(1, 5), random.between(1, 5), {}};
        for (std::size_t i = 0; i < gains.rows * gains.columns; ++i)
            gains.gain.push_back(static_cast<double>(random.below(8)));
        const auto prices = detail::least_prices(gains);
        double sum = 0.0;
        for (std::size_t i = 0; i < gains.rows; ++i) {
            CHECK(prices.of_row[i] >= 0.0);
            sum += prices.of_row[i];
            for (std::size_t j = 0; j < gains.columns; ++j)
                CHECK(prices.of_row[i] + prices.of_column[j] >= gains(i, j) - 1e-9);
        }
        for (const double price : prices.of_column) {
            CHECK(price >= 0.0);
            sum += price;
        }
        CHECK(sum >= best_assignment(gains) - 1e-9);
        if (gains.rows == gains.columns) CHECK(sum == doctest::Approx(best_assignment(gains)));
    }
}
