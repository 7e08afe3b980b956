#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/testing.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using optpipe::testing::check_builder;

/// GPipe with one fault.
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

/// Gives alternating answers.
struct moody {
    static constexpr std::string_view name = "moody";
    bool* mood;
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        *mood = !*mood;
        if (*mood) return refusal{};
        return gpipe(p);
    }
};

/// Applies to only one problem of 200.
struct aloof {
    static constexpr std::string_view name = "aloof";
    std::size_t* calls;
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if ((*calls)++ > 1) return refusal{}; // the first problem is built twice
        return gpipe(p);
    }
};

/// Wrong if a rank holds two stages, offloading is possible, and there are three microbatches or more.
struct wrong_on_some {
    static constexpr std::string_view name = "wrong on some";
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        auto built = gpipe(p.graph);
        bool can_offload = false;
        for (const auto s : p.graph.all_stages())
            can_offload = can_offload || p.whole_offload(s);
        if (can_offload && p.graph.stages() > p.graph.ranks() && p.graph.microbatches() > 2)
            std::swap(built.operations[0], built.operations[p.graph.microbatches()]);
        return built;
    }
};
struct throws_on_some {
    static constexpr std::string_view name = "throws on some";
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (p.graph.microbatches() > 1) throw error{"no more than one, please"};
        return gpipe(p.graph);
    }
};

struct throws_a_number {
    static constexpr std::string_view name = "throws a number";
    template <pipeline_graph Graph> outcome<basic_order<Graph>> operator()(const basic_problem<Graph>&) const {
        throw 1;
    }
};

bool mentions(const optpipe::testing::builder_report& found, const std::string& words) {
    return found.text().find(words) != std::string::npos;
}

/// Whether two problems are equal bit by bit, except for the names.
bool are_equal(const problem& a, const problem& b) {
    if (!(a.graph == b.graph && a.costs == b.costs && a.split_backward == b.split_backward)) return false;
    for (const rank r : a.graph.all_ranks())
        for (const rank other : a.graph.all_ranks()) {
            if (a.p2p(r, other) != b.p2p(r, other)) return false;
            if ((a.transfer.link[r] == a.transfer.link[other]) != (b.transfer.link[r] == b.transfer.link[other]))
                return false;
        }
    for (const stage s : a.graph.all_stages())
        if (!std::equal(a.storage[s].begin(), a.storage[s].end(), b.storage[s].begin(), b.storage[s].end()))
            return false;
    return a.memory_limit == b.memory_limit && a.host_memory_limit == b.host_memory_limit &&
           a.transfer.engines == b.transfer.engines && a.transfer.duplex == b.transfer.duplex &&
           a.objective == b.objective;
}

} // namespace

TEST_CASE("every builder of the library keeps its promises") {
    for_each_quick_builder([](const auto& builder) {
        CAPTURE(builder.name);
        const auto found = check_builder(builder, {.problems = 12});
        CHECK_MESSAGE(found.passed(), found.text());
    });
}

TEST_CASE("a builder that breaks one is found out") {
    CHECK(check_builder(spoilt{leave_alone}).passed());
    CHECK(mentions(check_builder(spoilt{drop_last}), "1 operation is missing: 0B0 (or 0I0 and 0W0) on rank 0"));
    CHECK(mentions(check_builder(spoilt{swap_ends}), "0B0 (rank 0) comes before 0F0 (rank 0), which it waits for"));
    CHECK(mentions(check_builder(throws_a_number{}), "throws: an exception that isn't a std::exception"));
    bool mood = false;
    CHECK(mentions(check_builder(moody{&mood}), "two answers"));
}

TEST_CASE("what a builder can't be judged by doesn't pass") {
    const auto never = check_builder(never_applies{});
    CHECK_FALSE(never.passed());
    CHECK(never.failures.empty());
    CHECK(never.text() == "applies to 0 of 200 problems, which tells little: `least_share` asks for 5 %");
    std::size_t calls = 0;
    const auto once = check_builder(aloof{&calls});
    CHECK_FALSE(once.passed());
    CHECK(once.text() == "applies to 1 of 200 problems, which tells little: `least_share` asks for 5 %");
    CHECK_FALSE(check_builder(never_applies{}, {.least_share = 0.0}).passed());
    calls = 0;
    CHECK(check_builder(aloof{&calls}, {.least_share = 0.005}).passed());
}

TEST_CASE("a failure is shown on the smallest problem, and counted") {
    const auto report = check_builder(wrong_on_some{});
    REQUIRE(report.failures.size() == 1);
    CHECK(report.applied == 200);
    const auto& failure = report.failures[0];
    CHECK(failure.alike > 5);
    CHECK(failure.text() ==
          "its order can't be executed: 1F0 (rank 0) comes before 0F0 (rank 0), which it waits for (position 0)\n" +
              std::to_string(failure.alike) + " problems fail like that, the first with seed " +
              std::to_string(failure.seed) + R"(; the smallest found:
per_stage<rank> placed(2);
per_stage<stage_costs> costs(2, {duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}, {}});
costs[stage{1}] = {duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}, transfer_times{duration{1}, duration{1}}};
problem p{any_graph{1, 3, placement::map<>{placed}}, costs};
which gets the order 1F0 0F1 0F2 0F0 1F1 1F2 1B0 1B1 1B2 0B0 0B1 0B2
)");
    // The seed leads to a problem that fails.
    random_numbers random{failure.seed};
    const auto first = optpipe::testing::make_random_problem(random, optpipe::testing::builder_trials{}.ranges).problem;
    CHECK_FALSE(simulate(first, *wrong_on_some{}(first)).has_value());
    CHECK(mentions(check_builder(throws_on_some{}), "throws: no more than one, please\n"));
    CHECK(mentions(check_builder(throws_on_some{}), "problem p{any_graph{1, 2, placement::map<>{placed}}, costs};\n"));
}

