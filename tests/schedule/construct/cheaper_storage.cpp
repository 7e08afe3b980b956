#include "optpipe/schedule/construct/cheaper_storage.hpp"

#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/value.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace {

using namespace optpipe;

constexpr std::size_t ample = 1'000'000;
constexpr oracle::problem_ranges with_lists{.storage_percent = 100};

/// Two ranks and three microbatches: 1F1B holds two stashes on the first rank.
problem two_ranks(double limit) {
    stage_costs c;
    c.forward = c.backward_input = c.backward_weight = duration{10.0};
    c.activation = memory_size{1.0};
    problem p{to_any_graph(graph<2, 3>{}), per_stage<stage_costs>(2, c)};
    const transfer_times times{duration{1.0}, duration{1.0}};
    for (auto& list : p.storage) {
        list.clear();
        list.push_back({"offload", memory_size{1.0}, {}, {}, memory_size{1.0}, times});
        list.push_back({"ahead", memory_size{0.25}, duration{3.0}, {}, {}, {}});
        list.push_back(keep_stash(c));
    }
    for (auto& each : p.memory_limit)
        each = memory_size{limit};
    return p;
}
schedule with_option(const problem& p, const char* name) {
    const auto options = *find_common_option(p, name);
    const auto classic = uniform_problem(p, options);
    return *time_order(p, with_storage(p, options, one_forward_one_backward(p.graph)));
}

struct storage_work {
    duration extra{};
    duration transfers{};
};
storage_work storage_work_of(const problem& p, const schedule& s) {
    storage_work all;
    for (const auto& timed : s.operations) {
        if (is_transfer(timed.op.kind) || timed.op.kind == operation_kind::recompute)
            (is_transfer(timed.op.kind) ? all.transfers : all.extra) += timed.end - timed.start;
        if (is_gradient(timed.op.kind)) all.extra += storage_of(p, timed.op).backward_extra;
    }
    return all;
}

} // namespace

TEST_CASE("in ample memory nothing is recomputed") {
    const auto p = two_ranks(3.0);
    const auto before = with_option(p, "ahead");
    const auto after = with_cheaper_storage(p, before, ample);
    CHECK(is_valid(p, after));
    CHECK(objective_of(p, after) < objective_of(p, before));
    CHECK(measure(p, before).recomputes == 6);
    CHECK(measure(p, after).recomputes == 0);
    CHECK(measure(p, after).offloads == 0);
}

TEST_CASE("what the memory needs stays") {
    const auto p = two_ranks(1.25);
    const auto after = with_cheaper_storage(p, with_option(p, "ahead"), ample);
    CHECK(is_valid(p, after));
    CHECK(measure(p, after).recomputes == 2); // on the first rank all except the last microbatch
    CHECK(measure(p, after).offloads == 0);
}

TEST_CASE("the cheapest of several options stays where a dearer one would be as quick") {
    auto p = two_ranks(3.0);
    auto& slow = p.costs[stage{1}]; // the first rank has time to spare
    slow.forward = slow.backward_input = slow.backward_weight = duration{100.0};
    for (auto& list : p.storage)
        list = {keep_stash(p.costs[stage{0}]),
                {"little", memory_size{0.5}, duration{1.0}, {}, {}, {}},
                {"much", memory_size{0.25}, duration{3.0}, {}, {}, {}}};
    const auto before = with_option(p, "much");
    const auto after = with_cheaper_storage(p, before, ample);
    CHECK(is_valid(p, after));
    CHECK(measure(p, before).recomputes == 6);
    CHECK(measure(p, after).recomputes == 0);
}

