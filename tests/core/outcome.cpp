#include "optpipe/core/outcome.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

using optpipe::describe;
using optpipe::outcome;
using optpipe::refusal;
using optpipe::refusal_error;
using optpipe::refusal_reason;

TEST_CASE("an outcome is a value, or why there is none") {
    const outcome<std::string> answer{std::string{"42"}};
    CHECK(answer.has_value());
    CHECK(static_cast<bool>(answer));
    CHECK(*answer == "42");
    CHECK(answer->size() == 2);

    const outcome<std::string> none{refusal{.sentence = "needs an even number of ranks"}};
    CHECK_FALSE(none.has_value());
    CHECK_FALSE(static_cast<bool>(none));
    CHECK(none.why().reason == refusal_reason::does_not_apply);
    CHECK(none.why().sentence == "needs an even number of ranks");
    CHECK_FALSE(outcome<int>{}.has_value());
}

TEST_CASE("the value of an outcome can be moved out") {
    outcome<std::vector<int>> numbers{std::vector<int>{1, 2, 3}};
    const auto* before = numbers->data();
    const std::vector<int> taken = *std::move(numbers);
    CHECK(taken.data() == before);
}

TEST_CASE("a refusal for memory says which rank needs how much") {
    refusal why{refusal_reason::over_memory, "too many stashes", optpipe::rank{3}, optpipe::memory_size{8.5},
                optpipe::memory_size{4}};
    CHECK(describe(why) == "too many stashes: rank 3 needs 8.5 of memory, its limit is 4");
    why.sentence = "";
    CHECK(describe(why) == "rank 3 needs 8.5 of memory, its limit is 4");
    why.reason = refusal_reason::over_host_memory;
    CHECK(describe(why) == "rank 3 needs 8.5 of host memory, its limit is 4");
}

TEST_CASE("a refusal owns its sentence, numbers and all") {
    const auto make = [](std::size_t most) {
        refusal why;
        why.sentence = "takes at most " + std::to_string(most) + " microbatches, not " + std::string(300, '9');
        return why;
    };
    const auto why = make(17);
    CHECK(why.sentence.view().starts_with("takes at most 17 microbatches, not 999"));
    CHECK(why.sentence.view().ends_with("999..."));
    CHECK(why.sentence.size() == 200);

    // Also in a constant, although the objects that it is made from no longer exist.
    static constexpr refusal constant{.sentence = {"takes ", 3U, " to ", -12, " of ", std::size_t{0}, " ranks"}};
    static_assert(constant.sentence == "takes 3 to -12 of 0 ranks" && !constant.sentence.empty());
    CHECK(describe(constant) == "takes 3 to -12 of 0 ranks");
}

TEST_CASE("any other refusal is its sentence") {
    refusal why{.reason = refusal_reason::does_not_apply, .sentence = "is for the v placement"};
    CHECK(describe(why) == "is for the v placement");
    why.reason = refusal_reason::not_executable;
    CHECK(describe(why) == "is for the v placement");
}

TEST_CASE("where there is no value, asking for it throws why") {
    CHECK(outcome<int>{42}.value() == 42);
    const outcome<int> none{refusal{.reason = refusal_reason::does_not_apply, .sentence = "is for the v placement"}};
    CHECK_THROWS_WITH_AS(static_cast<void>(none.value()), "is for the v placement", optpipe::error);
    try {
        static_cast<void>(none.value());
    } catch (const refusal_error& e) {
        CHECK(e.why().reason == refusal_reason::does_not_apply);
    }
    static_assert(outcome<int>{42}.value() == 42);
}
