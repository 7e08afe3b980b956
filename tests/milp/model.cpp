#include <optpipe/core/contract.hpp>
#include <optpipe/milp/model.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <vector>

using namespace optpipe::milp;

namespace {

bool same(std::span<const term> a, const std::vector<term>& b) { return std::vector<term>(a.begin(), a.end()) == b; }

} // namespace

TEST_CASE("a model keeps what it was given") {
    model m;
    const auto x = m.add_variable(-1.5, infinity, domain::continuous, "speed");
    const auto y = m.add_binary();
    const auto z = m.add_variable(2.0, 7.0, domain::integer);
    const auto r = m.add_row(-infinity, {{z, 3.0}, {x, -1.0}}, 4.0, "limit");
    const auto free = m.add_row(-infinity, {}, infinity);
    m.set_name("small");

    CHECK(m.variables() == 3);
    CHECK(m.rows() == 2);
    CHECK(m.nonzeros() == 2);
    CHECK((m.lower(x) == -1.5 && m.upper(x) == infinity && !m.is_integer(x)));
    CHECK((m.lower(y) == 0.0 && m.upper(y) == 1.0 && m.domain_of(y) == domain::integer));
    CHECK((m.lower(z) == 2.0 && m.upper(z) == 7.0 && m.is_integer(z)));
    CHECK((m.row_lower(r) == -infinity && m.row_upper(r) == 4.0));
    CHECK(same(m.terms(r), {{x, -1.0}, {z, 3.0}}));
    CHECK(m.terms(free).empty());
    CHECK((name_of(m, x) == "speed" && name_of(m, y) == "x1" && name_of(m, r) == "limit" && name_of(m, free) == "r1"));
    CHECK((m.name() == "small" && m.name(y).empty()));

    m.set_bounds(z, 3.0, 3.0);
    m.set_bounds(r, 1.0, 2.0);
    m.set_domain(x, domain::integer);
    m.set_name(free, "nothing");
    CHECK((m.lower(z) == 3.0 && m.upper(z) == 3.0 && m.row_lower(r) == 1.0 && m.row_upper(r) == 2.0));
    CHECK((m.is_integer(x) && name_of(m, free) == "nothing"));
}

TEST_CASE("terms of one column are summed, and those that cancel are gone") {
    model m;
    const auto x = m.add_binary();
    const auto y = m.add_binary();
    const auto z = m.add_binary();
    const auto r = m.add_row(0.0, {{z, 1.0}, {x, 2.0}, {y, 5.0}, {x, 1.0}, {y, -5.0}, {z, 0.0}}, 1.0);
    CHECK(same(m.terms(r), {{x, 3.0}, {z, 1.0}}));
    const auto next = m.add_row(0.0, {{y, 1.0}}, 1.0);
    CHECK(same(m.terms(r), {{x, 3.0}, {z, 1.0}}));
    CHECK(same(m.terms(next), {{y, 1.0}}));
}

TEST_CASE("an objective replaces the one before") {
    model m;
    const auto x = m.add_binary();
    const auto y = m.add_binary();
    m.set_cost(y, 7.0);
    m.set_objective(2.0 * x + x - 4.0, sense::maximize);
    CHECK((m.cost(x) == 3.0 && m.cost(y) == 0.0 && m.offset() == -4.0 && m.direction() == sense::maximize));
    m.set_objective(y);
    CHECK((m.cost(x) == 0.0 && m.cost(y) == 1.0 && m.offset() == 0.0 && m.direction() == sense::minimize));
}

TEST_CASE("the constant of a constraint goes to both sides") {
    model m;
    const auto x = m.add_variable(0.0, 9.0);
    const auto y = m.add_variable(0.0, 9.0);
    const auto r = m.add_row(1.0 <= x + 2.0 * y + 3.0 <= 5.0, "range");
    CHECK((m.row_lower(r) == -2.0 && m.row_upper(r) == 2.0 && m.name(r) == "range"));
    const auto equal = m.add_row(x + 1.0 == 3.0 * y);
    CHECK((m.row_lower(equal) == -1.0 && m.row_upper(equal) == -1.0));
    CHECK(same(m.terms(equal), {{x, 1.0}, {y, -3.0}}));
}

TEST_CASE("a refused call leaves the model as it was") {
    if (!optpipe::contracts_throw()) return;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double most = std::numeric_limits<double>::max();
    model m;
    const auto x = m.add_variable(0.0, 5.0);
    const auto y = m.add_variable(0.0, 5.0);
    const variable foreign{9};
    m.set_objective(x + y + 1.0, sense::maximize);
    CHECK_THROWS_AS(m.add_variable(nan, 1.0), optpipe::contract_error);
    CHECK_THROWS_AS(m.add_row(x + foreign <= 1.0), optpipe::contract_error);
    CHECK_THROWS_AS(m.add_row(x <= nan), optpipe::contract_error);
    CHECK_THROWS_AS(m.add_row(0.0, {{x, most}, {x, most}}, 1.0), optpipe::contract_error);
    CHECK_THROWS_AS(m.set_objective(2.0 * x + foreign), optpipe::contract_error);
    CHECK_THROWS_AS(m.set_objective(2.0 * x + nan), optpipe::contract_error);
    for (const double offset : {nan, infinity, -infinity})
        CHECK_THROWS_AS(m.set_offset(offset), optpipe::contract_error);
    CHECK((m.variables() == 2 && m.rows() == 0 && m.nonzeros() == 0));
    CHECK((m.cost(x) == 1.0 && m.cost(y) == 1.0 && m.offset() == 1.0 && m.direction() == sense::maximize));
    CHECK(same(m.terms(m.add_row(y <= 3.0)), {{y, 1.0}}));
    CHECK(same(m.terms(m.add_row(0.0, m.terms(row{0}), 1.0)), {{y, 1.0}}));
}
