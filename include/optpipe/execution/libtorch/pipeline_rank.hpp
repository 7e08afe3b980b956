#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/libtorch/executor.hpp"
#include "optpipe/execution/libtorch/message.hpp"
#include "optpipe/execution/libtorch/rank_model.hpp"
#include "optpipe/execution/libtorch/report.hpp"
#include "optpipe/execution/libtorch/training.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"

#include <torch/serialize.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// Lowering options for a plan with memory in bytes, as from `measured_problem`. Sizes aren't rounded, because LibTorch
/// allocates the memory. If ranks are processes or on GPUs, pass the result of the function `message_bytes`. For ranks
/// that are threads on CPUs, pass 0, because their messages have no bytes. `how` has the defaults of the transport,
/// such as `nccl::lowering_defaults()`.
[[nodiscard]] inline lowering_options lowering_defaults(std::size_t message_bytes = 0, lowering_options how = {}) {
    how.bytes_per_unit = 1.0;
    how.alignment = 1;
    how.message_bytes = message_bytes;
    how.placement = part_placement::exact;
    how.host_part = 0;
    return how;
}

namespace detail {

inline bool splits_backwards(const rank_program& program) {
    return std::any_of(program.instructions.begin(), program.instructions.end(), [](const instruction& each) {
        return each.kind == instruction_kind::compute && each.op.kind == operation_kind::backward_input;
    });
}
/// Throws `error` if LibTorch can't run the programs, and `input_error` if the programs have errors.
inline void check_training(const problem& p, const per_rank<rank_program>& programs, const training& model) {
    require_plain(p, "LibTorch runs a plan");
    if (model.stages.size() != p.graph.stages())
        throw error{"a model of " + std::to_string(model.stages.size()) + " stages in a pipeline of " +
                    std::to_string(p.graph.stages())};
    if (programs.size() != p.graph.ranks())
        throw error{std::to_string(programs.size()) + " programs for " + std::to_string(p.graph.ranks()) + " ranks"};
    if (auto found = check_programs(programs); !found.empty()) throw input_error{"programs", std::move(found)};
    if (!model.splits_backward && std::any_of(programs.begin(), programs.end(), splits_backwards))
        throw error{"a plan with split backwards for a model without: plan with problem::split_backward = false"};
}

inline std::string text_of(tensors values) {
    for (auto& each : values)
        each = each.cpu();
    std::ostringstream text;
    torch::save(values, text);
    return text.str();
}
inline tensors tensors_of(const std::string& text, at::Device on) {
    std::istringstream stream{text};
    tensors values;
    torch::load(values, stream);
    for (auto& each : values)
        each = each.to(on);
    return values;
}

} // namespace detail

/// The result of one step of one rank.
struct rank_step {
    /// Mean loss over the microbatches. Only the rank of the last stage has a loss.
    std::optional<double> loss{};
    /// Empty if the executor doesn't record times. All ranks use the same clock.
    rank_times times{};
};

