#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/rank_resources.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// How durations vary from step to step. All numbers are relative to the planned durations. With the defaults, nothing
/// varies.
struct noise_model {
    /// The standard deviation of each operation and message, at least 0.
    double spread = 0.0;
    /// The share (0 to 1) of the variance that is common to all operations of a rank in a step. For example, all
    /// operations are slow on a hot or busy device.
    double rank_correlation = 0.0;
    /// The probability that a link is slow for a whole step, and the factor on its durations. A link is a host link, or
    /// leads from one rank to another. Not tuned.
    double slow_link_chance = 0.0;
    double slow_link_factor = 2.0;
    /// The probability that a rank is slow for a whole step, and the factor on its durations.
    double straggler_chance = 0.0;
    double straggler_factor = 1.5;
    std::uint64_t seed = 1;
};

/// The random durations of one step under a noise model. Durations don't depend on the order: schedules are compared
/// under common random numbers. The two parts of a full backward vary like the I and W of a split backward. Durations
/// are the same on all platforms, up to the rounding of one multiplication. Borrows the model.
class step_noise {
public:
    step_noise(const noise_model& model, std::uint64_t step);
    step_noise(noise_model&&, std::uint64_t) = delete;

    [[nodiscard]] duration operator()(const problem& p, const operation& op) const;
    /// The duration of the message from an operation to another stage; `planned` is its duration without noise.
    [[nodiscard]] duration message(const problem& p, const operation& from, stage to, duration planned) const;

private:
    enum purpose : std::uint64_t { operation_time, rank_time, message_time, straggler, host_link, message_link };
    static constexpr std::uint64_t step_stride = 0x9e3779b97f4a7c15U; // an odd number, so that steps have different
                                                                      // seeds

    [[nodiscard]] random_numbers drawn_for(std::uint64_t what) const;
    static std::uint64_t key(purpose why, const operation& op);
    /// Draws whether an event of this probability happens.
    [[nodiscard]] bool chance(purpose why, std::uint64_t which, double probability) const;
    /// An approximately standard normal number, computed as the sum of twelve uniform numbers minus six. Integers are
    /// summed, because their sum is the same on all platforms.
    [[nodiscard]] double normal(std::uint64_t what) const;
    [[nodiscard]] double relative(double deviation) const;
    [[nodiscard]] double factor(rank r, const operation& op) const;

    const noise_model* model_;
    std::uint64_t seed_;
    double common_;
    double own_;
};

/// An order that is prepared to run many times with different durations.
///
/// Like `simulate`, each run starts every operation as early as possible in the given order. For `span`, the warm-up is
/// postponed to fit the random durations. A real run doesn't know these durations beforehand. Borrows the problem.
class noisy_order {
public:
    /// Contract: `simulate` accepts the order.
    noisy_order(const problem& p, const order& given);
    noisy_order(problem&&, const order&) = delete;

    /// Runs one step with the durations of `noise`.
    [[nodiscard]] schedule run(const step_noise& noise) const;
    [[nodiscard]] duration step_time(const noise_model& model, std::uint64_t step) const;

private:
    struct input {
        std::size_t step; // the earlier operation, as a position in `steps_`
        duration delay;   // the time from the end of the earlier operation until its output arrives
    };
    struct prepared {
        operation op{};
        optpipe::rank rank{};
        detail::occupied_lanes lanes{};
        memory_effect effect{};
        std::vector<input> inputs{};
    };

    const problem* problem_;
    std::vector<prepared> steps_{};
};

/// Runs step `step` with the random durations of the model.
[[nodiscard]] schedule simulate(const problem& p, const order& given, const noise_model& model, std::uint64_t step);

/// The durations of the first `count` steps under a noise model.
[[nodiscard]] std::vector<duration> step_times(const problem& p, const order& given, const noise_model& model,
                                               std::size_t count);

[[nodiscard]] duration mean_of(const std::vector<duration>& times);

