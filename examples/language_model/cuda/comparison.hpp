#pragma once

#include "../adamw.hpp"
#include "../shape.hpp"
#include "../stage.hpp"
#include "device_adamw.hpp"
#include "device_math.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace language_model {

/// The difference between two results, relative to their size.
struct difference {
    std::string what;
    double relative = 0.0;
};

/// The largest relative difference over pieces of `width` elements. A piece smaller than a hundredth of `expected`
/// counts as that large. NaN if any value isn't a number, or is missing.
[[nodiscard]] inline double relative_difference(std::span<const double> expected, std::span<const float> is,
                                                std::size_t width) {
    const auto norm = [](std::span<const double> x) {
        double sum = 0.0;
        for (const double each : x)
            sum += each * each;
        return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(x.size(), 1)));
    };
    if (is.size() < expected.size()) return std::nan("");
    const double all = norm(expected);
    double worst = 0.0;
    for (std::size_t begin = 0; begin < expected.size(); begin += width) {
        const auto here = expected.subspan(begin, std::min(width, expected.size() - begin));
        std::vector<double> apart;
        for (std::size_t i = 0; i < here.size(); ++i)
            apart.push_back(static_cast<double>(is[begin + i]) - here[i]);
        const double relative = norm(apart) / (norm(here) + 0.01 * all + 1e-30);
        if (!(relative <= worst)) worst = relative;
        if (std::isnan(worst)) break;
    }
    return worst;
}

/// Runs the same stage on a device and, in double precision, on the host, and reports the difference after each
/// operation.
template <class Device> class stage_comparison {
public:
    /// Compares pieces of `width` elements; 0: only the whole.
    stage_comparison(Device& on, const shape& s, const stage_place& place, std::size_t width)
        : on_{on}, shape_{s}, width_{width}, host_{s, place, seed}, device_{s, place, seed, device_math<Device>{on}} {
        // Scales start as 1 and shifts as 0; other values reveal errors that mix them up.
        const auto there = device_.parameters();
        auto moved = on_.template load<float>(there);
        const auto by = normals(moved.size(), 0);
        for (std::size_t i = 0; i < moved.size(); ++i)
            host_.parameters()[i] = static_cast<double>(moved[i] += 0.1F * static_cast<float>(by[i]));
        on_.template overwrite<float>(there, moved);
    }

    [[nodiscard]] std::vector<difference> run() {
        tokens_ = bytes(1);
        targets_ = bytes(2);
        const text_batch text{tokens_, targets_};
        auto there_tokens = on_.store(tokens_);
        auto there_targets = on_.store(targets_);
        const text_batch there{{there_tokens.data(), there_tokens.size()},
                               {there_targets.data(), there_targets.size()}};
        // Fills all buffers with stale numbers, so that anything not written is wrong.
        buffers kept{on_, host_.kept(), 3}, freed{on_, host_.freed(), 4}, out{on_, host_.boundary(), 5};
        buffers in{on_, host_.boundary(), 6}, gradient{on_, host_.boundary(), 7};
        for (int i = 0; i < 2; ++i) { // losses add up
            host_.forward(text, in.here, kept.here, freed.here, out.here);
            device_.forward(there, in.reals(), kept.reals(), freed.reals(), out.reals());
        }
        compare("output of F", out);
        compare("kept stash of F", kept);
        compare("freed stash of F", freed);
        host_.backward_input(text, share, gradient.here, kept.here, freed.here, out.here);
        device_.backward_input(there, static_cast<float>(share), gradient.reals(), kept.reals(), freed.reals(),
                               out.reals());
        compare("output of I", out);
        compare("kept stash of I", kept);
        for (int i = 0; i < 2; ++i) {
            host_.backward_weight(text, kept.here);
            device_.backward_weight(there, kept.reals());
        }
        compare("gradients, twice", host_.gradients(), on_.template load<float>(device_.gradients()));
        const double loss = host_.take_loss();
        found_.push_back({"loss", std::abs(device_.take_loss() - loss) / (std::abs(loss) + 1e-30)});
        compare_optimizers();
        return found_;
    }

private:
    static constexpr std::uint64_t seed = 5;
    static constexpr double share = 0.01;

    static std::vector<double> normals(std::size_t count, std::uint64_t from) {
        std::mt19937_64 bits{from};
        std::normal_distribution<double> normal;
        std::vector<double> all(count);
        for (double& x : all)
            x = static_cast<double>(static_cast<float>(normal(bits)));
        return all;
    }
    std::vector<std::uint8_t> bytes(std::uint64_t from) const {
        std::mt19937_64 bits{from};
        std::vector<std::uint8_t> all(shape_.tokens());
        for (auto& x : all)
            x = static_cast<std::uint8_t>(bits() % shape_.vocabulary);
        return all;
    }
    /// Buffers with the same numbers on both sides.
    struct buffers {
        buffers(Device& on, std::size_t count, std::uint64_t from)
            : here{normals(count, from)}, there{on.store(std::vector<float>(here.begin(), here.end()))} {}
        std::span<float> reals() { return {there.data(), there.size()}; }
        std::vector<double> here;
        typename Device::template array<float> there;
    };

    void compare(const std::string& what, std::span<const double> expected, const std::vector<float>& is) {
        found_.push_back({what, relative_difference(expected, is, width_ > 0 ? width_ : expected.size())});
    }
    void compare(const std::string& what, buffers& both) {
        compare(what, both.here, on_.template load<float>(both.reals()));
    }
    /// Uses given gradients: the direction of a step is a quotient, which amplifies tiny differences.
    void compare_optimizers() {
        constexpr std::size_t count = 1000;
        const adamw_rates rates{.learning_rate = 0.1};
        adamw<double> host{count, rates};
        device_adamw<Device> device{on_, count, rates};
        buffers parameters{on_, count, 8};
        for (std::uint64_t step = 0; step < 4; ++step) {
            buffers gradients{on_, count, 9 + step};
            host.step(parameters.here, gradients.here);
            device.step(parameters.reals(), gradients.reals());
            compare("gradients after a step", gradients);
        }
        compare("parameters after four steps", parameters);
    }

    Device& on_;
    shape shape_;
    std::size_t width_;
    model_stage<double> host_;
    model_stage<float, device_math<Device>> device_;
    std::vector<std::uint8_t> tokens_, targets_;
    std::vector<difference> found_;
};

} // namespace language_model
