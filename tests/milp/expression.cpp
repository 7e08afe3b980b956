#include <optpipe/milp/expression.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <type_traits>
#include <vector>

using namespace optpipe::milp;

namespace {

const variable x{0};
const variable y{1};

double value(const expression& e, double at_x, double at_y) {
    double sum = e.constant();
    for (const auto& t : e.terms())
        sum += t.coefficient * (t.column == x ? at_x : at_y);
    return sum;
}

template <class A, class B> concept adds = requires(A a, B b) { a + b; };
template <class A, class B> concept multiplies = requires(A a, B b) { a* b; };

// Linear, and nothing else.
static_assert(adds<variable, variable> && adds<variable, double> && adds<int, variable>);
static_assert(multiplies<double, variable> && multiplies<expression, int>);
static_assert(!multiplies<variable, variable> && !multiplies<expression, expression>);
static_assert(!adds<variable, row>);
// Two bare variables compare like indices.
static_assert(std::is_same_v<decltype(x <= y), bool>);
static_assert(!std::is_convertible_v<bool, constraint>);
static_assert(std::is_same_v<decltype(x - y <= 0), constraint>);
static_assert(std::is_same_v<decltype(expression{x} == y), constraint>);

} // namespace

TEST_CASE("expressions mean what their operators say") {
    for (const double a : {-2.0, 0.0, 3.5})
        for (const double b : {-1.0, 4.0}) {
            CHECK(value(x + y, a, b) == a + b);
            CHECK(value(2 * x - y / 4 + 1, a, b) == 2 * a - b / 4 + 1);
            CHECK(value(-(x - 3 * y) * 2 + x, a, b) == -(a - 3 * b) * 2 + a);
            CHECK(value(5 - x, a, b) == 5 - a);
            CHECK(value(+x + x + x, a, b) == 3 * a);
            expression sum;
            sum += x;
            sum -= 2 * y;
            sum *= 3;
            sum /= 2;
            CHECK(value(sum, a, b) == (a - 2 * b) * 3 / 2);
            sum += sum;
            CHECK(value(sum, a, b) == (a - 2 * b) * 3);
            const auto& same = sum;
            sum -= same;
            CHECK(value(sum, a, b) == 0.0);
        }
}

TEST_CASE("comparisons give the bounds of a constraint") {
    const auto between = [](const constraint& c, double lower, double upper) {
        return c.lower == lower && c.upper == upper;
    };
    CHECK(between(x + y <= 3, -infinity, 3));
    CHECK(between(x + y >= 3, 3, infinity));
    CHECK(between(x + y == 3, 3, 3));
    CHECK(between(3 <= x + y, 3, infinity));
    CHECK(between(3 >= x + y, -infinity, 3));
    CHECK(between(3 == x + y, 3, 3));
    CHECK(between(1 <= x + y <= 3, 1, 3));
    CHECK(between(3 >= x + y >= 1, 1, 3));
    CHECK(between(x <= 3, -infinity, 3));
    CHECK(between(2 * x <= y + 1, -infinity, 0));
    CHECK(value((2 * x <= y + 1).body, 5, 7) == 2);
    CHECK(between(2 * x >= y, 0, infinity));
    CHECK(between(2 * x == y, 0, 0));
}
