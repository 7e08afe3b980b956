// Sequences in slices, with keys and values: gradients equal those without a pipeline.
#include "language_model/training.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/sequence_1f1b.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace {

using slices_of_stage = language_model::sequence_slices<double>;

constexpr std::size_t slices = 3;
constexpr std::size_t microbatches = 2 * slices;
constexpr language_model::shape sliced{
    .hidden = 8, .heads = 2, .sequence = 4, .sequences = 2, .vocabulary = 128, .slices = slices};
constexpr language_model::shape whole{
    .hidden = 8, .heads = 2, .sequence = slices * sliced.sequence, .sequences = 2, .vocabulary = 128};

training::stages_type stages_of(const language_model::shape& s, std::size_t count) {
    return language_model::make_stages<double>(s, training::layers, count, 7);
}

optpipe::problem problem_of_slices(std::size_t ranks) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> shape{ranks, microbatches};
    auto p = language_model::problem_of(stages_of(sliced, ranks), to_any_graph(shape));
    std::vector<std::uint32_t> sequences;
    for (std::size_t m = 0; m < microbatches; ++m)
        sequences.push_back(static_cast<std::uint32_t>(m / slices));
    p.microbatches.set_sequences(sequences);
    return p;
}

/// One stage's buffers for the slices of a sequence.
struct stage_buffers {
    explicit stage_buffers(const language_model::model_stage<double>& of) {
        for (std::size_t k = 0; k < slices; ++k) {
            freed.emplace_back(of.freed());
            keys_values.emplace_back(of.keys_values());
            gradients.emplace_back(of.keys_values());
        }
    }
    /// Those that slice k uses.
    slices_of_stage until(std::size_t k) {
        slices_of_stage used;
        for (std::size_t j = 0; j <= k; ++j) {
            used.keys_values.emplace_back(keys_values[j]);
            if (j + 1 < slices) used.gradients.emplace_back(gradients[j]);
        }
        return used;
    }
    std::vector<std::vector<double>> freed{};
    std::vector<std::vector<double>> keys_values{};
    std::vector<std::vector<double>> gradients{};
};

/// A step without a pipeline, up to the gradients: all slices of a sequence forward, and back in reverse order; then
/// all weight gradients in the order of the schedule.
std::vector<double> gradients_alone(const optpipe::schedule& s) {
    auto stages = stages_of(sliced, s.graph.stages());
    const language_model::text_step step{training::text, sliced, microbatches, 0};
    std::vector<std::vector<std::vector<double>>> kept(microbatches);
    std::vector<double> in(sliced.boundary()), out(sliced.boundary());
    for (std::size_t first = 0; first < microbatches; first += slices) {
        std::vector<stage_buffers> buffers{stages.begin(), stages.end()};
        for (std::size_t k = 0; k < slices; ++k)
            for (std::size_t i = 0; i < stages.size(); ++i, in.swap(out))
                stages[i].forward(step[first + k], in, kept[first + k].emplace_back(stages[i].kept()),
                                  buffers[i].freed[k], out, buffers[i].until(k));
        for (std::size_t k = slices; k-- > 0;)
            for (std::size_t i = stages.size(); i-- > 0; in.swap(out))
                stages[i].backward_input(step[first + k], step.share(), in, kept[first + k][i], buffers[i].freed[k],
                                         out, buffers[i].until(k));
    }
    const auto order = training::weight_order(s);
    for (std::size_t i = 0; i < stages.size(); ++i)
        for (const auto m : order[i])
            stages[i].backward_weight(step[m], kept[m][i]);
    return training::gradients_of(stages);
}

std::vector<double> gradients_by(const optpipe::problem& p, const optpipe::schedule& s) {
    auto stages = stages_of(sliced, p.graph.stages());
    const auto programs = lower(
        p, s,
        {.bytes_per_unit = 1.0, .alignment = alignof(double), .message_bytes = sizeof(double) * sliced.boundary()});
    REQUIRE(programs);
    REQUIRE(check_programs(*programs).empty());
    const auto planned = measure(p, s);
    for (const auto& each : *programs)
        CHECK(static_cast<double>(each.device_bytes) == planned.peak_memory[each.self].value());
    optpipe::threads::cluster cluster{p.graph.ranks(), training::exact_memory(*programs)};
    std::vector<training::scattered_model> models;
    for (std::size_t r = 0; r < p.graph.ranks(); ++r)
        models.emplace_back(stages, microbatches, nullptr, training::storage_options{}, sliced);
    optpipe::threads::run(*programs, cluster,
                          [&](optpipe::rank r) -> training::scattered_model& { return models[r.position()]; });
    return training::gradients_of(stages);
}

/// The largest difference, in relation to the largest gradient.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
    double largest = 0.0;
    double apart = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(a[i]));
        apart = std::max(apart, std::abs(a[i] - b[i]));
    }
    return apart / largest;
}

} // namespace

TEST_CASE("slices of sequences have the gradients of a step without a pipeline, in the memory of the plan") {
    for (const std::size_t ranks : {1U, 2U, 4U}) {
        CAPTURE(ranks);
        const auto p = problem_of_slices(ranks);
        auto unsliced = stages_of(whole, ranks);
        unpipelined_step(unsliced, language_model::text_step{training::text, whole, microbatches / slices, 0},
                         microbatches / slices);
        const auto check = [&](const auto& build) {
            const auto s = build_schedule(p, build);
            REQUIRE(s);
            const auto alone = gradients_alone(*s);
            CHECK(gradients_by(p, *s) == alone);
            CHECK(difference(alone, training::gradients_of(unsliced)) < 1e-12);
        };
        check(optpipe::gpipe);
        check(optpipe::one_forward_one_backward);
        check(optpipe::sequence_1f1b);
    }
}
