// A language model with expert layers, whose exchanges of tokens are hidden in pairs.
#include "language_model/expert_training.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/failure.hpp"
#include "optpipe/execution/threads/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using channel = optpipe::threads::control_channel;
using model = language_model::expert_model<double, channel>;

/// The gradients of all pipelines after a step.
std::vector<std::vector<double>> gradients_by(const optpipe::problem& p, const optpipe::schedule& s) {
    const auto programs = training::expert_programs(p, s);
    const auto ranks = p.graph.ranks();
    // For each rank, channels among the pipelines.
    optpipe::threads::failure failed;
    std::vector<std::unique_ptr<optpipe::threads::control_board>> boards;
    for (std::size_t r = 0; r < ranks; ++r)
        boards.push_back(std::make_unique<optpipe::threads::control_board>(training::pipelines, 20s, failed));
    std::vector<training::expert_replica> replicas;
    for (std::size_t d = 0; d < training::pipelines; ++d)
        replicas.emplace_back(d, p.graph.stages());
    std::vector<std::string> errors(training::pipelines);
    std::vector<std::jthread> threads;
    for (std::size_t d = 0; d < training::pipelines; ++d)
        threads.emplace_back([&, d] {
            auto& own = replicas[d];
            std::vector<model> models;
            for (std::size_t r = 0; r < ranks; ++r)
                models.emplace_back(own.stages, own.layers, training::text, training::tiny, p.graph.microbatches(),
                                    own.place, (*boards[r])[optpipe::rank{d}]);
            optpipe::threads::cluster cluster{ranks, {.patience = 30s}};
            try {
                optpipe::threads::run(programs, cluster,
                                      [&](optpipe::rank r) -> model& { return models[r.position()]; });
            } catch (const std::exception& e) {
                errors[d] = e.what();
            }
        });
    threads.clear();
    std::vector<std::vector<double>> all;
    for (std::size_t d = 0; d < training::pipelines; ++d) {
        CHECK(errors[d] == "");
        for (const auto at : p.graph.all_stages())
            all.push_back(replicas[d].gradients_of(at));
    }
    return all;
}

static_assert(optpipe::execution::check_overlapping_stage_model<model, optpipe::threads::lane>());

void compare(std::size_t ranks) {
    const auto p = training::expert_problem(ranks);
    const training::expert_schedules schedules{p};
    CHECK(gradients_by(p, schedules.paired) == gradients_by(p, schedules.alone));
}

} // namespace

TEST_CASE("with pairs, the gradients of blocks, routers and experts are those without, on two ranks") { compare(2); }
TEST_CASE("on four ranks") { compare(4); }

TEST_CASE("an expert layer's gradients are the slopes of its output") {
    using layer_type = language_model::expert_layer<double>;
    const language_model::shape& s = training::tiny;
    layer_type layer{s, {.experts = 3, .peers = 1}, 5};
    std::mt19937_64 bits{3};
    const auto drawn = [&] {
        std::vector<double> all(s.boundary());
        for (double& x : all)
            x = static_cast<double>(bits() >> 11U) * 0x1p-53 - 0.5;
        return all;
    };
    auto x = drawn();
    const auto weights = drawn();
    std::vector<double> kept(layer.kept()), freed(layer.freed()), out(s.boundary());
    const auto value = [&] {
        const layer_type::stash k{kept}, f{freed};
        layer.combine(layer.compute(layer.route(x, k, f), k), k, f, out);
        double sum = 0.0;
        for (std::size_t i = 0; i < out.size(); ++i)
            sum += weights[i] * out[i];
        return sum;
    };
    static_cast<void>(value());
    const layer_type::stash k{kept}, f{freed};
    std::vector<double> back(s.boundary());
    layer.gather(layer.compute_back(layer.disperse(weights, k, f), k), k, f, back);
    layer.backward_weight(k);
    constexpr double step = 1e-6;
    const auto slope = [&](double& of) {
        const double was = of;
        of = was + step;
        const double above = value();
        of = was - step;
        const double below = value();
        of = was;
        return (above - below) / (2.0 * step);
    };
    for (std::size_t i = 0; i < x.size(); i += 7)
        CHECK(slope(x[i]) == doctest::Approx(back[i]).epsilon(1e-5));
    const auto gradients = layer.gradients();
    std::size_t moved = 0;
    for (std::size_t i = 0; i < gradients.size(); i += 11) {
        CHECK(slope(layer.parameters()[i]) == doctest::Approx(gradients[i]).epsilon(1e-4).scale(1.0));
        moved += gradients[i] != 0.0 ? 1 : 0;
    }
    CHECK(3 * moved > gradients.size() / 11); // tokens went to more than one expert
}
