#include <optpipe/core/random.hpp>
#include <optpipe/milp/lp/compressed.hpp>
#include <optpipe/milp/lp/factorization.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using namespace optpipe::milp::lp;
using optpipe::random_numbers;

namespace {

compressed random_matrix(random_numbers& random, std::size_t rows, std::size_t columns) {
    const auto percent = 5 + random.below(40);
    compressed a;
    a.start.push_back(0);
    for (std::size_t j = 0; j < columns; ++j) {
        for (std::size_t i = 0; i < rows; ++i)
            if (random.chance(percent)) {
                a.index.push_back(static_cast<int>(i));
                a.value.push_back(random.chance(60) ? (random.chance(50) ? 1.0 : -1.0)
                                                    : static_cast<double>(random.between(1, 1000)) / 100.0 - 5.005);
            }
        a.start.push_back(static_cast<int>(a.index.size()));
    }
    return a;
}

std::vector<int> random_head(random_numbers& random, const compressed& a, std::size_t rows) {
    const auto variables = static_cast<std::size_t>(a.majors()) + rows;
    std::vector<int> all(variables);
    for (std::size_t j = 0; j < variables; ++j)
        all[j] = static_cast<int>(j);
    for (std::size_t j = 0; j < rows; ++j)
        std::swap(all[j], all[j + random.below(variables - j)]);
    all.resize(rows);
    return all;
}

/// The entry of a variable's column in a row.
double entry_of(const compressed& a, int variable, int row) {
    if (variable >= a.majors()) return variable - a.majors() == row ? 1.0 : 0.0;
    for (int k = a.begin(variable); k < a.end(variable); ++k)
        if (a.index[at(k)] == row) return a.value[at(k)];
    return 0.0;
}

work_vector vector_of(const std::vector<double>& dense) {
    work_vector v;
    v.resize(dense.size());
    for (std::size_t i = 0; i < dense.size(); ++i)
        if (dense[i] != 0.0) v.insert(static_cast<int>(i), dense[i]);
    return v;
}

std::vector<double> random_point(random_numbers& random, std::size_t size) {
    std::vector<double> x(size);
    for (double& v : x)
        v = random.chance(50) ? 0.0 : static_cast<double>(random.below(100)) - 50.0;
    return x;
}

double distance(const work_vector& a, const std::vector<double>& b) {
    double most = 0.0;
    for (std::size_t i = 0; i < b.size(); ++i)
        most = std::max(most, std::abs(a.value[i] - b[i]));
    return most;
}

bool lists_its_nonzeros(const work_vector& v) {
    auto listed = v.index;
    std::sort(listed.begin(), listed.end());
    std::vector<int> nonzeros;
    for (std::size_t i = 0; i < v.value.size(); ++i)
        if (v.value[i] != 0.0) nonzeros.push_back(static_cast<int>(i));
    return listed == nonzeros;
}

struct fixture {
    const compressed& a;
    std::vector<int> head;
    factorization factors;
    density_history history;

