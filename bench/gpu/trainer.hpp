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
    /// The storage options of a plan for each stash; empty if it is kept or offloaded.
    std::vector<language_model::stash_storage> storage{};
    /// Whether each rank has its own multiprocessors.
    bool is_divided = false;
    /// Must be longer than a sequence.
    std::string text;
};

/// One step on the device, timed by its events.
struct timeline {
    /// In milliseconds.
    optpipe::schedule measured;
    /// Largest total size of any rank's stashes at one time.
    std::size_t most_bytes = 0;
};

struct training_result {
    /// Relative to the model without a pipeline; the worst of all stages.
    double gradient_difference = 0.0;
    bool has_same_gradients = false;
    /// Loss of every step, in nats per token: first the issued steps, then those launched as a graph.
    std::vector<double> losses;
    /// From the first call to the end of the last kernel.
    std::vector<double> milliseconds;
    std::vector<double> graph_milliseconds;
    /// Why there are no steps of a graph.
    std::string graph_failure;
};

/// Training that replans at the same time.
struct online_result {
    /// Entries for every step.
    std::vector<double> losses;
    std::vector<double> milliseconds;
    std::vector<optpipe::online_event> log;
    /// The problem and the schedule in use at the end.
    optpipe::problem problem;
    optpipe::schedule schedule;
};

/// Training whose updates depend on the gradients of all ranks.
struct validated_result {
    /// Loss and norm of all gradients, for every step.
    std::vector<double> losses, norms;
    /// Duration of every run of a step; some are void.
    std::vector<double> milliseconds;
    std::size_t voids = 0;
    /// At the end, by stage.
    std::vector<std::vector<float>> parameters;
};

/// The language model on virtual ranks of one GPU. Throws the errors of CUDA, cuBLAS and the executor.
class trainer {
public:
    explicit trainer(const training_setup& how);
    trainer(const trainer&) = delete;
    trainer& operator=(const trainer&) = delete;
    ~trainer();

    /// Bytes of a stash: the part that the weight gradient also needs, and the rest.
    [[nodiscard]] std::size_t kept_bytes(optpipe::stage s) const;
    [[nodiscard]] std::size_t freed_bytes(optpipe::stage s) const;
    [[nodiscard]] std::size_t message_bytes() const;
    /// Gives the problem the storage options, with costs in proportion to its forwards; `transfer` is for a whole
    /// stash.
    void set_storage(optpipe::problem& p, optpipe::duration transfer) const;
    /// Number of multiprocessors of each rank.
    [[nodiscard]] int multiprocessors() const;

    /// Runs some steps that change nothing, and reports the last one. Contract: the programs have updates.
    [[nodiscard]] timeline record(const optpipe::any_graph& graph, std::span<const optpipe::rank_program> programs);
    /// Starts anew: one step whose gradients are compared, `steps` that learn, and the same number by a graph.
    [[nodiscard]] training_result train(std::span<const optpipe::rank_program> programs, std::size_t steps);
    /// Starts anew with `first`, a schedule of the problem. Steps are as in `train`.
    [[nodiscard]] online_result train_online(const optpipe::problem& p, const optpipe::schedule& first,
                                             const optpipe::online_setting& setting,
                                             const optpipe::online_options& options, std::size_t steps);
    /// Starts anew, without storage options. Steps are as in `train`.
    [[nodiscard]] validated_result train_validated(std::span<const optpipe::rank_program> programs,
                                                   const optpipe::execution::post_validation_options& how,
                                                   std::size_t steps);

private:
    class state;
    std::unique_ptr<state> state_;
};

} // namespace gpu_bench
