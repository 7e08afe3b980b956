#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/testing.hpp"

#include <doctest/doctest.h>

#include <string>

namespace {

using namespace optpipe;
using optpipe::testing::check_builder;

/// GPipe, spoilt in one way.
template <class Spoil> struct spoilt {
    static constexpr std::string_view name = "spoilt";
    Spoil spoil;

    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        auto built = gpipe(p.graph);
        spoil(built.operations);
        return built;
    }
};
template <class Spoil> spoilt(Spoil) -> spoilt<Spoil>;

constexpr auto leave_alone = [](auto&) {};
constexpr auto drop_last = [](auto& operations) { operations.resize(operations.size() - 1); };
constexpr auto swap_ends = [](auto& operations) { std::swap(operations[0], operations[operations.size() - 1]); };

struct never_applies {
    static constexpr std::string_view name = "never";
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>&) const {
        return refusal{};
    }
};

/// Answers differently from call to call.
struct moody {
    static constexpr std::string_view name = "moody";
    bool* mood;
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        *mood = !*mood;
        if (*mood) return refusal{};
        return gpipe(p);
    }
};

bool mentions(const std::vector<violation>& found, const std::string& words) {
    for (const auto& v : found)
        if (v.text().find(words) != std::string::npos) return true;
    return false;
}

} // namespace

TEST_CASE("every builder of the library keeps its promises") {
    for_each_builder([](const auto& builder) {
        CAPTURE(builder.name);
        const auto found = check_builder(builder, {.problems = 12});
        CHECK(found.empty());
        if (!found.empty()) MESSAGE(found.front().text());
    });
}

TEST_CASE("a builder that breaks one is found out") {
    CHECK(check_builder(spoilt{leave_alone}).empty());
    CHECK(mentions(check_builder(spoilt{drop_last}), "operations are missing"));
    CHECK(mentions(check_builder(spoilt{swap_ends}), "comes before what it needs"));
    CHECK(mentions(check_builder(never_applies{}), "applies to none"));
    bool mood = false;
    CHECK(mentions(check_builder(moody{&mood}), "two answers"));
}
