// The language model on streams: the code that a GPU would run, with loops on a fake device as kernels.

#include "../../examples/language_model/cuda/device_pipeline.hpp"
#include "../../examples/language_model/whole_model.hpp"
#include "cuda/streamed_model.hpp"
#include "execution/mixed_storage.hpp"
#include "execution/quick_adaptive.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace streamed_model;
using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;

namespace {

using model_type = device_pipeline<streamed_loops>;

template <class Stages> std::vector<float> gradients_of(Stages& stages) {
    std::vector<float> all;
    for (auto& each : stages)
        all.insert(all.end(), each.gradients().begin(), each.gradients().end());
    return all;
}

/// The stages of a whole model, computed by plain loops.
struct whole_model {
    std::vector<loop_device> devices{ranks};
    std::vector<device_stage<loop_device>> stages = make_device_stages(devices);

    double step(std::size_t which) {
        return unpipelined_step(stages, text_step{text, tiny, microbatches, which}, microbatches);
    }
};

/// The ranks of one process, and their programs.
struct pipeline {
    pipeline(stages_type& all, std::vector<streamed_loops>& devices, const optpipe::problem& p,
             const optpipe::schedule& s, const std::vector<stash_storage>& storage = {})
        : stages{all}, batches{devices.front(), text, tiny, microbatches},
          programs{*lower(p, s,
                          {.bytes_per_unit = 1.0,
                           .alignment = 16,
                           .message_bytes = sizeof(float) * tiny.boundary(),
                           .placement = optpipe::part_placement::contiguous,
                           .update = true})},
          cluster{ranks, {.patience = 20s}} {
        for (const auto& each : programs) {
            models.push_back(
                std::make_unique<model_type>(devices[each.self.position()], stages, batches, adamw_rates{}, storage));
            models.back()->prepare(optpipe::stage{each.self.position()});
            runners.push_back(std::make_unique<optpipe::runner<cuda::executor, model_type>>(each, cluster[each.self],
                                                                                            *models.back()));
        }
    }
    void learn(bool yes) {
        for (auto& each : models)
            each->learn(yes);
    }
    void issue() {
        for (auto& each : runners)
            each->issue();
    }
    void finish() {
        for (const rank r : optpipe::index_range<rank>{ranks})
            cluster[r].finish();
    }
    /// Loss of a step, in nats per token.
    double step(std::size_t which) {
        batches.load(which);
        issue();
        finish();
        return stages.back().take_loss() * batches.share();
    }

    stages_type& stages;
    device_text<streamed_loops> batches;
    optpipe::per_rank<optpipe::rank_program> programs;
    cuda::cluster cluster;
    std::vector<std::unique_ptr<model_type>> models;
    std::vector<std::unique_ptr<optpipe::runner<cuda::executor, model_type>>> runners;
};

/// Calls `visit(problem, schedule)` for schedules of all kinds.
template <class Visit> void for_each_schedule(const stages_type& stages, Visit visit) {
    const auto roomy = make_problem(stages, false);
    const auto tight = make_problem(stages, true);
    visit(roomy, *build_schedule(roomy, optpipe::one_forward_one_backward));
    visit(roomy, *build_schedule(roomy, optpipe::zero_bubble_h1));
    const auto offloading = *build_schedule(tight, quick_adaptive);
    CHECK(measure(tight, offloading).offloads > 0);
    visit(tight, offloading);
}

} // namespace

