// Plans of all storage options, run by LibTorch on threads, against the model in one piece.
#include "libtorch/small_pipelines.hpp"
#include "optpipe/execution/libtorch/measure.hpp"
#include "optpipe/execution/libtorch/pipeline.hpp"
#include "optpipe/execution/libtorch/pipeline_rank.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/program/lower.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

using namespace optpipe;

namespace {

using namespace small_pipelines;

struct counts {
    std::size_t full_backwards = 0, halves = 0;
};

void run_plan(const case_of_all_options& of, std::size_t message_bytes = 0) {
    const auto& [model, p, plan, offloads_parts] = of;
    const auto programs = lower(p, plan, libtorch::lowering_defaults(message_bytes));
    REQUIRE(programs.has_value());
    libtorch::pipeline pipeline{p, *programs, model};
    const auto sums = accumulation_order_of(plan);
    for (std::size_t step = 0; step < 2; ++step) {
        small_model::forget_gradients(model);
        const auto expected = small_model::gradients_in_one_piece(model, sums, step);
        const auto result = pipeline.step();
        CHECK(result.loss > 0.0);
        for (const rank r : p.graph.all_ranks())
            check_order(result.measured, plan, r);
        for (const stage s : p.graph.all_stages())
            check_gradients(model, s, expected);
    }
    check_report(pipeline.report(), offloads_parts);
}

TEST_CASE("plans of all storage options run with the gradients, the memory and the order that were planned") {
    counts sum;
    bool has_messages = false;
    for_each_case([](std::size_t) { return true; },
                  [&](const case_of_all_options& each) {
                      run_plan(each, has_messages ? bytes_of_message() : 0);
                      has_messages = !has_messages;
                      const auto measures = measure(each.tight, each.plan);
                      CHECK(measures.offloads > 0);
                      CHECK(measures.recomputes > 0);
                      for (const auto& [op, start, end] : each.plan.operations) {
                          sum.full_backwards += op.kind == operation_kind::backward;
                          sum.halves += op.kind == operation_kind::backward_weight;
                      }
                  });
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
    run_plan({model, p, *build_schedule(p, one_forward_one_backward), false});

    auto splitting = p;
    splitting.split_backward = true;
    const auto programs = *lower(splitting, *build_schedule(splitting, zero_bubble_h1), libtorch::lowering_defaults());
    CHECK_THROWS_WITH((libtorch::pipeline{splitting, programs, model}),
                      "a plan with split backwards for a model without: plan with problem::split_backward = false");
}

/// Two stages. The first has two outputs, and the loss depends on only one of them.
libtorch::training training_with_unused_output() {
    const auto weight = [](double value) { return at::full({3}, value, at::kDouble).requires_grad_(); };
    const libtorch::tensors first{weight(2), weight(3)}, second{weight(4)};
    libtorch::training model;
    model.stages = {{[first](const libtorch::tensors& x) {
                         return libtorch::tensors{x[0] * first[0], x[0] * first[1]};
                     },
                     first},
                    {[second](const libtorch::tensors& x) { return libtorch::tensors{x[0] * second[0]}; }, second}};
    model.input = [](std::size_t, microbatch) { return libtorch::tensors{at::ones({3}, at::kDouble)}; };
    model.loss = [](const libtorch::tensors& y, std::size_t, microbatch) { return y[0].sum(); };
    return model;
}

TEST_CASE("a weight on which the loss doesn't depend has no gradient, with and without bytes of messages") {
    at::set_num_threads(1);
    const auto output = at::ones({3}, at::kDouble);
    for (const std::size_t bytes : {std::size_t{0}, libtorch::message_bytes({output, output})})
        for (const bool splits : {false, true}) {
            CAPTURE(bytes);
            CAPTURE(splits);
            const auto model = training_with_unused_output();
            auto p = libtorch::measured_problem(model, to_any_graph(graph<2, 4>{}), {.repeats = 1});
            p = mixed_storage::without_options(p);
            p.split_backward = splits;
            const auto plan =
                splits ? *build_schedule(p, zero_bubble_h1) : *build_schedule(p, one_forward_one_backward);
            libtorch::pipeline pipeline{p, *lower(p, plan, libtorch::lowering_defaults(bytes)), model};
            static_cast<void>(pipeline.step());
            const auto& weights = model.stages[0].parameters;
            CHECK(at::equal(weights[0].grad(), at::full({3}, 4.0, at::kDouble)));
            CHECK(!weights[1].grad().defined());
        }
}

TEST_CASE("a rank that can't be made ends the wait of the others") {
    auto model = small_model::training_of(2);
    const auto p = mixed_storage::without_options(problem_of(model, to_any_graph(graph<2, 4>{}), false));
    const auto programs = *lower(p, *build_schedule(p, gpipe), libtorch::lowering_defaults(bytes_of_message()));
    model.stages[0].parameters.emplace_back(); // has no memory, so the rank can't list its address
    threads::cluster ranks{2};
    threads::failure failed;
    threads::control_board control{2, std::chrono::minutes{1}, failed};
    CHECK_THROWS((libtorch::pipeline_rank{p, programs, model, ranks[rank{0}], control[rank{0}]}));
    REQUIRE(failed.happened().load());
    CHECK_THROWS_WITH(static_cast<void>(control[rank{1}].receive(rank{0})), doctest::Contains("storage"));
}

/// Names of the ranges that PyTorch's profiler would see.
struct seen_ranges {
    std::mutex mutex;
    std::multiset<std::string> names;
};
seen_ranges* ranges = nullptr; // a callback of LibTorch has no state

TEST_CASE("the random numbers of a training follow from its seed") {
    at::set_num_threads(1);
    auto model = small_model::training_of(2);
    const auto p = mixed_storage::without_options(problem_of(model, to_any_graph(graph<2, 4>{}), false));
    const auto programs = *lower(p, *build_schedule(p, gpipe), libtorch::lowering_defaults());
    const auto loss_with = [&](std::uint64_t seed) {
        model.seed = seed;
        return libtorch::pipeline{p, programs, model}.step().loss;
    };
    const auto first = loss_with(1);
    CHECK(loss_with(2) != first);
    CHECK(loss_with(1) == first);
}

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

    threads::cluster ranks{2};
    CHECK_THROWS_WITH((libtorch::pipeline_rank{p, programs, model, ranks[rank{0}], ranks.control(rank{0})}),
                      doctest::Contains("messages without bytes"));
    const auto small = *lower(p, *build_schedule(p, gpipe), libtorch::lowering_defaults(8));
    libtorch::pipeline with_small_messages{p, small, model};
    CHECK_THROWS_WITH(static_cast<void>(with_small_messages.step()), doctest::Contains("a message has 8"));

    libtorch::pipeline pipeline{p, programs, model, {.patience = std::chrono::seconds{20}}};
    model.loss = [](const libtorch::tensors&, std::size_t, microbatch) -> at::Tensor {
        throw error{"this loss isn't there"};
    };
    CHECK_THROWS_WITH(static_cast<void>(pipeline.step()), doctest::Contains("this loss isn't there"));
}

} // namespace
