#pragma once

#include "../stage.hpp"
#include "../stash_storage.hpp"
#include "device_adamw.hpp"
#include "device_math.hpp"
#include "device_text.hpp"
#include <optpipe/core/index.hpp>
#include <optpipe/execution/stage_model.hpp>

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace language_model {

template <class Device> using device_stage = model_stage<float, device_math<Device>>;

/// The stages of one rank on a device, as the model of a program: each operation puts its kernels into the lane's
/// stream. In addition to the requirements of `device_math`, the device has `use(stream)`, which selects the stream for
/// the following work. Parts of a stash must be contiguous (`part_placement::contiguous`), and aligned for floats.
template <class Device> class device_pipeline {
public:
    /// Borrows all three. The stages compute on `on`; every rank sees all stages, and uses its own. `storage` are the
    /// options that `set_storage` gave the problem.
    device_pipeline(Device& on, std::vector<device_stage<Device>>& stages, const device_text<Device>& text,
                    const adamw_rates& rates = {}, std::vector<stash_storage> storage = {})
        : on_{&on}, stages_{&stages}, text_{&text}, rates_{rates}, storage_{std::move(storage)} {}

    /// Whether updates change parameters; if not, gradients are left unchanged, too.
    void learn(bool yes) { learns_ = yes; }
    /// Allocates everything before the first step.
    void prepare(optpipe::stage s) {
        if (!storage_.empty()) packers_.try_emplace(s.position(), stage(s));
        optimizers_.try_emplace(s.position(), *on_, stage(s).parameters().size(), rates_);
    }

    template <class Lane> void forward(Lane& lane, const optpipe::execution::forward_task& t) {
        on_->use(lane.stream().native());
        if (!storage_.empty())
            return packers_.at(t.stage.position())
                .forward(storage_[t.storage], (*text_)[t.microbatch.position()], floats(t.input), floats(t.output), t);
        stage(t.stage).forward((*text_)[t.microbatch.position()], floats(t.input), floats(t.kept), floats(t.freed),
                               floats(t.output));
    }
    template <class Lane> void backward_input(Lane& lane, const optpipe::execution::backward_task& t) {
        on_->use(lane.stream().native());
        if (!storage_.empty())
            return packers_.at(t.stage.position())
                .backward_input(storage_[t.storage], (*text_)[t.microbatch.position()],
                                static_cast<float>(text_->share()), floats(t.input), floats(t.output), t);
        stage(t.stage).backward_input((*text_)[t.microbatch.position()], static_cast<float>(text_->share()),
                                      floats(t.input), floats(t.kept), floats(t.freed), floats(t.output));
    }
    template <class Lane> void backward_weight(Lane& lane, const optpipe::execution::weight_task& t) {
        on_->use(lane.stream().native());
        if (!storage_.empty())
            return packers_.at(t.stage.position())
                .backward_weight(storage_[t.storage], (*text_)[t.microbatch.position()], t);
        stage(t.stage).backward_weight((*text_)[t.microbatch.position()], floats(t.kept));
    }
    /// The data recomputed inside a full backward serves both of its halves.
    template <class Lane> void backward(Lane& lane, const optpipe::execution::backward_task& t) {
        if (storage_.empty()) {
            backward_input(lane, t);
            return backward_weight(lane, {.stage = t.stage, .microbatch = t.microbatch, .kept = t.kept});
        }
        on_->use(lane.stream().native());
        packers_.at(t.stage.position())
            .backward(storage_[t.storage], (*text_)[t.microbatch.position()], static_cast<float>(text_->share()),
                      floats(t.input), floats(t.output), t);
    }
    /// Used only with storage options.
    template <class Lane> void recompute(Lane& lane, const optpipe::execution::recompute_task& t) {
        on_->use(lane.stream().native());
        packers_.at(t.stage.position()).recompute(storage_.at(t.storage), (*text_)[t.microbatch.position()], t);
    }
    template <class Lane> void update(Lane& lane, optpipe::stage s) {
        if (!learns_) return;
        on_->use(lane.stream().native());
        optimizer(s).step(stage(s).parameters(), stage(s).gradients());
    }

protected:
    device_stage<Device>& stage(optpipe::stage s) { return (*stages_)[s.position()]; }
    device_adamw<Device>& optimizer(optpipe::stage s) { return optimizers_.at(s.position()); }
    [[nodiscard]] const adamw_rates& rates() const { return rates_; }
    [[nodiscard]] Device& device() { return *on_; }

private:
    static std::span<float> floats(std::span<std::byte> bytes) {
        return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
    }
    static std::span<const float> floats(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
    }
    static std::span<float> floats(optpipe::execution::stash_part part) {
        return floats(optpipe::execution::contiguous(part));
    }

    Device* on_;
    std::vector<device_stage<Device>>* stages_;
    const device_text<Device>* text_;
    adamw_rates rates_;
    std::vector<stash_storage> storage_;
    std::map<std::size_t, device_adamw<Device>> optimizers_{};
    std::map<std::size_t, stash_packer<device_stage<Device>>> packers_{};
    bool learns_ = true;
};

} // namespace language_model
