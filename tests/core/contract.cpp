#include "optpipe/core/contract.hpp"

#include "optpipe/core/container.hpp"

#include <doctest/doctest.h>

#include <string>
#include <type_traits>

namespace {

constexpr int half(int even) {
    OPTPIPE_EXPECT(even % 2 == 0, "half: only of even numbers");
    return even / 2;
}
static_assert(half(4) == 2, "a contract that holds doesn't keep a function from being a constant");
static_assert(std::is_void_v<decltype(OPTPIPE_EXPECT(true, ""))>);

} // namespace

TEST_CASE("a contract is checked once, in every build") {
    int evaluated = 0;
    OPTPIPE_EXPECT(++evaluated > 0, "evaluated");
    CHECK(evaluated == 1);
    OPTPIPE_EXPECT((++evaluated, true), "evaluated");
    CHECK(evaluated == 2);
    CHECK(half(evaluated) == 1);
}

TEST_CASE("where contracts throw, the error says what and where" * doctest::skip(!optpipe::contracts_throw())) {
    try {
        optpipe::detail::contract_violated("half: only of even numbers", "half.hpp", 7);
    } catch (const optpipe::contract_error& e) {
        CHECK(std::string{e.what()} == "contract violated at half.hpp:7: half: only of even numbers");
    }
    CHECK_THROWS_AS(static_cast<void>(half(3)), optpipe::contract_error);
}

TEST_CASE("a contract is one statement") {
    bool reached = false;
    if (reached)
        OPTPIPE_EXPECT(reached, "not reached");
    else
        reached = true;
    CHECK(reached);
}

TEST_CASE("a bounded vector may be filled to its capacity") {
    optpipe::bounded_vector<int, 3> numbers;
    for (int i = 0; i < 3; ++i)
        numbers.push_back(i);
    CHECK(numbers.size() == 3);
    CHECK(numbers.back() == 2);
    numbers.clear();
    CHECK(numbers.empty());
    numbers.resize(3);
    CHECK(numbers.back() == 0);
}