/// The position of a percentile among `count` sorted values, counted from 1. Contract: `count` is above 0.
[[nodiscard]] std::size_t percentile_rank(std::size_t count, double percent);

/// The least value such that at least `percent` % of all values are no larger. Contract: `values` isn't empty.
[[nodiscard]] duration percentile_of(std::vector<duration> values, double percent);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE step_noise::step_noise(const noise_model& model, std::uint64_t step)
    : model_{&model}, seed_{random_numbers{model.seed + step_stride * (step + 1)}.next()},
      common_{std::sqrt(model.rank_correlation)}, own_{std::sqrt(1.0 - model.rank_correlation)} {}

OPTPIPE_INLINE duration step_noise::operator()(const problem& p, const operation& op) const {
    const rank r = p.rank_of(op.stage);
    const auto planned = duration_of(p, op);
    double slow = chance(straggler, r.value(), model_->straggler_chance) ? model_->straggler_factor : 1.0;
    if (is_transfer(op.kind) && chance(host_link, p.transfer.link[r], model_->slow_link_chance))
        slow *= model_->slow_link_factor;
    if (op.kind != operation_kind::backward) return slow * factor(r, op) * planned;
    const auto weight = p.cost(op.stage, op.microbatch).backward_weight;
    return slow * (factor(r, sibling(op, operation_kind::backward_input)) * (planned - weight) +
                   factor(r, sibling(op, operation_kind::backward_weight)) * weight);
}

OPTPIPE_INLINE duration step_noise::message(const problem& p, const operation& from, stage to, duration planned) const {
    if (planned == duration{}) return planned;
    const auto pair = (std::uint64_t{p.rank_of(from.stage).value()} << 32U) | p.rank_of(to).value();
    const double slow = chance(message_link, pair, model_->slow_link_chance) ? model_->slow_link_factor : 1.0;
    const auto kind = is_gradient(from.kind) ? operation_kind::backward_input : from.kind;
    return slow * relative(normal(key(message_time, sibling(from, kind)))) * planned;
}

OPTPIPE_INLINE random_numbers step_noise::drawn_for(std::uint64_t what) const {
    return random_numbers{seed_ ^ random_numbers{what}.next()};
}

OPTPIPE_INLINE std::uint64_t step_noise::key(purpose why, const operation& op) {
    return (static_cast<std::uint64_t>(why) << 60U) | (static_cast<std::uint64_t>(op.kind) << 56U) |
           (std::uint64_t{op.stage.value()} << 32U) | op.microbatch.value();
}

OPTPIPE_INLINE bool step_noise::chance(purpose why, std::uint64_t which, double probability) const {
    if (probability <= 0.0) return false;
    auto random = drawn_for((static_cast<std::uint64_t>(why) << 60U) | which);
    return std::ldexp(static_cast<double>(random.next() >> 11U), -53) < probability;
}

OPTPIPE_INLINE double step_noise::normal(std::uint64_t what) const {
    auto random = drawn_for(what);
    constexpr std::int64_t twice_the_mean = 12 * 65535;
    std::int64_t sum = 0;
    for (int i = 0; i < 3; ++i)
        for (auto bits = random.next(), k = std::uint64_t{0}; k < 4; ++k, bits >>= 16U)
            sum += static_cast<std::int64_t>(bits & 0xffffU);
    return static_cast<double>(2 * sum - twice_the_mean) / 131072.0;
}

OPTPIPE_INLINE double step_noise::relative(double deviation) const {
    constexpr double least = 0.1; // a lower limit on factors: every operation takes time
    return std::max(least, 1.0 + model_->spread * deviation);
}

OPTPIPE_INLINE double step_noise::factor(rank r, const operation& op) const {
    if (model_->spread <= 0.0) return 1.0;
    const double own = own_ > 0.0 ? own_ * normal(key(operation_time, op)) : 0.0;
    const double common =
        common_ > 0.0 ? common_ * normal((static_cast<std::uint64_t>(rank_time) << 60U) | r.value()) : 0.0;
    return relative(own + common);
}

