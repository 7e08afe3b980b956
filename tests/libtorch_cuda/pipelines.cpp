// Plans of all storage options, run by LibTorch on a GPU, against the model in one piece. Without a GPU, nothing is
// checked, and the test counts as skipped.
#include "libtorch/small_pipelines.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/libtorch/cuda/pipeline.hpp"
#include "optpipe/program/lower.hpp"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <chrono>
#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

using namespace small_pipelines;

const at::Device gpu{at::kCUDA, 0};

void check_close(const libtorch::training& model, stage s, const std::vector<libtorch::tensors>& expected) {
    const auto& own = expected[s.position()];
    for (std::size_t i = 0; i < own.size(); ++i)
        CHECK(at::allclose(model.stages[s.position()].parameters[i].grad(), own[i], 1e-6, 1e-12));
}

void run_plan(const case_of_all_options& of) {
    const auto& [model, p, plan, offloads_parts] = of;
    const auto programs = lower(p, plan, libtorch::lowering_defaults(bytes_of_message()));
    REQUIRE(programs.has_value());
    libtorch::cuda_pipeline pipeline{p, *programs, model};
    const auto sums = accumulation_order_of(plan);
    for (std::size_t step = 0; step < 3; ++step) {
        small_model::forget_gradients(model);
        const auto expected = small_model::gradients_in_one_piece(model, sums, step);
        const auto result = pipeline.step();
        CHECK(result.loss > 0.0);
        for (const rank r : p.graph.all_ranks())
            check_order(result.measured, plan, r);
        for (const stage s : p.graph.all_stages())
            check_close(model, s, expected);
    }
    check_report(pipeline.report(), offloads_parts);
}

TEST_CASE("plans of all storage options run on a GPU with the gradients, the memory and the order that were planned") {
    if (cuda::device_count() == 0) return;
    for_each_case([](std::size_t) { return true; }, run_plan, gpu);
}

TEST_CASE("messages without bytes and paced steps are refused on a GPU") {
    if (cuda::device_count() == 0) return;
    const auto model = small_model::training_of(2, false, gpu);
    const auto p = mixed_storage::without_options(problem_of(model, to_any_graph(graph<2, 4>{}), false));
    const auto plan = *build_schedule(p, gpipe);
    const auto silent = *lower(p, plan, libtorch::lowering_defaults());
    CHECK_THROWS_WITH((libtorch::cuda_pipeline{p, silent, model}), doctest::Contains("messages without bytes"));
    const auto programs = *lower(p, plan, libtorch::lowering_defaults(bytes_of_message()));
    CHECK_THROWS_WITH((libtorch::cuda_pipeline{p, programs, model, {.paced = true}}), doctest::Contains("paced"));
    const auto on_cpu = small_model::training_of(2);
    CHECK_THROWS_WITH((libtorch::cuda_pipeline{p, programs, on_cpu}),
                      doctest::Contains("no parameters or buffers on a GPU"));
    const auto larger = small_model::training_of(3, false, gpu);
    const auto smaller = small_model::training_of(1, false, gpu);
    CHECK_THROWS_WITH((libtorch::cuda_pipeline{p, programs, larger}), "a model of 3 stages in a pipeline of 2");
    CHECK_THROWS_WITH((libtorch::cuda_pipeline{p, programs, smaller}), "a model of 1 stages in a pipeline of 2");
}

/// Changes the weights in the current stream, slowly, before each step.
void check_steps_after_slow_work() {
    const auto model = small_model::training_of(2, false, gpu);
    const auto p = mixed_storage::without_options(problem_of(model, to_any_graph(graph<2, 4>{}), false));
    const auto plan = *build_schedule(p, gpipe);
    libtorch::cuda_pipeline pipeline{p, *lower(p, plan, libtorch::lowering_defaults(bytes_of_message())), model};
    for (std::size_t step = 0; step < 4; ++step) {
        small_model::forget_gradients(model);
        const auto slow = at::ones({4096, 4096}, gpu);
        const at::NoGradGuard without_graph;
        const auto change = 1e-3 * at::tanh(at::matmul(slow, slow).sum()).to(at::kDouble);
        for (const auto& each : model.stages[0].parameters)
            at::Tensor{each}.add_(change);
        static_cast<void>(pipeline.step());
        std::vector<libtorch::tensors> found;
        for (const auto& each : model.stages[0].parameters)
            found.push_back({each.grad().clone()});
        small_model::forget_gradients(model);
        const at::AutoGradMode with_graph{true};
        const auto expected = small_model::gradients_in_one_piece(model, accumulation_order_of(plan), step);
        for (std::size_t i = 0; i < found.size(); ++i)
            CHECK(at::allclose(found[i].front(), expected[0][i], 1e-6, 1e-12));
    }
}

TEST_CASE("an optimizer's work comes before the next step, on the default stream and on another") {
    if (cuda::device_count() == 0) return;
    check_steps_after_slow_work();
    const c10::cuda::CUDAStreamGuard other{c10::cuda::getStreamFromPool()};
    check_steps_after_slow_work();
}

} // namespace
