#include "optpipe/pipeline/microbatches.hpp"

#include "optpipe/pipeline/make_problem.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

namespace {

using namespace optpipe;

microbatch_list<> with_sequences(const std::vector<int>& numbers) {
    microbatch_list<> list;
    list.set_sequences(numbers);
    return list;
}

} // namespace

TEST_CASE("microbatches are equal unless told otherwise") {
    microbatch_list<> list;
    CHECK(list.are_equal());
    CHECK(list.factors(stage{3}, microbatch{2}) == usual_factors);
    CHECK_FALSE(list.slice_before(microbatch{1}));
    CHECK_FALSE(list.slice_after(microbatch{0}));
    list.set_factors(std::vector<cost_factors>(3));
    CHECK(list == microbatch_list<>{});
    list.set_factors_by_stage(std::vector<cost_factors>(6), 3);
    CHECK(list == microbatch_list<>{});
    list.set_sequences(std::vector{5, 2, 9});
    CHECK(list == microbatch_list<>{});
}

TEST_CASE("factors are of a microbatch, or of a stage and microbatch") {
    std::vector<cost_factors> factors(2);
    factors[1] = {2, 3, 4, 5, 6};
    microbatch_list<> list;
    list.set_factors(factors);
    CHECK_FALSE(list.are_equal());
    CHECK(list.has_factors());
    CHECK_FALSE(list.is_by_stage());
    CHECK(list.factors(stage{7}, microbatch{1}) == factors[1]);
    CHECK(list.factors(stage{7}, microbatch{0}) == usual_factors);
    factors.resize(6);
    list.set_factors_by_stage(factors, 2);
    CHECK(list.is_by_stage());
    CHECK(list.factors(stage{0}, microbatch{1}) == factors[1]);
    CHECK(list.factors(stage{1}, microbatch{1}) == usual_factors);
    list.set_factors(std::vector<cost_factors>(2));
    CHECK(list == microbatch_list<>{});
}

TEST_CASE("microbatches with one number are slices of one sequence") {
    const auto list = with_sequences({4, 4, 4, 1, 2, 2});
    CHECK_FALSE(list.are_equal());
    CHECK(list.has_slices());
    CHECK_FALSE(list.has_factors());
    CHECK_FALSE(list.slice_before(microbatch{0}));
    CHECK(list.slice_after(microbatch{0}) == microbatch{1});
    CHECK(list.slice_before(microbatch{2}) == microbatch{1});
    CHECK_FALSE(list.slice_after(microbatch{2}));
    CHECK(list.is_slice(microbatch{2}));
    CHECK_FALSE(list.is_slice(microbatch{3}));
    CHECK(list.slice_after(microbatch{4}) == microbatch{5});
    CHECK_FALSE(list.slice_after(microbatch{5}));
    CHECK(list == with_sequences({0, 0, 0, 8, 9, 9}));
    CHECK_FALSE(list == with_sequences({0, 0, 1, 8, 9, 9}));
}

TEST_CASE("slices that don't follow one another, and stages that there aren't, break the contract") {
    if (!contracts_throw()) return;
    CHECK_THROWS_AS(with_sequences({0, 1, 0, 1}), contract_error);
    CHECK_THROWS_AS(with_sequences({3, 3, 5, 4, 3}), contract_error);
    CHECK_NOTHROW(with_sequences({3, 5, 5, 4, 4}));
    const std::vector<double> twice(8, 2.0);
    CHECK_THROWS_AS(static_cast<void>(scaled_stages(std::array{stage{4}}, twice, 4)), contract_error);
    CHECK(scaled_stages(std::array{stage{3}}, twice, 4).factors(stage{3}, microbatch{7}) == equal_factors(2.0));
}

TEST_CASE("what a microbatch costs is the stage's costs times its factors") {
    const graph<2, 2> g;
    auto p =
        to_problem(make_problem(g, uniform_memory{stage_costs{duration{1}, duration{2}, duration{3}, memory_size{4}}}));
    p.costs[stage{1}].kv = memory_size{1};
    std::vector<cost_factors> factors{{}, {2, 3, 4, 5, 6}};
    p.microbatches.set_factors(factors);
    const auto c = p.cost(stage{1}, microbatch{1});
    CHECK(c.forward == duration{2});
    CHECK(c.backward_input == duration{6});
    CHECK(c.backward_weight == duration{12});
    CHECK(c.activation == memory_size{20});
    CHECK(c.weight_stash == memory_size{10});
    CHECK(c.kv == memory_size{5});
    CHECK(p.cost(stage{1}, microbatch{0}) == p.costs[stage{1}]);
    CHECK(p.mean_work(stage{0}) == duration{13}); // of 6 and 20
    CHECK(p.load(rank{0}) == duration{26});
    CHECK(p.busiest_work() == duration{13});
}