    /// B x and B' x
    [[nodiscard]] std::vector<double> times(const std::vector<double>& x, bool transposed) const {
        std::vector<double> y(x.size(), 0.0);
        for (std::size_t i = 0; i < x.size(); ++i)
            for (std::size_t k = 0; k < x.size(); ++k) {
                const double v = entry_of(a, head[k], static_cast<int>(i));
                (transposed ? y[k] : y[i]) += v * (transposed ? x[i] : x[k]);
            }
        return y;
    }
    double error(random_numbers& random) {
        const auto x = random_point(random, head.size());
        auto forward = vector_of(times(x, false));
        factors.forward(forward, history);
        auto values = vector_of(times(x, false));
        factors.forward_values(values, history);
        const auto y = random_point(random, head.size());
        auto backward = vector_of(times(y, true));
        factors.backward(backward, history);
        CHECK(lists_its_nonzeros(forward));
        CHECK(lists_its_nonzeros(backward));
        return std::max({distance(forward, x), distance(values, x), distance(backward, y)});
    }
    /// Returns whether the exchange was good enough to be made.
    bool exchange(int row, int entering) {
        work_vector rho, partial, column, spike;
        for (auto* v : {&rho, &partial, &column, &spike})
            v->resize(head.size());
        rho.insert(row, 1.0);
        factors.backward(rho, history, &partial);
        for (std::size_t i = 0; i < head.size(); ++i)
            if (const double v = entry_of(a, entering, static_cast<int>(i)); v != 0.0)
                column.insert(static_cast<int>(i), v);
        factors.forward(column, history, &spike);
        constexpr double least_pivot = 1e-2;
        if (std::abs(column[row]) < least_pivot) return false;
        CHECK(factors.update(row, spike, partial, column[row]));
        head[at(row)] = entering;
        return true;
    }
};

} // namespace

TEST_CASE("factors solve, singular or not, sparse or dense, before and after updates") {
    random_numbers random{11};
    std::size_t singular = 0;
    std::size_t updates = 0;
    for (int trial = 0; trial < 600; ++trial) {
        INFO("trial " << trial);
        const auto rows = 1 + random.below(30);
        const auto a = random_matrix(random, rows, rows + random.below(20));
        fixture f{a, random_head(random, a, rows), {}, density_history{random.chance(50) ? 1.0 : 0.0}};
        const auto before = f.head;
        const auto replaced = f.factors.build(a, f.head, {});
        singular += replaced.empty() ? 0U : 1U;
        CHECK(f.error(random) < 1e-6);

        // The head is a permutation of the old one, except for the replaced entries.
        auto expected = before;
        for (const auto& r : replaced) {
            expected.erase(std::find(expected.begin(), expected.end(), r.variable));
            expected.push_back(a.majors() + r.row);
            CHECK(f.head[at(r.row)] == a.majors() + r.row);
        }
        auto found = f.head;
        std::sort(expected.begin(), expected.end());
        std::sort(found.begin(), found.end());
        CHECK(found == expected);

        for (int u = 0; u < 8; ++u) {
            const auto entering = static_cast<int>(random.below(at(a.majors())));
            if (std::find(f.head.begin(), f.head.end(), entering) != f.head.end()) continue;
            if (!f.exchange(static_cast<int>(random.below(rows)), entering)) continue;
            ++updates;
            CHECK(f.error(random) < 1e-5);
        }
    }
    CHECK(singular > 50);
    CHECK(updates > 500);
}

TEST_CASE("two slacks of one row, an empty column and equal columns are singular") {
    compressed a;
    a.start = {0, 0, 2, 4};
    a.index = {0, 1, 0, 1};
    a.value = {1.0, 2.0, 1.0, 2.0};
    for (const std::vector<int>& basic : {std::vector{3, 3}, std::vector{0, 3}, std::vector{1, 2}}) {
        auto head = basic;
        factorization f;
        CHECK(f.build(a, head, {}).size() == 1);
    }
    std::vector<int> head{1, 3};
    factorization f;
    CHECK(f.build(a, head, {}).empty());
}

TEST_CASE("an update with a wrong pivot is noticed") {
    compressed a;
    a.start = {0, 2};
    a.index = {0, 1};
    a.value = {2.0, 3.0};
    std::vector<int> head{1, 2};
    factorization f;
    REQUIRE(f.build(a, head, {}).empty());
    auto rho = vector_of({0.0, 1.0});
    auto column = vector_of(a.value);
    auto partial = vector_of({0.0, 0.0});
    auto spike = partial;
    density_history history;
    f.backward(rho, history, &partial);
    f.forward(column, history, &spike);
    auto copy = f;
    CHECK(f.update(1, spike, partial, column[1]));
    CHECK_FALSE(copy.update(1, spike, partial, 1.001 * column[1]));
}
