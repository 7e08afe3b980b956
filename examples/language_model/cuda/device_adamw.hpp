#pragma once

#include "../adamw.hpp"
#include "kernels.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace language_model {

/// `adamw` on a device, with its state in float.
template <class Device> class device_adamw {
public:
    device_adamw(Device& on, std::size_t parameters, const adamw_rates& rates)
        : on_{&on}, rates_{rates}, mean_{on.store(std::vector<float>(parameters))},
          square_{on.store(std::vector<float>(parameters))}, powers_{on.store(std::vector<double>{1.0, 1.0})} {}

    /// Applies the gradients, and sets them to zero.
    void step(std::span<float> parameters, std::span<float> gradients) {
        step(parameters, gradients, 1.0F);
        on_->clear(gradients.data(), gradients.size());
    }
    /// Multiplies the gradients by `scale` first, and leaves them unchanged.
    void step(std::span<float> parameters, std::span<const float> gradients, float scale) {
        on_->for_each(1, kernels::count_step{rates_.first_decay, rates_.second_decay, powers_.data()});
        on_->for_each(
            parameters.size(),
            kernels::adamw_step{static_cast<float>(rates_.learning_rate), static_cast<float>(rates_.first_decay),
                                static_cast<float>(rates_.second_decay), static_cast<float>(rates_.weight_decay),
                                static_cast<float>(rates_.epsilon), powers_.data(), gradients.data(), scale,
                                mean_.data(), square_.data(), parameters.data()});
    }
    /// Copies the moments and the number of steps of another optimizer, which has equally many parameters.
    void take_state(const device_adamw& other) {
        on_->copy(other.mean_.data(), mean_.data(), mean_.size());
        on_->copy(other.square_.data(), square_.data(), square_.size());
        on_->for_each(powers_.size(), kernels::copy_doubles{other.powers_.data(), powers_.data()});
    }

private:
    Device* on_;
    adamw_rates rates_;
    typename Device::template array<float> mean_, square_;
    /// The decays, raised to the number of steps taken.
    typename Device::template array<double> powers_;
};

} // namespace language_model
