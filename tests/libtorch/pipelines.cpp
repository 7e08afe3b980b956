// Plans of all storage options, run by LibTorch on threads, against the model in one piece.
#include "execution/mixed_storage.hpp"
#include "execution/quick_adaptive.hpp"
#include "libtorch/small_model.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/libtorch/measure.hpp"
#include "optpipe/execution/libtorch/pipeline.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/v_half.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// Measured sizes, and times that don't depend on this machine; every kind of storage option.
problem problem_of(const libtorch::training& model, const any_graph& shape, bool offloads_parts) {
    auto p = libtorch::measured_problem(model, shape, {.repeats = 1});
    const duration one{1.0};
    for (const stage s : shape.all_stages()) {
        auto costs = p.costs[s];
        costs.forward = costs.backward_input = costs.backward_weight = one;
        auto options = p.storage[s];
        for (auto& each : options) {
            if (each.offloads()) each.transfer = transfer_times{one, one};
            if (each.recomputes()) each.recompute = one;
        }
        const auto held = options[2].held;
        CHECK(std::string{options[2].name.view()} == "recompute");
        options.push_back({"inside", held, {}, one, {}, {}});
        options.push_back({"offload and recompute", held, one, {}, held, transfer_times{one, one}});
        if (offloads_parts)
            options.push_back({"half", costs.activation, {}, {}, 0.5 * costs.activation, transfer_times{one, one}});
        p.set_stage(s, costs, options);
    }
    return p;
}

/// The operations of a rank's compute lane, or of one kind of transfer, in the order of their starts.
std::vector<std::string> names_in_order(const std::vector<timed_operation>& of_rank, bool computes,
                                        operation_kind kind) {
    std::vector<std::string> names;
    for (const auto& each : of_rank)
        if (computes ? !is_transfer(each.op.kind) : each.op.kind == kind) names.push_back(to_string(each.op));
    return names;
}

void check_order(const schedule& measured, const schedule& planned) {
    const auto done = operations_by_rank(measured);
    const auto wanted = operations_by_rank(planned);
    for (const rank r : planned.graph.all_ranks()) {
        CAPTURE(r.value());
        CHECK(names_in_order(done[r], true, {}) == names_in_order(wanted[r], true, {}));
        for (const auto kind : {operation_kind::offload, operation_kind::reload})
            CHECK(names_in_order(done[r], false, kind) == names_in_order(wanted[r], false, kind));
    }
}

bool is_within(const libtorch::planned_bytes& bytes) {
    return static_cast<double>(bytes.measured) <= 1.02 * static_cast<double>(bytes.planned);
}

struct counts {
    std::size_t offloads = 0, recomputes = 0, full_backwards = 0, halves = 0;
};

void run_plan(const problem& p, const schedule& plan, const libtorch::training& model, bool offloads_parts) {
    const auto programs = lower(p, plan, libtorch::lowering_defaults());
    REQUIRE(programs.has_value());
    libtorch::pipeline pipeline{p, *programs, model};
    const auto sums = accumulation_order_of(plan);
    for (std::size_t step = 0; step < 2; ++step) {
        small_model::forget_gradients(model);
        const auto expected = small_model::gradients_in_one_piece(model, sums, step);
        const auto result = pipeline.step();
        CHECK(result.loss > 0.0);
        check_order(result.measured, plan);
        for (std::size_t s = 0; s < expected.size(); ++s)
            for (std::size_t i = 0; i < expected[s].size(); ++i)
                CHECK(at::equal(model.stages[s].parameters[i].grad(), expected[s][i]));
    }
    const auto report = pipeline.report();
    for (const auto& each : report.ranks) {
        CHECK(is_within(each.device));
        CHECK(each.device.measured > 0);
        // Of a stash, whole tensors are offloaded: the share is rounded up.
        if (!offloads_parts) CHECK(is_within(each.host));
    }
    for (const auto& each : report.stashes) {
        CAPTURE(each.option);
        CHECK(each.after_forward.measured == each.after_forward.planned);
        CHECK(is_within(each.after_recompute));
        CHECK(is_within(each.after_input_gradient));
    }
}

template <class Builder>
counts check_problem(const any_graph& shape, const Builder& build, std::uint64_t seed, bool offloads_parts) {
    CAPTURE(seed);
    at::set_num_threads(1);
    const auto model = small_model::training_of(shape.stages());
    const auto p = problem_of(model, shape, offloads_parts);
    const auto plain = build_schedule(mixed_storage::without_options(p), build);
    REQUIRE(plain.has_value());
    random_numbers random{seed};
    const auto [tight, plan] = mixed_storage::make(p, *plain, random);
    run_plan(tight, plan, model, offloads_parts);
    const auto measures = measure(tight, plan);
    counts found{measures.offloads, measures.recomputes, 0, 0};
    for (const auto& each : plan.operations) {
        found.full_backwards += each.op.kind == operation_kind::backward;
        found.halves += each.op.kind == operation_kind::backward_weight;
    }
    return found;
}