TEST_CASE("on streams the gradients are those of the whole model, bit for bit, whatever the streams do first") {
    whole_model alone;
    const double loss = alone.step(0);
    CHECK(loss > 0.0);
    for (std::uint64_t order = 1; order <= 3; ++order) {
        fake_cuda::reset({.seed = order});
        std::vector<streamed_loops> devices(ranks);
        const auto shapes = make_device_stages(devices);
        for_each_schedule(shapes, [&](const optpipe::problem& p, const optpipe::schedule& s) {
            auto stages = make_device_stages(devices);
            pipeline piped{stages, devices, p, s};
            piped.learn(false);
            CHECK(piped.step(0) == loss);
            CHECK(gradients_of(stages) == gradients_of(alone.stages));
        });
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
}

TEST_CASE("with a mix of recomputations and offloads, captured or not") {
    whole_model alone;
    const double loss = alone.step(0);
    fake_cuda::reset();
    std::vector<streamed_loops> devices(ranks);
    const auto shapes = make_device_stages(devices);
    const std::vector<stash_storage> storage{
        {.name = "keep"},
        {.name = "attention", .again = recomputation::attention},
        {.name = "attention inside", .again = recomputation::attention, .inside = true, .offloaded = 0.5},
        {.name = "activations", .again = recomputation::feed_forward, .offloaded = 0.5},
        {.name = "activations inside", .again = recomputation::feed_forward, .inside = true},
        {.name = "full", .again = recomputation::full, .offloaded = 1.0},
        {.name = "full inside", .again = recomputation::full, .inside = true}};
    auto p = make_problem(shapes, false);
    set_storage(p, shapes, storage, optpipe::duration{2.0});
    const auto plain = mixed_storage::without_options(p);
    std::size_t seed = 0;
    const auto try_it = [&](const auto& build, bool captures) {
        optpipe::random_numbers random{++seed};
        auto [tight, s] = mixed_storage::make(p, *build_schedule(plain, build), random);
        for (const auto r : p.graph.all_ranks()) // fragments and alignment
            tight.memory_limit[r] = tight.host_memory_limit[r] = optpipe::memory_size::unlimited();
        // Sums of weight gradients equal those of the whole model if W keeps the order of microbatches.
        auto stages = make_device_stages(devices);
        pipeline piped{stages, devices, tight, s, storage};
        piped.learn(false);
        if (captures) {
            const auto captured = piped.cluster.capture([&] { piped.issue(); });
            piped.batches.load(0);
            piped.cluster.launch(captured);
            piped.cluster.finish();
        } else {
            CHECK(piped.step(0) == loss);
        }
        CHECK(gradients_of(stages) == gradients_of(alone.stages));
    };
    for (const bool captures : {false, true})
        for (int i = 0; i < 3; ++i) {
            try_it(optpipe::one_forward_one_backward, captures);
            try_it(optpipe::zero_bubble_h1, captures);
        }
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}

TEST_CASE("what is captured once learns step after step, as the whole model does") {
    constexpr std::size_t steps = 6;
    whole_model alone;
    std::vector<device_adamw<loop_device>> optimizers;
    for (auto& each : alone.stages)
        optimizers.emplace_back(alone.devices.front(), each.parameters().size(), adamw_rates{});
    std::vector<double> expected;
    for (std::size_t k = 0; k < steps; ++k) {
        expected.push_back(alone.step(k));
        for (std::size_t i = 0; i < ranks; ++i)
            optimizers[i].step(alone.stages[i].parameters(), alone.stages[i].gradients());
    }
    CHECK(expected.back() < expected.front());

    fake_cuda::reset();
    std::vector<streamed_loops> devices(ranks);
    const auto shapes = make_device_stages(devices);
    for_each_schedule(shapes, [&](const optpipe::problem& p, const optpipe::schedule& s) {
        auto stages = make_device_stages(devices);
        pipeline piped{stages, devices, p, s};
        const auto captured = piped.cluster.capture([&] { piped.issue(); });
        std::vector<double> losses;
        for (std::size_t k = 0; k < steps; ++k) {
            piped.batches.load(k);
            piped.cluster.launch(captured);
            piped.cluster.finish();
            losses.push_back(stages.back().take_loss() * piped.batches.share());
        }
        CHECK(losses == expected);
    });
    CHECK(fake_cuda::alive() == fake_cuda::census{});
}
