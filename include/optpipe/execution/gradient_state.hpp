#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::execution {

/// The optimizer's decision on the gradients of a step.
struct update_decision {
    /// Multiplies every gradient before the update; at most 1. If 0, a gradient has overflowed and the step is skipped.
    double scale = 1.0;
    [[nodiscard]] bool is_skip() const { return scale == 0.0; }
    friend bool operator==(const update_decision&, const update_decision&) = default;
};

/// The knowledge about the gradients of a step. The state holds the sum of squares of each known stage's gradients. The
/// state also tells whether ranks made updates under different decisions. Each rank adds the sums of its own stages,
/// and passes the state on.
class gradient_state {
public:
    explicit gradient_state(std::size_t stages) : squares_(stages) {}
    /// Reads a state that was written by `text`. Throws `error` if the state has another number of stages.
    gradient_state(std::size_t stages, std::string_view text);
    /// The numbers of the state, as their bytes in memory. All ranks must run on machines of the same kind.
    [[nodiscard]] std::string text() const;

    /// Adds the sum of the squares of all gradients of a stage.
    void add(stage s, double squares) { squares_[s.position()] = squares; }
    /// The decision that follows from this state. The decision is final if the state has all gradients. If the sum of
    /// squares isn't finite, the step is skipped. Gradients with a finite norm above `max_norm` are scaled down to
    /// `max_norm`. The squares are summed in the order of stages, so the ranks' order doesn't change any bit.
    [[nodiscard]] update_decision decision(double max_norm) const;

    /// Records the decision under which a rank made its update.
    void note(const update_decision& made);
    /// Whether all ranks have made their updates under the same decision.
    [[nodiscard]] bool is_unanimous() const { return !differ_; }

private:
    std::vector<double> squares_;
    std::optional<update_decision> noted_;
    bool differ_ = false;
};

} // namespace optpipe::execution

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/error.hpp"

#include <cmath>
#include <cstring>

namespace optpipe::execution {

namespace detail {

/// Written as the scale if no rank has decided yet.
inline constexpr double no_scale = -1.0;

} // namespace detail

OPTPIPE_INLINE gradient_state::gradient_state(std::size_t stages, std::string_view text) : squares_(stages + 2) {
    if (text.size() != squares_.size() * sizeof(double))
        throw error{"a state of gradients that isn't one of " + std::to_string(stages) + " stages"};
    std::memcpy(squares_.data(), text.data(), text.size());
    differ_ = squares_[stages + 1] != 0.0;
    if (const double scale = squares_[stages]; scale != detail::no_scale) noted_ = update_decision{scale};
    squares_.resize(stages);
}

OPTPIPE_INLINE std::string gradient_state::text() const {
    auto numbers = squares_;
    numbers.push_back(noted_ ? noted_->scale : detail::no_scale);
    numbers.push_back(differ_ ? 1.0 : 0.0);
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)};
}

OPTPIPE_INLINE update_decision gradient_state::decision(double max_norm) const {
    double sum = 0.0;
    for (const double each : squares_)
        sum += each;
    if (!std::isfinite(sum)) return {.scale = 0.0};
    const double norm = std::sqrt(sum);
    return {.scale = norm > max_norm ? max_norm / norm : 1.0};
}

OPTPIPE_INLINE void gradient_state::note(const update_decision& made) {
    differ_ |= noted_ && *noted_ != made;
    noted_ = made;
}

} // namespace optpipe::execution
#endif