TEST_CASE("plans of all storage options run with the gradients, the memory and the order that were planned") {
    std::vector<counts> all;
    const auto run = [&](const auto& shape, const auto& build, bool offloads_parts) {
        all.push_back(check_problem(to_any_graph(shape), build, 7000 + all.size(), offloads_parts));
    };
    run(graph<2, 4>{}, gpipe, false);
    run(graph<2, 8>{}, zero_bubble_h1, true);
    run(graph<4, 8>{}, one_forward_one_backward, false);
    run(graph<4, 8>{}, quick_adaptive, true);
    run(graph<2, 4, placement::loop<2>>{}, interleaved, false);
    run(graph<2, 6, placement::loop<2>>{}, quick_adaptive, true);
    run(graph<2, 6, placement::v>{}, zero_bubble_v, false);
    run(graph<4, 8, placement::v>{}, v_half, true);
    counts sum;
    for (const auto& each : all) {
        CHECK(each.offloads > 0);
        CHECK(each.recomputes > 0);
        sum.full_backwards += each.full_backwards;
        sum.halves += each.halves;
    }
    CHECK(sum.full_backwards > 0);
    CHECK(sum.halves > 0);
}

TEST_CASE("weights that a stage uses twice have the gradients of the model in one piece") {
    at::set_num_threads(1);
    const auto model = small_model::training_of(2, true);
    const auto shape = to_any_graph(graph<2, 4>{});
    const auto p = problem_of(model, shape, false);
    const auto plan = build_schedule(mixed_storage::without_options(p), zero_bubble_h1);
    REQUIRE(plan.has_value());
    const auto programs = lower(mixed_storage::without_options(p), *plan, libtorch::lowering_defaults());
    REQUIRE(programs.has_value());
    const auto expected = small_model::gradients_in_one_piece(model, accumulation_order_of(*plan), 0);
    const auto keeping = mixed_storage::without_options(p);
    libtorch::pipeline pipeline{keeping, *programs, model};
    static_cast<void>(pipeline.step());
    for (std::size_t s = 0; s < expected.size(); ++s)
        for (std::size_t i = 0; i < expected[s].size(); ++i)
            CHECK(at::allclose(model.stages[s].parameters[i].grad(), expected[s][i], 1e-12, 1e-15));
}

TEST_CASE("a model without split backwards is planned and run with full backwards alone") {
    at::set_num_threads(1);
    auto model = small_model::training_of(2);
    model.splits_backward = false;
    const auto p = libtorch::measured_problem(model, to_any_graph(graph<2, 4>{}), {.repeats = 1});
    CHECK(validate(p).empty());
    CHECK(!p.split_backward);
    run_plan(p, *build_schedule(p, one_forward_one_backward), model, false);

    auto splitting = p;
    splitting.split_backward = true;
    const auto programs = *lower(splitting, *build_schedule(splitting, zero_bubble_h1), libtorch::lowering_defaults());
    CHECK_THROWS_WITH((libtorch::pipeline{splitting, programs, model}),
                      "a plan with split backwards for a model without: plan with problem::split_backward = false");
}

/// Names of the ranges that PyTorch's profiler would see.
struct seen_ranges {
    std::mutex mutex;
    std::multiset<std::string> names;
};
seen_ranges* ranges = nullptr; // a callback of LibTorch has no state

TEST_CASE("each operation is a range of PyTorch's profiler") {
    const auto model = small_model::training_of(2);
    const auto p = problem_of(model, to_any_graph(graph<2, 3>{}), false);
    random_numbers random{7100};
    const auto [tight, plan] =
        mixed_storage::make(p, *build_schedule(mixed_storage::without_options(p), gpipe), random);
    libtorch::pipeline pipeline{tight, *lower(tight, plan, libtorch::lowering_defaults()), model};
    seen_ranges seen;
    ranges = &seen;
    const auto handle = at::addGlobalCallback(
        at::RecordFunctionCallback{[](const at::RecordFunction& range) -> std::unique_ptr<at::ObserverContext> {
            const std::scoped_lock lock{ranges->mutex};
            ranges->names.insert(range.name());
            return nullptr;
        }}.scopes({at::RecordScope::USER_SCOPE}));
    static_cast<void>(pipeline.step());
    at::removeCallback(handle);
    std::multiset<std::string> expected;
    for (const auto& each : plan.operations)
        expected.insert("PP:" + to_string(each.op));
    CHECK(seen.names == expected);
}

TEST_CASE("models and programs that don't fit each other are refused, and errors of a stage end the step") {
    auto model = small_model::training_of(2);
    const auto p = mixed_storage::without_options(problem_of(model, to_any_graph(graph<2, 4>{}), false));
    const auto programs = *lower(p, *build_schedule(p, gpipe), libtorch::lowering_defaults());
    const auto other = small_model::training_of(3);
    CHECK_THROWS_WITH((libtorch::pipeline{p, programs, other}), "a model of 3 stages in a pipeline of 2");

    libtorch::pipeline pipeline{p, programs, model, {.patience = std::chrono::seconds{20}}};
    model.loss = [](const libtorch::tensors&, std::size_t, microbatch) -> at::Tensor {
        throw error{"this loss isn't there"};
    };
    CHECK_THROWS_WITH(static_cast<void>(pipeline.step()), doctest::Contains("this loss isn't there"));
}

} // namespace
