#include "judge.hpp"
#include "random_program.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/lp/simplex.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

using namespace optpipe::milp;
using optpipe::random_numbers;

namespace {

simplex_options random_options(random_numbers& random) {
    simplex_options o;
    o.scaling = random.chance(80);
    if (random.chance(20)) o.updates = 3;
    return o;
}

/// Branches: forbids the current value of a column.
void branch(simplex& s, std::size_t j, random_numbers& random) {
    const double lower = s.program().column_lower[j];
    const double upper = s.program().column_upper[j];
    const double down = std::floor(s.primal()[j] - 0.3);
    const double up = std::ceil(s.primal()[j] + 0.3);
    if (random.chance(50) && down >= lower)
        s.set_column_bounds(j, lower, down);
    else if (up <= upper)
        s.set_column_bounds(j, up, upper);
}

void add_random_rows(simplex& s, random_numbers& random) {
    std::vector<cut_row> rows(1 + random.below(2));
    for (auto& r : rows) {
        for (std::size_t j = 0; j < s.columns(); ++j)
            if (random.chance(50)) r.terms.emplace_back(j, random_program::small_integer(random));
        const auto b = random_program::bounds(random);
        r.lower = b.lower;
        r.upper = b.upper;
    }
    s.add_rows(rows);
}

void add_random_columns(simplex& s, random_numbers& random) {
    std::vector<new_column> columns(1 + random.below(2));
    for (auto& c : columns) {
        c.cost = random_program::small_integer(random);
        // With luck, two terms of one row.
        for (auto n = random.below(s.rows() + 2); n > 0 && s.rows() > 0; --n)
            c.terms.emplace_back(random.below(s.rows()), random_program::small_integer(random));
        const auto b = random_program::bounds(random);
        c.lower = b.lower;
        c.upper = b.upper;
    }
    s.add_columns(columns);
}

void swap_in_basis(simplex& s, random_numbers& random) {
    auto b = s.current_basis();
    if (s.rows() > 0 && s.columns() > 0)
        std::swap(b.columns[random.below(s.columns())], b.rows[random.below(s.rows())]);
    s.set_basis(b);
}

void change(simplex& s, random_numbers& random) {
    constexpr std::size_t most_rows = 14;
    constexpr std::size_t most_columns = 16;
    const auto b = random_program::bounds(random);
    switch (random.below(8)) {
    case 0:
        if (s.rows() > 0) s.set_row_bounds(random.below(s.rows()), b.lower, b.upper);
        break;
    case 1:
        if (s.rows() < most_rows) add_random_rows(s, random);
        break;
    case 2:
        if (s.rows() > 0) s.remove_rows(std::vector{random.below(s.rows())});
        break;
    case 3: swap_in_basis(s, random); break;
    case 4:
        if (s.columns() > 0) s.set_column_bounds(random.below(s.columns()), b.lower, b.upper);
        break;
    case 5:
        if (s.columns() < most_columns) add_random_columns(s, random);
        break;
    default:
        if (s.columns() > 0) branch(s, random.below(s.columns()), random);
    }
}

struct tally {
    std::size_t optimal = 0;
    std::size_t infeasible = 0;
    std::size_t unbounded = 0;
    void count(lp_status status) {
        optimal += status == lp_status::optimal ? 1U : 0U;
        infeasible += status == lp_status::infeasible ? 1U : 0U;
        unbounded += status == lp_status::unbounded ? 1U : 0U;
    }
};

} // namespace

