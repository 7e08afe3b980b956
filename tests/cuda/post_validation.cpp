// The language model on streams, trained without a barrier at the optimizer's step. Parameters equal those of training
// without a pipeline, bit for bit, even if gradients are scaled down or overflow.

#include "optpipe/execution/post_validation.hpp"

#include "../../examples/language_model/cuda/reversible_device_pipeline.hpp"
#include "../../examples/language_model/whole_model.hpp"
#include "cuda/streamed_model.hpp"
#include "fakes/cuda.hpp"
#include "optpipe/execution/cuda/executor.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h2.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <vector>

using namespace streamed_model;
using namespace std::chrono_literals;
using optpipe::rank;
namespace cuda = optpipe::cuda;
namespace ex = optpipe::execution;

namespace {

constexpr std::size_t steps = 8;
constexpr std::size_t overflowing_step = 3;
constexpr std::size_t overflowing_stage = 2;
constexpr float infinity = std::numeric_limits<float>::infinity();

using parameter_values = std::vector<std::vector<float>>;
struct training {
    parameter_values parameters;
    std::vector<double> losses, norms;
    std::size_t voids = 0;
};
template <class Stages> parameter_values parameters_of(Stages& stages) {
    parameter_values all;
    for (auto& each : stages)
        all.emplace_back(each.parameters().begin(), each.parameters().end());
    return all;
}

double squares_of(std::span<const float> gradients) {
    constexpr std::size_t at_once = 4096; // as in the device's sum
    double all = 0.0;
    for (std::size_t begin = 0; begin < gradients.size(); begin += at_once) {
        float sum = 0.0F;
        for (const float g : gradients.subspan(begin, std::min(at_once, gradients.size() - begin)))
            sum += g * g;
        all += static_cast<double>(sum);
    }
    return all;
}

training train_alone(double max_norm) {
    std::vector<loop_device> devices(ranks);
    auto stages = make_device_stages(devices);
    std::vector<device_adamw<loop_device>> optimizers;
    for (auto& each : stages)
        optimizers.emplace_back(devices.front(), each.parameters().size(), adamw_rates{});
    training result;
    for (std::size_t k = 0; k < steps; ++k) {
        result.losses.push_back(unpipelined_step(stages, text_step{text, tiny, microbatches, k}, microbatches));
        if (k == overflowing_step) stages[overflowing_stage].gradients().back() = infinity;
        double all = 0.0;
        for (auto& each : stages)
            all += squares_of(each.gradients());
        const double norm = result.norms.emplace_back(std::sqrt(all));
        for (std::size_t i = 0; i < ranks; ++i) {
            const auto gradients = stages[i].gradients();
            const double scale = norm > max_norm ? max_norm / norm : 1.0;
            if (std::isfinite(norm)) optimizers[i].step(stages[i].parameters(), gradients, static_cast<float>(scale));
            std::fill(gradients.begin(), gradients.end(), 0.0F);
        }
    }
    result.parameters = parameters_of(stages);
    return result;
}

/// One of its gradients overflows in one step, before it is read.
class overflowing_model : public reversible_device_pipeline<streamed_loops> {
public:
    using reversible_device_pipeline::reversible_device_pipeline;
    void begin(std::size_t step) { step_ = step; }
    template <class Lane> double gradient_squares(Lane& lane, optpipe::stage s) {
        if (step_ == overflowing_step && s.position() == overflowing_stage) {
            device().use(lane.stream().native());
            float* const last = &stage(s).gradients().back();
            device().for_each(1, [last](std::size_t) { *last = infinity; });
        }
        return reversible_device_pipeline::gradient_squares(lane, s);
    }

private:
    std::size_t step_ = 0;
};

template <class Body> void side_by_side(const Body& body) {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
        threads.emplace_back([&body, r] { body(r); });
}

training train_on_streams(const optpipe::schedule& s, const optpipe::problem& p,
                          const ex::post_validation_options& how) {
    using model_type = ex::post_validated<overflowing_model, optpipe::threads::control_channel>;
    using runner_type = optpipe::runner<cuda::executor, model_type>;
    std::vector<streamed_loops> devices(ranks);
    auto stages = make_device_stages(devices);
    device_text<streamed_loops> batches{devices.front(), text, tiny, microbatches};
    const auto programs = *lower(p, s,
                                 {.bytes_per_unit = 1.0,
                                  .alignment = 16,
                                  .message_bytes = sizeof(float) * tiny.boundary(),
                                  .placement = optpipe::part_placement::contiguous,
                                  .update = true});
    cuda::cluster cluster{ranks, {.patience = 20s}};
    optpipe::threads::failure failed;
    optpipe::threads::control_board control{ranks, 20s, failed};
    std::vector<std::unique_ptr<overflowing_model>> inner;
    std::vector<std::unique_ptr<model_type>> models;
    std::vector<std::unique_ptr<runner_type>> runners;
    for (const auto& each : programs) {
        inner.push_back(std::make_unique<overflowing_model>(devices[each.self.position()], stages, batches));
        inner.back()->prepare(optpipe::stage{each.self.position()});
        models.push_back(std::make_unique<model_type>(each, *inner.back(), control[each.self], how));
        runners.push_back(std::make_unique<runner_type>(each, cluster[each.self], *models.back()));
    }
    training result;
    for (std::size_t k = 0; k < steps; ++k)
        for (bool was_void = true; was_void;) {
            batches.load(k);
            for (auto& each : inner)
                each->begin(k);
            side_by_side([&](std::size_t r) { runners[r]->step(); });
            const double loss = stages.back().take_loss() * batches.share();
            was_void = models.front()->was_void();
            for (const auto& each : models)
                CHECK(each->was_void() == was_void);
            if (was_void)
                ++result.voids;
            else
                result.losses.push_back(loss);
        }
    side_by_side([&](std::size_t r) { models[r]->finish(cluster[rank{r}]); });
    result.parameters = parameters_of(stages);
    return result;
}

} // namespace

TEST_CASE("on streams parameters are those of the barrier, bit for bit, whatever the streams do first") {
    auto norms = train_alone(infinity).norms;
    std::sort(norms.begin(), norms.end());
    const double max_norm = norms[steps / 2];
    const auto alone = train_alone(max_norm);
    for (std::uint64_t order = 1; order <= 3; ++order) {
        fake_cuda::reset({.seed = order});
        {
            std::vector<streamed_loops> devices(ranks);
            const auto p = make_problem(make_device_stages(devices), false);
            const auto check = [&](const auto& build) {
                const auto s = *build_schedule(p, build);
                for (const bool barrier : {false, true}) {
                    const auto piped = train_on_streams(s, p, {.max_norm = max_norm, .barrier = barrier});
                    CHECK(piped.parameters == alone.parameters);
                    CHECK(piped.losses == alone.losses);
                    CHECK((piped.voids == 0) == barrier);
                }
            };
            check(optpipe::one_forward_one_backward);
            check(optpipe::zero_bubble_h2);
        }
        CHECK(fake_cuda::alive() == fake_cuda::census{});
    }
}
