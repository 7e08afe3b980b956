#pragma once

#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Lower bounds on the longest forward and on the longest gradient of some stages.
struct pace {
    duration forward{};
    duration gradient{};
    [[nodiscard]] constexpr duration any() const { return std::max(forward, gradient); }
    friend constexpr pace max(const pace& a, const pace& b) {
        return {std::max(a.forward, b.forward), std::max(a.gradient, b.gradient)};
    }
};

/// The paces of ranks' first stages and second stages.
using paces_of_stages = std::array<pace, 2>;
[[nodiscard]] constexpr paces_of_stages max(const paces_of_stages& a, const paces_of_stages& b) {
    return {max(a[0], b[0]), max(a[1], b[1])};
}

/// The paces of the stages that a microbatch passes before a rank's first stage, between the rank's stages, and after
/// its last stage.
struct surroundings {
    pace before{};
    pace between{};
    pace after{};
    /// The least times from the end of the first stage's forward to the start of the second stage's, and from the end
    /// of the second stage's gradient to the start of the first stage's.
    duration there{};
    duration back{};
};

/// The times of a stage's work on one microbatch, at the speed of the rank, and the least times before and after the
/// work.
struct stage_load {
    duration forward{};
    /// The time of I or, if backwards aren't split, of B.
    duration gradient{};
    /// The time of W. 0 if backwards aren't split.
    duration weight{};
    /// The least time from the beginning of the step to the stage's first forward.
    duration before{};
    /// The least time from the start of a forward to the end of its gradient.
    duration lifetime{};
    /// The least time from the end of any gradient of the stage to the end of the step.
    duration after{};
    /// Lower bounds on the longest forward before this stage, on the longest operation of a later stage, and on the
    /// longest gradient of an earlier stage.
    duration pace_before{};
    duration pace_later{};
    duration pace_after{};
    /// The least device memory that a stash takes during its lifetime.
    memory_size stash{};
    /// The least device memory of a stash from its gradient to the end of W.
    memory_size weight_stash{};
};

/// Decides whether a rank may do all work of its one or two stages within an objective. The rules below hold for every
/// schedule. For a rank's engaged time, `before` begins at the rank's first start, and `after` ends at its last end.
///
/// *Windows.* The kinds of work of a rank are F0, F1, gradients of 1 and gradients of 0, in this sequence. Along the
/// sequence, the least time before a kind increases, and the least time after a kind decreases. A window begins when
/// kind i may begin, and ends when kind j must have ended. All work is in the window, except work of the kinds before i
/// and after j. The k-th operation of a kind starts at least k − 1 paces after the first operation may start. Before
/// the window, the pace is the longest operation that a microbatch passes before the kind. After the window, the same
/// holds in reversed time, and the pace is the longest operation that a microbatch passes after the kind. If a stage's
/// gradients don't run before the window, the stashes of its earlier forwards fit in memory together. If a stage's
/// forwards don't run after the window, the stashes of its later gradients fit in memory together. A microbatch that
/// passes the second stage before the window has a stash of the first stage when the window begins. A microbatch that
/// passes the second stage after the window has a stash of the first stage when the window ends. If j isn't before i,
/// the window can't be reversed, because it has operations of kind i. If j is before i, the window may be reversed, and
/// a reversed window refutes nothing. W may run after every kind j, unless the window ends with the step.
///
/// *Rounds.* With memory for k stashes of a stage, forward m + k starts after m gradients have ended
/// (`stash_rounds_bound`).
///
/// *Memory × time.* On average, the rank holds microbatches × lifetime / time stashes of each stage. The average is a
/// mixture of the numbers of stashes that fit together.
class rank_load {
public:
    /// `room` is the memory for stashes. Contract: there are one or two stages, in the order of the pipeline. A missing
    /// second stage is empty.
    rank_load(std::array<stage_load, 2> stages, std::size_t count, std::size_t microbatches, memory_size room)
        : stages_{stages}, count_{count}, microbatches_{static_cast<double>(microbatches)}, room_{room} {}