TEST_CASE("after every change, the answer is right and the same as from scratch") {
    constexpr std::uint64_t seed = 20;
    constexpr std::size_t programs = 600;
    constexpr std::size_t changes = 10;
    INFO("seed " << seed);
    tally counts;
    for (std::size_t n = 0; n < programs; ++n) {
        random_numbers random{seed + n};
        simplex warm{random_program::make(random, 9, 10), random_options(random)};
        for (std::size_t k = 0; k < changes; ++k) {
            INFO("program " << n << ", change " << k);
            const auto status = warm.solve();
            counts.count(status);
            REQUIRE(judge::objection(warm, status) == "");
            simplex scratch{warm.program()};
            const auto expected = scratch.solve();
            REQUIRE(judge::objection(scratch, expected) == "");
            // Certificates determine the status, unless a program is both infeasible and has a ray.
            if (status == lp_status::optimal) {
                REQUIRE(expected == status);
                CHECK(warm.objective() == doctest::Approx(scratch.objective()).epsilon(1e-7));
            }
            for (auto c = 1 + random.below(3); c > 0; --c)
                change(warm, random);
        }
    }
    // Every kind of answer has occurred often enough to be meaningful.
    CHECK(counts.optimal > 1000);
    CHECK(counts.infeasible > 1000);
    CHECK(counts.unbounded > 300);
}

TEST_CASE("a copy goes its own way") {
    random_numbers random{3};
    for (int n = 0; n < 50; ++n) {
        simplex first{random_program::make(random, 8, 8)};
        const auto status = first.solve();
        const double objective = first.objective();
        auto second = first;
        for (int k = 0; k < 5; ++k) {
            change(second, random);
            CHECK(judge::objection(second, second.solve()) == "");
        }
        CHECK(first.objective() == objective);
        CHECK(first.solve() == status);
        CHECK(judge::objection(first, status) == "");
    }
}

TEST_CASE("the optimal basis of one solver is optimal at once in another") {
    random_numbers random{4};
    int seen = 0;
    for (int n = 0; n < 300; ++n) {
        simplex first{random_program::make(random, 9, 9)};
        if (first.solve() != lp_status::optimal) continue;
        simplex second{first.program()};
        second.set_basis(first.current_basis());
        REQUIRE(second.solve() == lp_status::optimal);
        CHECK(second.iterations() == 0);
        CHECK(second.current_basis() == first.current_basis());
        ++seen;
    }
    CHECK(seen > 50);
}

TEST_CASE("columns come one by one, and the basis stays") {
    // min 2a + 3b, a + b = 4, a + 3b >= 6: a = 3, b = 1.
    linear_program rows{{}, {}, {}, {}, {4.0, 6.0}, {4.0, std::numeric_limits<double>::infinity()}};
    rows.matrix.resize(2, 0);
    simplex s{std::move(rows)};
    CHECK(s.solve() == lp_status::infeasible);
    s.add_columns(std::vector<new_column>{{2.0, {{1, 1.0}, {0, 1.0}}}});
    CHECK(s.solve() == lp_status::infeasible);
    s.add_columns(std::vector<new_column>{{9.0, {{0, 1.0}, {1, 2.0}}}});
    REQUIRE(s.solve() == lp_status::optimal);
    CHECK(s.objective() == doctest::Approx(22.0));
    const auto before = s.iterations();
    s.add_columns(std::vector<new_column>{{5.0, {}}, {3.0, {{1, 2.0}, {0, 1.0}, {1, 1.0}}}});
    CHECK(s.columns() == 4);
    REQUIRE(s.solve() == lp_status::optimal);
    CHECK(s.iterations() == before + 1);
    CHECK(s.objective() == doctest::Approx(9.0));
    CHECK(s.duals()[0] == doctest::Approx(1.5));
    CHECK(s.duals()[1] == doctest::Approx(0.5));
    CHECK(s.primal()[3] == doctest::Approx(1.0));
}

TEST_CASE("anything that is called a basis is made one") {
    random_numbers random{5};
    for (int n = 0; n < 300; ++n) {
        simplex s{random_program::make(random, 6, 6)};
        basis b{std::vector(s.columns(), basis_status::basic), std::vector(s.rows(), basis_status::basic)};
        if (n % 2 == 0)
            for (auto* part : {&b.columns, &b.rows})
                for (auto& status : *part)
                    status = static_cast<basis_status>(random.below(4));
        s.set_basis(b);
        CHECK(judge::objection(s, s.solve()) == "");
    }
}
