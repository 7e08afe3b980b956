#pragma once

#include "adamw.hpp"
#include "stage.hpp"
#include "stash_storage.hpp"
#include "text.hpp"
#include "whole_model.hpp"
#include <optpipe/execution/stage_model.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// A problem with the costs of a model's stages: times in proportion to their work, memory in bytes. `transfer` is the
/// time to move a stash to the host, or back; without it stashes stay on the device.
template <class Real>
[[nodiscard]] optpipe::problem problem_of(const std::vector<model_stage<Real>>& stages, optpipe::any_graph shape,
                                          std::optional<optpipe::duration> transfer = std::nullopt) {
    optpipe::per_stage<optpipe::stage_costs> costs(stages.size());
    for (const auto s : shape.all_stages()) {
        const auto& model = stages[s.position()];
        auto& c = costs[s];
        c.forward = c.backward_input = c.backward_weight = optpipe::duration{1.0};
        c.weight_stash = optpipe::memory_size{static_cast<double>(sizeof(Real) * model.kept())};
        c.activation = c.weight_stash + optpipe::memory_size{static_cast<double>(sizeof(Real) * model.freed())};
        c.kv = optpipe::memory_size{static_cast<double>(sizeof(Real) * model.keys_values())};
        if (transfer) c.transfer = optpipe::transfer_times{*transfer, *transfer};
    }
    optpipe::problem p{std::move(shape), std::move(costs)};
    p.name = "language model";
    p.memory_unit = "bytes";
    return p;
}

/// The place of a pipeline among several that train the same model. Each has its share of every step's microbatches.
struct replica_place {
    std::size_t self = 0;
    std::size_t replicas = 1;
};