/// One rank of a pipeline. Gradients are added to those already in the parameters. The caller's optimizer runs between
/// two steps.
///
/// With MPI, each process has one `pipeline_rank`. With MPI, pass `member.executor()` as `on` and `member.control()` as
/// `channel`. A process only needs the modules of its own stages. In `training::stages`, entries of other ranks' stages
/// may be empty. If `libtorch/cuda/lanes.hpp` is included, `on` may be a CUDA executor.
template <class Base> class pipeline_rank {
public:
    /// Rehearses each stage once per storage option of the plan. All ranks must call this constructor together, because
    /// each rank passes its outputs on. A rank waits for its inputs for at most the channel's time limit. `p`, `model`
    /// and `on` must outlive the object. Throws `error` if the problem isn't plain, or if messages have no bytes.
    /// Throws `error` if the model has another number of stages, or can't split backwards as planned. Throws
    /// `input_error` if the programs have errors.
    pipeline_rank(const problem& p, const per_rank<rank_program>& programs, const training& model, Base& on,
                  threads::control_channel& channel, const rank_options& how = {}) try
        : pipeline_rank{
              p, own_program(p, programs, model, on.self()), model, on, channel, how, std::make_shared<value_table>()} {
    } catch (...) {
        channel.cancel("rehearsing", caught_reason());
        throw;
    }
    /// For a process with several ranks. The ranks share `values`, so messages between ranks on CPUs need no bytes.
    /// Contract: `own` is one of the programs accepted by `detail::check_training`.
    pipeline_rank(const problem& p, rank_program own, const training& model, Base& on,
                  threads::control_channel& channel, const rank_options& how, std::shared_ptr<value_table> values) try
        : problem_{p}, model_{model}, program_{std::move(own)}, values_{std::move(values)},
          stages_{p, model, on.self(), how, *values_, lane::make_memory(program_)}, executor_{on, stages_},
          runner_(checked(program_, how), executor_, stages_, execution::arena_sizes{}, owners()) {
        check_devices(on);
        rehearse(channel);
    } catch (...) {
        channel.cancel("rehearsing", caught_reason());
        throw;
    }
    pipeline_rank(const pipeline_rank&) = delete;
    pipeline_rank& operator=(const pipeline_rank&) = delete;

    /// Runs a step. Throws `execution_error` if the step fails on any rank. After a failure, the pipeline is unusable.
    rank_step step() {
        stages_.begin_step(steps_++);
        runner_.forget_times();
        runner_.step();
        stages_.end_step();
        return {mean_loss(), {&program_, runner_.times()}};
    }

    /// Returns the sizes of this rank's stashes in all steps until now.
    [[nodiscard]] stash_report report() {
        const auto& memory = stages_.memory();
        return {
            {{program_.self, {program_.device_bytes, memory.device.most()}, {program_.host_bytes, memory.host.most()}}},
            stages_.stashes()};
    }

private:
    using lane = lane_traits<execution::lane_of<Base>>;

    static rank_program own_program(const problem& p, const per_rank<rank_program>& programs, const training& model,
                                    rank self) {
        detail::check_training(p, programs, model);
        check_messages(programs[self], "between processes");
        return programs[self];
    }
    static void check_messages(const rank_program& own, const std::string& where) {
        if (!own.parts.empty() && own.message_bytes == 0)
            throw error{"messages without bytes " + where +
                        ": lower with libtorch::lowering_defaults(libtorch::message_bytes(...))"};
    }
    static const rank_program& checked(const rank_program& own, const rank_options& how) {
        if (!lane::is_host) check_messages(own, "on a device");
        if (!lane::is_host && how.pace) throw error{"a device can't be paced"};
        return own;
    }
    [[nodiscard]] execution::buffer_owners owners() const {
        using enum execution::buffer_owner;
        return {engine, program_.message_bytes > 0 ? library : engine};
    }

    [[nodiscard]] std::vector<stage> own_stages() const {
        std::vector<stage> own;
        for (const stage s : problem_.graph.all_stages())
            if (problem_.rank_of(s) == program_.self) own.push_back(s);
        return own;
    }
    void check_devices(const Base& on) const {
        if constexpr (!lane::is_host) {
            const at::Device device = lane::device_of(on);
            for (const stage s : own_stages())
                if (stages_.device_of(s) != device)
                    throw error{"stage " + std::to_string(s.value()) + " is on " + stages_.device_of(s).str() +
                                ", and its rank on " + device.str() +
                                ": a stage is where its parameters and buffers are"};
        }
    }
    void rehearse(threads::control_channel& channel) {
        tensors values;
        for (const stage s : own_stages()) {
            if (s == stage{0})
                values = model_.input(0, microbatch{});
            else if (const rank from = problem_.rank_of(s.previous()); from != program_.self)
                values = detail::tensors_of(channel.receive(from), stages_.device_of(s));
            values = rehearse(s, values);
            const bool is_last = s.position() + 1 == problem_.graph.stages();
            if (!is_last && problem_.rank_of(s.next()) != program_.self)
                channel.send(problem_.rank_of(s.next()), detail::text_of(values));
        }
        stages_.end_rehearsals();
    }
    tensors rehearse(stage s, const tensors& inputs) {
        std::set<storage_index> used;
        for (const auto& each : program_.instructions)
            if (each.kind == instruction_kind::compute && each.op.kind == operation_kind::forward && each.op.stage == s)
                used.insert(each.op.storage);
        tensors outputs;
        for (const auto how : used)
            outputs = stages_.rehearse(s, inputs, how).outputs;
        return outputs;
    }
    [[nodiscard]] std::optional<double> mean_loss() const {
        if (stages_.losses().empty()) return std::nullopt;
        double sum = 0.0;
        for (const auto& loss : stages_.losses())
            sum += loss.template item<double>();
        return sum / static_cast<double>(problem_.graph.microbatches());
    }

    const problem& problem_;
    const training& model_;
    rank_program program_;
    std::shared_ptr<value_table> values_;
    rank_model stages_;
    executor<Base> executor_;
    /// The runner is destroyed first, because its lanes use all members above.
    runner<executor<Base>, rank_model> runner_;
    std::size_t steps_ = 0;
};

} // namespace optpipe::libtorch