TEST_CASE("without storage options, too") {
    auto p = two_ranks(3.0);
    for (const stage s : p.graph.all_stages()) {
        auto both = p.costs[s];
        both.transfer = transfer_times{duration{1.0}, duration{1.0}};
        p.set_stage(s, both);
    }
    order moved{p.graph, {}};
    for (const auto& op : one_forward_one_backward(p.graph).operations) {
        if (is_gradient(op.kind)) moved.operations.push_back(sibling(op, operation_kind::reload));
        moved.operations.push_back(op);
        if (op.kind == operation_kind::forward) moved.operations.push_back(sibling(op, operation_kind::offload));
    }
    const auto before = *time_order(p, moved);
    REQUIRE(measure(p, before).offloads == 6);
    const auto after = with_cheaper_storage(p, before, ample);
    CHECK(is_valid(p, after));
    CHECK(measure(p, after).offloads == 0);
}

TEST_CASE("in place: what fits beside the other stashes stays, and no operation starts later") {
    for (const double limit : {3.0, 1.25, 1.0}) {
        CAPTURE(limit);
        auto p = two_ranks(3.0);
        const auto before = with_option(p, "offload");
        for (auto& each : p.memory_limit)
            each = memory_size{std::max(limit, 1.0)};
        if (!is_valid(p, before)) continue;
        const auto after = with_cheaper_storage_in_place(p, before);
        CHECK(is_valid(p, after));
        CHECK(objective_of(p, after) <= objective_of(p, before));
        CHECK(measure(p, after).offloads == (limit == 3.0 ? 0 : measure(p, before).offloads));
    }
}

TEST_CASE("in place, random schedules: valid, no later, and never more of anything") {
    std::uint64_t reduced = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(1000); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto drawn =
            random.chance(50) ? oracle::make_random_problem(random, with_lists) : oracle::make_random_problem(random);
        const auto& p = drawn.problem;
        const auto before = oracle::random_schedule(random, drawn);
        const auto after = with_cheaper_storage_in_place(p, before);
        const auto judged = oracle::judge(p, after);
        CHECK_MESSAGE(judged.valid(), (judged.valid() ? "" : judged.broken.front()));
        CHECK_FALSE(is_better(value_of(p, before), value_of(p, after)));
        const auto most = storage_work_of(p, before);
        const auto left = storage_work_of(p, after);
        CHECK(left.extra.value() <= doctest::Approx(most.extra.value()));
        CHECK(left.transfers.value() <= doctest::Approx(most.transfers.value()));
        CHECK(storage_time_of(p, after).value() == doctest::Approx((left.extra + left.transfers).value()));
        const auto again = with_cheaper_storage_in_place(p, after);
        CHECK(objective_of(p, again) <= objective_of(p, after));
        reduced += left.extra < most.extra || left.transfers < most.transfers ? 1 : 0;
    }
    CHECK(reduced >= oracle::random_cases(150));
}

TEST_CASE("without effort it stays as it is") {
    const auto p = two_ranks(3.0);
    const auto before = with_option(p, "ahead");
    CHECK(with_cheaper_storage(p, before, 0).operations == before.operations);
}

TEST_CASE("random schedules: valid, no later, and never more of anything") {
    std::uint64_t reduced = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(1000); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto drawn =
            random.chance(50) ? oracle::make_random_problem(random, with_lists) : oracle::make_random_problem(random);
        const auto& p = drawn.problem;
        const auto before = oracle::random_schedule(random, drawn);
        const auto after = with_cheaper_storage(p, before, ample);
        const auto judged = oracle::judge(p, after);
        CHECK_MESSAGE(judged.valid(), (judged.valid() ? "" : judged.broken.front()));
        CHECK(objective_of(p, after) <= objective_of(p, before));
        const auto most = storage_work_of(p, before);
        const auto left = storage_work_of(p, after);
        CHECK(left.extra.value() <= doctest::Approx(most.extra.value()));
        CHECK(left.transfers.value() <= doctest::Approx(most.transfers.value()));
        reduced += left.extra < most.extra || left.transfers < most.transfers ? 1 : 0;
    }
    CHECK(reduced >= oracle::random_cases(200));
}