OPTPIPE_INLINE noisy_order::noisy_order(const problem& p, const order& given) : problem_{&p} {
    const operation_numbering<any_graph> number{p.graph};
    constexpr auto none = std::numeric_limits<std::size_t>::max();
    std::vector<std::size_t> at(number.size(), none);
    const detail::rank_resources<any_graph> resources{p, tolerance{}};
    for (const auto& op : with_storage_of_transfers(p, given).operations) {
        const rank r = p.rank_of(op.stage);
        prepared next{op, r, resources.lanes_of(op.kind, r), memory_effect_of(p, op), {}};
        for_each_dependency(p, op, stash_way_of(p, op), [&](const operation& before, duration delay) {
            auto found = at[number(before)];
            if (found == none && before.kind == operation_kind::backward_input)
                found = at[number(backward(before.stage, before.microbatch))];
            OPTPIPE_EXPECT(found != none, "noisy_order: an operation comes before its input");
            next.inputs.push_back({found, delay});
        });
        at[number(op)] = steps_.size();
        steps_.push_back(std::move(next));
    }
}

OPTPIPE_INLINE schedule noisy_order::run(const step_noise& noise) const {
    const auto& p = *problem_;
    detail::rank_resources<any_graph> resources{p, tolerance{}};
    schedule ran{p.graph, {}};
    ran.operations.reserve(steps_.size());
    for (const auto& [op, r, lanes, effect, inputs] : steps_) {
        duration ready{};
        for (const auto& [i, delay] : inputs) {
            const auto& [before, begun, ended] = ran.operations[i];
            const bool is_far = before.stage != op.stage;
            ready = std::max(ready, is_far ? ended + noise.message(p, before, op.stage, delay) : ended + delay);
        }
        const auto start = resources.earliest_start(lanes, r, effect, ready).start;
        OPTPIPE_EXPECT(!start.is_unlimited(), "noisy_order: the order doesn't fit into memory");
        const auto end = start + noise(p, op);
        resources.occupy(lanes, r, effect, start, end);
        for_each_release_of_others(p, op, [&](rank of, memory_size amount) { resources.release(of, amount, end); });
        ran.operations.push_back({op, start, end});
    }
    if (p.objective == objective_kind::span) postpone_warm_up(p, ran);
    return ran;
}

OPTPIPE_INLINE duration noisy_order::step_time(const noise_model& model, std::uint64_t step) const {
    return objective_of(*problem_, run(step_noise{model, step}));
}

OPTPIPE_INLINE schedule simulate(const problem& p, const order& given, const noise_model& model, std::uint64_t step) {
    return noisy_order{p, given}.run(step_noise{model, step});
}

OPTPIPE_INLINE std::vector<duration> step_times(const problem& p, const order& given, const noise_model& model,
                                                std::size_t count) {
    const noisy_order prepared{p, given};
    std::vector<duration> times;
    for (std::size_t i = 0; i < count; ++i)
        times.push_back(prepared.step_time(model, i));
    return times;
}

OPTPIPE_INLINE duration mean_of(const std::vector<duration>& times) {
    duration sum{};
    for (const auto t : times)
        sum += t;
    return times.empty() ? sum : sum / static_cast<double>(times.size());
}

OPTPIPE_INLINE std::size_t percentile_rank(std::size_t count, double percent) {
    OPTPIPE_EXPECT(count > 0, "percentile_rank: of no values");
    const auto position = std::ceil(1e-2 * percent * static_cast<double>(count));
    return std::clamp<std::size_t>(static_cast<std::size_t>(position), 1, count);
}

OPTPIPE_INLINE duration percentile_of(std::vector<duration> values, double percent) {
    OPTPIPE_EXPECT(!values.empty(), "percentile_of: there are no values");
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(percentile_rank(values.size(), percent) - 1);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

} // namespace optpipe
#endif
