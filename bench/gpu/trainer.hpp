#pragma once

#include "../../examples/language_model/cuda/precision.hpp"
#include "../../examples/language_model/shape.hpp"
#include "../../examples/language_model/stash_storage.hpp"
#include <optpipe/core/index.hpp>
#include <optpipe/execution/post_validation.hpp>
#include <optpipe/online/online_state.hpp>
#include <optpipe/online/options.hpp>
#include <optpipe/pipeline/graph.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/program/ir.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpu_bench {

struct training_setup {
    language_model::shape shape;
    /// One stage per rank.
    std::size_t ranks = 4;
    std::size_t layers_per_stage = 2;
    std::size_t microbatches = 8;
    language_model::precision products = language_model::precision::single;
    /// What a plan may choose among for each stash; empty: it is kept, or offloaded.
    std::vector<language_model::stash_storage> storage{};
    /// Whether each rank has multiprocessors of its own.
    bool is_divided = false;
    /// Longer than a sequence.
    std::string text;
};

/// One step on the device, by its events.
struct timeline {
    /// In milliseconds.
    optpipe::schedule measured;
    /// The most that any rank's stashes took at once.
    std::size_t most_bytes = 0;
};

struct training_result {
    /// Against the model without a pipeline, relative: the worst of all stages.
    double gradient_difference = 0.0;
    bool has_same_gradients = false;
    /// Of every step, in nats per token: those that were issued, then those that were launched as a graph.
    std::vector<double> losses;
    /// From the first call to the end of the last kernel.
    std::vector<double> milliseconds;
    std::vector<double> graph_milliseconds;
    /// Why there are none of the latter.
    std::string graph_failure;
};

/// Training that plans again meanwhile.
struct online_result {
    /// Of every step.
    std::vector<double> losses;
    std::vector<double> milliseconds;
    std::vector<optpipe::online_event> log;
    /// What it planned with, and ran, in the end.
    optpipe::problem problem;
    optpipe::schedule schedule;
};

/// Training whose updates depend on the gradients of all ranks.
struct validated_result {
    /// Of every step, and the norm of all gradients.
    std::vector<double> losses, norms;
    /// Of every run of a step: some are void.
    std::vector<double> milliseconds;
    std::size_t voids = 0;
    /// In the end, by stage.
    std::vector<std::vector<float>> parameters;
};

/// The language model on virtual ranks of one GPU. Throws what CUDA, cuBLAS and the executor throw.
class trainer {
public:
    explicit trainer(const training_setup& how);
    trainer(const trainer&) = delete;
    trainer& operator=(const trainer&) = delete;
    ~trainer();

    /// Of a stash: what the weight gradient needs too, and the rest.
    [[nodiscard]] std::size_t kept_bytes(optpipe::stage s) const;
    [[nodiscard]] std::size_t freed_bytes(optpipe::stage s) const;
    [[nodiscard]] std::size_t message_bytes() const;
    /// Gives the problem the storage options, at costs in proportion to its forwards: `transfer` for a whole stash.
    void set_storage(optpipe::problem& p, optpipe::duration transfer) const;
    /// That each rank computes on.
    [[nodiscard]] int multiprocessors() const;

    /// Some steps that change nothing, the last of which is told about. The programs have updates.
    [[nodiscard]] timeline record(const optpipe::any_graph& graph, std::span<const optpipe::rank_program> programs);
    /// Begins anew: one step whose gradients are compared, `steps` that learn, and as many more by a graph.
    [[nodiscard]] training_result train(std::span<const optpipe::rank_program> programs, std::size_t steps);
    /// Begins anew, with `first`, a schedule of the problem. Steps are those of `train`.
    [[nodiscard]] online_result train_online(const optpipe::problem& p, const optpipe::schedule& first,
                                             const optpipe::online_setting& setting,
                                             const optpipe::online_options& options, std::size_t steps);
    /// Begins anew. Without storage options. Steps are those of `train`.
    [[nodiscard]] validated_result train_validated(std::span<const optpipe::rank_program> programs,
                                                   const optpipe::execution::post_validation_options& how,
                                                   std::size_t steps);

private:
    class state;
    std::unique_ptr<state> state_;
};

} // namespace gpu_bench