/// The stages of one rank as the model of a program. Each step uses the next pieces of the text; a stage proceeds to
/// the next step once it has been updated. Without storage options, parts of a stash must be contiguous
/// (`part_placement::contiguous`).
template <class Real> class pipeline_model {
public:
    /// Borrows stages and text. Every rank sees all stages, and uses its own. `storage` are the options that
    /// `set_storage` gave the problem. `microbatches` is the number for one replica.
    pipeline_model(std::vector<model_stage<Real>>& stages, std::string_view text, const shape& s,
                   std::size_t microbatches, const adamw_rates& rates = {}, std::vector<stash_storage> storage = {},
                   const replica_place& replica = {})
        : stages_{&stages}, text_{text}, shape_{s},
          microbatches_{microbatches}, storage_{std::move(storage)}, replica_{replica}, at_(stages.size()),
          packers_(stages.size()) {
        if (s.slices > 1 && !storage_.empty())
            throw std::invalid_argument{"the stash of a slice stays on the device as a whole"};
        for (auto& each : stages)
            optimizers_.emplace_back(each.parameters().size(), rates);
    }

    template <class Lane> void forward(Lane&, const optpipe::execution::forward_task& t) {
        auto& now = position(t.stage);
        if (!storage_.empty())
            return packer(t.stage).forward(storage_[t.storage], batch_of(now, t.microbatch), reals(t.input),
                                           reals(t.output), t);
        stage(t.stage).forward(batch_of(now, t.microbatch), reals(t.input), reals(t.kept), reals(t.freed),
                               reals(t.output), {reals(t.keys_values), {}});
    }
    template <class Lane> void backward_input(Lane&, const optpipe::execution::backward_task& t) {
        auto& now = position(t.stage);
        const auto share = static_cast<Real>(now.text.share());
        if (!storage_.empty())
            return packer(t.stage).backward_input(storage_[t.storage], batch_of(now, t.microbatch), share,
                                                  reals(t.input), reals(t.output), t);
        stage(t.stage).backward_input(batch_of(now, t.microbatch), share, reals(t.input), reals(t.kept), reals(t.freed),
                                      reals(t.output), {reals(t.keys_values), reals(t.keys_values_gradients)});
    }
    template <class Lane> void backward_weight(Lane&, const optpipe::execution::weight_task& t) {
        if (!storage_.empty())
            return packer(t.stage).backward_weight(storage_[t.storage], batch_of(position(t.stage), t.microbatch), t);
        stage(t.stage).backward_weight(batch_of(position(t.stage), t.microbatch), reals(t.kept));
    }
    /// The data recomputed inside a full backward serves both of its halves.
    template <class Lane> void backward(Lane& on, const optpipe::execution::backward_task& t) {
        auto& now = position(t.stage);
        if (!storage_.empty())
            return packer(t.stage).backward(storage_[t.storage], batch_of(now, t.microbatch),
                                            static_cast<Real>(now.text.share()), reals(t.input), reals(t.output), t);
        backward_input(on, t);
        backward_weight(on, {.stage = t.stage, .microbatch = t.microbatch, .kept = t.kept});
    }
    /// Used only with storage options.
    template <class Lane> void recompute(Lane&, const optpipe::execution::recompute_task& t) {
        packer(t.stage).recompute(storage_.at(t.storage), batch_of(position(t.stage), t.microbatch), t);
    }
    template <class Lane> void update(Lane&, optpipe::stage s) {
        optimizer(s).step(stage(s).parameters(), stage(s).gradients());
        end_step(s);
    }

    /// This replica's share of the loss of each past step, in nats per token; zeros unless the rank has the last stage.
    [[nodiscard]] const std::vector<double>& losses() const { return losses_; }

protected:
    model_stage<Real>& stage(optpipe::stage s) { return (*stages_)[s.position()]; }
    adamw<Real>& optimizer(optpipe::stage s) { return optimizers_[s.position()]; }
    /// The step that the stage is at, counted from 0.
    [[nodiscard]] std::size_t step_of(optpipe::stage s) { return position(s).step; }
    /// Records the loss, and proceeds to the next pieces of the text.
    void end_step(optpipe::stage s) {
        auto& now = position(s);
        losses_.resize(std::max(losses_.size(), now.step + 1));
        losses_[now.step] += stage(s).take_loss() * now.text.share();
        at_[s.position()] = make_position(now.step + 1);
    }

private:
    struct place {
        std::size_t step = 0;
        text_step text;
    };

    std::unique_ptr<place> make_position(std::size_t step) const {
        return std::make_unique<place>(place{step, text_step{text_, shape_, microbatches_ * replica_.replicas, step}});
    }
    place& position(optpipe::stage s) {
        auto& at = at_[s.position()];
        if (!at) at = make_position(0);
        return *at;
    }
    [[nodiscard]] text_batch batch_of(const place& at, optpipe::microbatch m) const {
        return at.text[replica_.self * microbatches_ + m.position()];
    }
    stash_packer<model_stage<Real>>& packer(optpipe::stage s) {
        auto& found = packers_[s.position()];
        if (!found) found.emplace(stage(s));
        return *found;
    }

protected:
    static std::span<Real> reals(std::span<std::byte> bytes) {
        return {reinterpret_cast<Real*>(bytes.data()), bytes.size() / sizeof(Real)};
    }
    static std::span<const Real> reals(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const Real*>(bytes.data()), bytes.size() / sizeof(Real)};
    }
    static std::vector<std::span<Real>> reals(std::span<const optpipe::execution::slice_memory> slices) {
        std::vector<std::span<Real>> all;
        for (const auto& each : slices)
            all.push_back(reals(each.data));
        return all;
    }
    static std::span<Real> reals(optpipe::execution::stash_part part) {
        return reals(optpipe::execution::contiguous(part));
    }

private:
    std::vector<model_stage<Real>>* stages_;
    std::string text_;
    shape shape_;
    std::size_t microbatches_;
    std::vector<stash_storage> storage_;
    replica_place replica_;
    std::vector<std::unique_ptr<place>> at_;
    std::vector<std::optional<stash_packer<model_stage<Real>>>> packers_;
    std::vector<adamw<Real>> optimizers_;
    std::vector<double> losses_;
};

} // namespace language_model