TEST_CASE("a problem as code is that problem") {
    // The code, pasted.
    per_stage<rank> placed(3);
    placed[stage{1}] = rank{1};
    per_stage<stage_costs> costs(3, {duration{1}, duration{2.3}, duration{1}, memory_size{1}, memory_size{0.1}, {}});
    costs[stage{1}] = {duration{1},    duration{0.1},    duration{1},
                       memory_size{1}, memory_size{0.5}, transfer_times{duration{1}, duration{0}}};
    problem p{any_graph{2, 4, placement::map<>{placed}}, costs};
    p.storage[stage{2}].clear();
    p.storage[stage{2}].push_back({"full", memory_size{0.25}, duration{1}, duration{0}, memory_size{0.25},
                                   transfer_times{duration{1}, duration{2}}});
    p.p2p = hop_times<>{2, {duration{0}, duration{0.5}, duration{1}, duration{0}}};
    p.split_backward = false;
    p.memory_limit[rank{1}] = memory_size{2.5};
    p.host_memory_limit[rank{0}] = memory_size{0};
    p.transfer.engines = 2;
    p.transfer.duplex = duplex_kind::half;
    p.transfer.share_link(rank{0}, rank{1});
    p.objective = objective_kind::span;
    CHECK(optpipe::testing::code_of(p) == R"(per_stage<rank> placed(3);
placed[stage{1}] = rank{1};
per_stage<stage_costs> costs(3, {duration{1}, duration{2.3}, duration{1}, memory_size{1}, memory_size{0.1}, {}});
costs[stage{1}] = {duration{1}, duration{0.1}, duration{1}, memory_size{1}, memory_size{0.5}, transfer_times{duration{1}, duration{0}}};
problem p{any_graph{2, 4, placement::map<>{placed}}, costs};
p.storage[stage{2}].clear();
p.storage[stage{2}].push_back({"full", memory_size{0.25}, duration{1}, duration{0}, memory_size{0.25}, transfer_times{duration{1}, duration{2}}});
p.p2p = hop_times<>{2, {duration{0}, duration{0.5}, duration{1}, duration{0}}};
p.split_backward = false;
p.memory_limit[rank{1}] = memory_size{2.5};
p.host_memory_limit[rank{0}] = memory_size{0};
p.transfer.engines = 2;
p.transfer.duplex = duplex_kind::half;
p.transfer.share_link(rank{0}, rank{1});
p.objective = objective_kind::span;
)");
}

TEST_CASE("shrinking keeps what fails, and ends at what can't be smaller") {
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p =
            optpipe::testing::make_random_problem(random, {.ranks = 4, .stages = 8, .cells = 32, .storage_percent = 40})
                .problem;
        const auto anything = optpipe::testing::shrink_problem(p, [](const problem&) { return true; });
        CHECK(optpipe::testing::code_of(anything) ==
              "per_stage<rank> placed(1);\n"
              "per_stage<stage_costs> costs(1, {duration{1}, duration{1}, duration{1}, memory_size{1}, "
              "memory_size{0.5}, {}});\n"
              "problem p{any_graph{1, 1, placement::map<>{placed}}, costs};\n");
        CHECK(are_equal(optpipe::testing::shrink_problem(p, [](const problem&) { return false; }), p));
        const auto lasting = [](const problem& q) {
            return q.graph.ranks() > 1 && q.objective == objective_kind::span;
        };
        if (!lasting(p)) continue;
        const auto small = optpipe::testing::shrink_problem(p, lasting);
        CHECK(lasting(small));
        CHECK((small.graph.ranks() == 2 && small.graph.stages() == 2 && small.graph.microbatches() == 1));
        CHECK(validate(small).empty());
    }
}

TEST_CASE("shrinking keeps the storage option that fails") {
    int tried = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, {.storage_percent = 100}).problem;
        const auto recomputes = [](const problem& q) {
            for (const auto& list : q.storage)
                for (const auto& option : list)
                    if (option.recomputes()) return true;
            return false;
        };
        if (!recomputes(p)) continue;
        const auto small = optpipe::testing::shrink_problem(p, recomputes);
        CHECK(recomputes(small));
        CHECK((small.graph.stages() == 1 && small.graph.microbatches() == 1 && small.storage[stage{0}].size() == 1));
        CHECK(validate(small).empty());
        ++tried;
    }
    CHECK(tried > 30);
}
