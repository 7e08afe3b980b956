#pragma once

#include "device_pipeline.hpp"
#include <optpipe/core/index.hpp>
#include <optpipe/execution/gradient_state.hpp>

#include <cstddef>
#include <map>
#include <vector>

namespace language_model {

/// A `device_pipeline` for `post_validated`: gradients are scaled down if the norm over all stages is too large, and a
/// step is skipped if a gradient overflowed. It keeps a copy of the parameters and moments before the last step. The
/// next text and the loss are requested between two steps.
template <class Device> class reversible_device_pipeline : public device_pipeline<Device> {
public:
    using device_pipeline<Device>::device_pipeline;

    /// Allocates everything before the first step.
    void prepare(optpipe::stage s) {
        device_pipeline<Device>::prepare(s);
        auto& on = this->device();
        const auto parameters = this->stage(s).parameters().size();
        const auto rows = (parameters + summed_at_once - 1) / summed_at_once;
        stages_.try_emplace(s.position(), reversible_stage{on.store(std::vector<float>(parameters)),
                                                           {on, parameters, this->rates()},
                                                           on.store(std::vector<float>(rows))});
    }

    /// Sums in single precision within a row, and in double precision over the rows.
    template <class Lane> double gradient_squares(Lane& lane, optpipe::stage s) {
        auto& on = this->device();
        on.use(lane.stream().native());
        auto& sums = stages_.at(s.position()).sums;
        const auto gradients = this->stage(s).gradients();
        on.for_each_row(sums.size(),
                        kernels::sums_of_squares{gradients.data(), gradients.size(), summed_at_once, sums.data()});
        double sum = 0.0;
        for (const float each : on.template load_in_order<float>({sums.data(), sums.size()}))
            sum += static_cast<double>(each);
        return sum;
    }
    template <class Lane> void update(Lane& lane, optpipe::stage s, const optpipe::execution::update_decision& by) {
        auto& on = this->device();
        on.use(lane.stream().native());
        auto& before = stages_.at(s.position());
        const auto parameters = this->stage(s).parameters();
        on.copy(parameters.data(), before.parameters.data(), parameters.size());
        before.optimizer.take_state(this->optimizer(s));
        make_step(s, by);
    }
    template <class Lane> void revise(Lane& lane, optpipe::stage s, const optpipe::execution::update_decision& by) {
        auto& on = this->device();
        on.use(lane.stream().native());
        const auto& before = stages_.at(s.position());
        const auto parameters = this->stage(s).parameters();
        on.copy(before.parameters.data(), parameters.data(), parameters.size());
        this->optimizer(s).take_state(before.optimizer);
        make_step(s, by);
    }
    template <class Lane> void settle(Lane& lane, optpipe::stage s) {
        auto& on = this->device();
        on.use(lane.stream().native());
        const auto gradients = this->stage(s).gradients();
        on.clear(gradients.data(), gradients.size());
    }
    template <class Lane> void abandon(Lane&, optpipe::stage) {}

private:
    static constexpr std::size_t summed_at_once = 4096; // gradients per row: few sums, and enough rows to fill a GPU

    /// The state before the last step.
    struct reversible_stage {
        typename Device::template array<float> parameters;
        device_adamw<Device> optimizer;
        /// Sums of squares of gradients.
        typename Device::template array<float> sums;
    };

    void make_step(optpipe::stage s, const optpipe::execution::update_decision& by) {
        if (by.is_skip()) return;
        auto& at = this->stage(s);
        this->optimizer(s).step(at.parameters(), at.gradients(), static_cast<float>(by.scale));
    }

    std::map<std::size_t, reversible_stage> stages_{};
};

} // namespace language_model
