#include <optpipe/core/random.hpp>
#include <optpipe/learning/vsids.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>

using namespace optpipe;

TEST_CASE("the most active variable comes first") {
    constexpr std::size_t variables = 50;
    learning::vsids order{variables};
    random_numbers random{5};
    for (std::size_t j = 0; j < variables; ++j)
        order.insert(j);
    for (int k = 0; k < 500; ++k) {
        order.bump(random.below(variables));
        order.decay(0.9);
    }
    double last = std::numeric_limits<double>::infinity();
    std::size_t count = 0;
    while (const auto j = order.pop()) {
        CHECK(order.activity(*j) <= last);
        last = order.activity(*j);
        ++count;
    }
    CHECK(count == variables);
}

TEST_CASE("of equally active variables the lowest number comes first, and what is in the heap isn't inserted twice") {
    learning::vsids order{4};
    for (const std::size_t v : {3U, 1U, 2U, 1U})
        order.insert(v);
    CHECK(order.size() == 3);
    order.bump(2);
    CHECK(order.pop() == 2U);
    CHECK(order.pop() == 1U);
    order.insert(2);
    CHECK(order.pop() == 2U);
    CHECK(order.pop() == 3U);
    CHECK(!order.pop().has_value());
}

TEST_CASE("activities stay finite, and keep their order, however many bumps there are") {
    learning::vsids order{3};
    for (std::size_t v = 0; v < 3; ++v)
        order.insert(v);
    for (int k = 0; k < 20000; ++k) {
        order.bump(k % 2 == 0 ? 1 : 2);
        order.decay(0.9);
    }
    CHECK(order.activity(2) < 1e101);
    CHECK(order.pop() == 2U);
    CHECK(order.pop() == 1U);
    CHECK(order.pop() == 0U);
}
