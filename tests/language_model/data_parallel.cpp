// Two pipelines train one model, on ranks that are threads. After every step both have the same parameters: those of a
// model that sees all microbatches without a pipeline.
#include "../../examples/language_model/data_parallel_model.hpp"
#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using optpipe::rank;
using optpipe::stage;

constexpr std::size_t replicas = 2;
constexpr std::size_t steps = 3;

/// Adds up the gradients that two threads bring for a stage.
class meeting {
public:
    void operator()(std::size_t self, std::span<double> gradients) {
        brought_[self] = gradients;
        both_.arrive_and_wait();
        sum_[self].resize(gradients.size());
        for (std::size_t i = 0; i < gradients.size(); ++i)
            sum_[self][i] = brought_[0][i] + brought_[1][i];
        both_.arrive_and_wait(); // before any of them is written
        std::copy(sum_[self].begin(), sum_[self].end(), gradients.begin());
    }

private:
    std::barrier<> both_{replicas};
    std::span<double> brought_[replicas];
    std::vector<double> sum_[replicas];
};

/// The parameters of a replica's stages after training.
using parameters = std::vector<std::vector<double>>;
parameters parameters_of(training::stages_type& stages) {
    parameters all;
    for (auto& each : stages)
        all.emplace_back(each.parameters().begin(), each.parameters().end());
    return all;
}

parameters trained_alone(std::size_t stages, std::size_t microbatches) {
    auto model = training::fresh_stages(stages);
    std::vector<language_model::adamw<double>> optimizers;
    for (auto& each : model)
        optimizers.emplace_back(each.parameters().size(), language_model::adamw_rates{});
    for (std::size_t k = 0; k < steps; ++k) {
        const language_model::text_step text{training::text, training::tiny, microbatches, k};
        unpipelined_step(model, text, microbatches);
        for (std::size_t s = 0; s < stages; ++s)
            optimizers[s].step(model[s].parameters(), model[s].gradients());
    }
    return parameters_of(model);
}

/// Trains one replica on a cluster of its own; its stages meet those of the other.
parameters train_replica(const optpipe::problem& p, std::span<const optpipe::rank_program> programs, std::size_t self,
                         std::vector<std::unique_ptr<meeting>>& meetings) {
    auto stages = training::fresh_stages(p.graph.stages());
    const auto add_up = [&](stage s, std::span<double> gradients) { (*meetings[s.position()])(self, gradients); };
    using model_type = language_model::data_parallel_model<double, decltype(add_up)>;
    std::vector<std::unique_ptr<model_type>> models;
    for (std::size_t r = 0; r < p.graph.ranks(); ++r)
        models.push_back(std::make_unique<model_type>(stages, training::text, training::tiny, p.graph.microbatches(),
                                                      language_model::replica_place{self, replicas}, add_up));
    optpipe::threads::options how;
    how.patience = 60s;
    optpipe::threads::cluster cluster{p.graph.ranks(), how};
    optpipe::threads::run(
        programs, cluster, [&](rank r) -> model_type& { return *models[r.position()]; }, steps);
    return parameters_of(stages);
}

template <class Placement, class Build> void compare(const Build& build) {
    const auto p = training::problem_with<Placement>(2, 4);
    const auto s = build_schedule(p, build);
    REQUIRE(s);
    const auto programs = lower(p, *s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * training::tiny.boundary(),
                                 .placement = optpipe::part_placement::contiguous,
                                 .update = true,
                                 .reduce = true});
    REQUIRE(programs);
    std::vector<std::unique_ptr<meeting>> meetings;
    for (std::size_t i = 0; i < p.graph.stages(); ++i)
        meetings.push_back(std::make_unique<meeting>());
    parameters got[replicas];
    {
        std::jthread other{[&] { got[1] = train_replica(p, *programs, 1, meetings); }};
        got[0] = train_replica(p, *programs, 0, meetings);
    }
    CHECK(got[0] == got[1]);
    const auto alone = trained_alone(p.graph.stages(), replicas * p.graph.microbatches());
    double apart = 0.0;
    for (std::size_t i = 0; i < alone.size(); ++i)
        for (std::size_t k = 0; k < alone[i].size(); ++k)
            apart = std::max(apart, std::abs(got[0][i][k] - alone[i][k]));
    CHECK(apart > 0.0); // sums in another order
    CHECK(apart < 1e-9);
}

} // namespace

TEST_CASE("with a stage on each rank") {
    compare<optpipe::placement::linear>(optpipe::zero_bubble_h1);
    compare<optpipe::placement::linear>(optpipe::one_forward_one_backward);
}
TEST_CASE("with two, one of which is reduced while the other computes") {
    compare<optpipe::placement::loop<2>>(optpipe::interleaved);
    compare<optpipe::placement::v>(optpipe::zero_bubble_v);
}
