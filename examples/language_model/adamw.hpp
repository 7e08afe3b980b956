#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace language_model {

struct adamw_rates {
    double learning_rate = 3e-3;
    double first_decay = 0.9;
    double second_decay = 0.99;
    double weight_decay = 0.01;
    double epsilon = 1e-8;
};

/// AdamW (Loshchilov and Hutter 2019, algorithm 2) over one flat array of parameters.
template <class Real> class adamw {
public:
    adamw(std::size_t parameters, const adamw_rates& rates) : rates_{rates}, mean_(parameters), square_(parameters) {}

    /// Applies the gradients, and sets them to zero.
    void step(std::span<Real> parameters, std::span<Real> gradients) {
        step(parameters, gradients, 1.0);
        std::fill(gradients.begin(), gradients.end(), Real{});
    }
    /// Multiplies the gradients by `scale` first, and leaves them unchanged.
    void step(std::span<Real> parameters, std::span<const Real> gradients, double scale) {
        ++steps_;
        const double first = 1.0 - std::pow(rates_.first_decay, static_cast<double>(steps_));
        const double second = 1.0 - std::pow(rates_.second_decay, static_cast<double>(steps_));
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const auto g = scale * static_cast<double>(gradients[i]);
            mean_[i] = rates_.first_decay * mean_[i] + (1.0 - rates_.first_decay) * g;
            square_[i] = rates_.second_decay * square_[i] + (1.0 - rates_.second_decay) * g * g;
            const double direction = mean_[i] / first / (std::sqrt(square_[i] / second) + rates_.epsilon);
            const auto x = static_cast<double>(parameters[i]);
            parameters[i] = static_cast<Real>(x - rates_.learning_rate * (direction + rates_.weight_decay * x));
        }
    }

private:
    adamw_rates rates_;
    std::vector<double> mean_, square_;
    std::size_t steps_ = 0;
};

} // namespace language_model