    [[nodiscard]] bool has_time(duration objective) const {
        std::array<duration, 4> after{};
        for (std::size_t end = 0; end < kinds(); ++end)
            after[end] = left_after(end);
        for (std::size_t begin = 0; begin < kinds(); ++begin) {
            if (head(begin) + all(true) - done_before(begin, true) > objective) return false;
            const auto left = all(false) - done_before(begin, false);
            for (std::size_t end = 0; end < kinds(); ++end) {
                const auto around = head(begin) + tail(end);
                if (end < begin && around > objective) continue;
                if (around + left - after[end] > objective) return false;
            }
        }
        return true;
    }
    [[nodiscard]] bool has_time_for_rounds(duration objective) const {
        for (std::size_t s = 0; s < count_; ++s) {
            const auto& each = stages_[s];
            const auto fit = fitting(each.stash, room_);
            if (fit >= microbatches_) continue;
            if (fit < 1.0) return false;
            const auto rounds = std::floor((microbatches_ - 1.0) / fit);
            const auto rest = microbatches_ - 1.0 - rounds * fit;
            const auto last = rest * std::max(each.forward, each.gradient) + each.lifetime + each.after;
            if (each.before + rounds * (each.lifetime + delay(each, fit)) + last > objective) return false;
        }
        return true;
    }
    /// Whether the stashes of all microbatches fit in memory, if the rank holds stashes for at most `time`.
    [[nodiscard]] bool has_memory(duration time) const {
        const auto average = [&](const stage_load& each) { return microbatches_ * (each.lifetime / time); };
        const auto first = average(stages_[0]);
        const auto second = average(stages_[1]);
        if (std::ceil(first) * stages_[0].stash + std::ceil(second) * stages_[1].stash <= room_) return true;
        const auto most = fitting(stages_[0].stash, room_);
        return first <= most && second <= second_in_mixture(first, most);
    }

private:
    [[nodiscard]] std::size_t kinds() const { return 2 * count_; }
    /// The stage to which the work of this kind belongs.
    [[nodiscard]] const stage_load& stage_of(std::size_t kind) const {
        return stages_[kind < count_ ? kind : kinds() - 1 - kind];
    }
    [[nodiscard]] duration length(std::size_t kind) const {
        return kind < count_ ? stage_of(kind).forward : stage_of(kind).gradient;
    }
    /// The least time before the first operation of a kind.
    [[nodiscard]] duration head(std::size_t kind) const {
        const auto& s = stage_of(kind);
        return kind < count_ ? s.before : s.before + s.lifetime - s.gradient;
    }
    /// The least time after the last operation of a kind.
    [[nodiscard]] duration tail(std::size_t kind) const {
        const auto& s = stage_of(kind);
        return kind < count_ ? s.lifetime - s.forward + s.after : s.after;
    }
    /// The work for all microbatches, with or without W.
    [[nodiscard]] duration all(bool with_weights) const {
        duration sum{};
        for (const auto& s : stages_)
            sum += microbatches_ * (s.forward + s.gradient + (with_weights ? s.weight : duration{}));
        return sum;
    }
    /// The most work that is done before the first operation of a kind. `with_weights` says whether W counts.
    [[nodiscard]] duration done_before(std::size_t kind, bool with_weights) const {
        const auto done = [&](std::size_t of) {
            const auto& s = stage_of(of);
            const auto pace = of < count_ ? s.pace_before : std::max({s.pace_before, s.forward, s.pace_later});
            return of < kind ? most_in(head(kind) - head(of), length(of), pace) : duration{};
        };
        const auto& second = stages_[1];
        return most_together({{done(0), count_ > 1 ? done(1) : duration{}}, count_ > 1 ? done(2) : duration{}},
                             {{stages_[0].forward, second.forward}, second.gradient},
                             with_weights ? second.weight : duration{});
    }
    /// The most work that is left after the last operation of a kind, without W.
    [[nodiscard]] duration left_after(std::size_t kind) const {
        const auto left = [&](std::size_t of) {
            const auto& s = stage_of(of);
            const auto pace = of < count_ ? std::max({s.pace_later, s.gradient, s.pace_after}) : s.pace_after;
            return of > kind ? most_in(tail(kind) - tail(of), length(of), pace) : duration{};
        };
        const auto& second = stages_[1];
        return most_together(
            {{left(kinds() - 1), count_ > 1 ? left(2) : duration{}}, count_ > 1 ? left(1) : duration{}},
            {{stages_[0].gradient, second.gradient}, second.forward}, duration{});
    }
    /// The most work of one kind in some time, if its operations start at least `pace` apart.
    [[nodiscard]] duration most_in(duration time, duration length, duration pace) const {
        if (length <= duration{} || time <= duration{}) return {};
        const auto apart = std::max(length, pace);
        const auto full = std::floor(time / apart);
        return std::min(full * length + std::min(length, time - full * apart), microbatches_ * length);
    }
    /// Times of operations on one side of a window. Before the window, `outer` are the forwards of each stage, and
    /// `inner` are the gradients of the second stage. After the window, `outer` are the gradients of each stage, and
    /// `inner` are the forwards of the second stage.
    struct outside {
        std::array<duration, 2> outer{};
        duration inner{};
    };
    /// The largest work on one side of a window, at most `most`. The operations have the lengths `length`, and each
    /// inner operation comes with `weight`. A microbatch has a stash of the first stage at the window's edge if its
    /// outer operation of the first stage is on this side. A microbatch also has a stash of the second stage if only
    /// the outer operation of this stage is on this side. The stashes at the window's edge fit in memory together.
    [[nodiscard]] duration most_together(const outside& most, const outside& length, duration weight) const {
        const auto inner = count_of(most.inner, length.inner);
        duration largest{};
        for (auto n = fitting(stages_[0].stash, room_); n >= 0.0; --n) {
            const auto beside = second_beside(n);
            const auto done = std::min(n, inner);
            const auto begun = std::min(n, done + beside);
            largest = std::max(largest, std::min(n * length.outer[0], most.outer[0]) +
                                            std::min(begun * length.outer[1], most.outer[1]) +
                                            std::min(done * length.inner, most.inner) + done * weight);
            if (done >= inner && begun * length.outer[1] >= most.outer[1] && n * length.outer[0] >= most.outer[0])
                break;                          // nothing is left to add
            if (beside >= microbatches_) break; // fewer make room for no more
        }
        return largest;
    }
    /// The largest number of operations of length `length` begun in `time`, or 0 if there is no time for any.
    [[nodiscard]] double count_of(duration time, duration length) const {
        if (length <= duration{}) return microbatches_;
        return std::ceil(time / length);
    }
    [[nodiscard]] double fitting(memory_size stash, memory_size room) const {
        if (microbatches_ * stash <= room) return microbatches_;
        return std::max(0.0, std::floor(room / stash));
    }
    /// The number of the second stage's stashes that fit beside `n` stashes of the first stage.
    [[nodiscard]] double second_beside(double n) const {
        return fitting(stages_[1].stash, std::max(room_ - n * stages_[0].stash, memory_size{}));
    }
    /// The largest mean number of second stashes beside a mean of `first` first stashes. At most `most` first stashes
    /// fit. The result is the least concave function above `second_beside`. O(most). Contract: `first` is at most
    /// `most`.
    [[nodiscard]] double second_in_mixture(double first, double most) const {
        struct point {
            double first = 0.0;
            double second = 0.0;
        };
        const auto at = [](const point& a, const point& b, double x) {
            return a.second + (b.second - a.second) * ((x - a.first) / (b.first - a.first));
        };
        std::vector<point> corners;
        for (double n = 0.0; n <= most; ++n) {
            const point next{n, second_beside(n)};
            const auto is_below = [&] {
                const auto& last = corners.back();
                return last.second <= at(corners[corners.size() - 2], next, last.first);
            };
            while (corners.size() > 1 && is_below())
                corners.pop_back();
            corners.push_back(next);
        }
        const auto after =
            std::find_if(corners.begin(), corners.end(), [&](const point& p) { return p.first >= first; });
        return after == corners.begin() ? after->second : at(*(after - 1), *after, first);
    }
    /// The time that a forward waits for memory after the end of a gradient, as in `stash_rounds.hpp`.
    [[nodiscard]] duration delay(const stage_load& each, double fit) const {
        const auto least = std::min(each.stash, each.weight_stash);
        return fit * each.stash + least > room_ ? std::min(each.weight, each.gradient) : duration{};
    }

    std::array<stage_load, 2> stages_;
    std::size_t count_;
    double microbatches_;
    memory_size room_;
};

} // namespace optpipe::detail
