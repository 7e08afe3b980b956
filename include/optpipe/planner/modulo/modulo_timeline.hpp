#pragma once

#include "optpipe/core/standard.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::detail {

/// The reservations of one resource in a repeated period, as disjoint intervals modulo the period. Times are real
/// numbers, but only their remainders modulo the period matter.
class modulo_timeline {
public:
    struct interval {
        double start = 0.0;
        double length = 0.0;
    };
    static constexpr double never = std::numeric_limits<double>::infinity();

    modulo_timeline() = default;
    /// Intervals may overlap by `slack`.
    modulo_timeline(double period, double slack) : period_{period}, slack_{slack} {}

    [[nodiscard]] double period() const { return period_; }
    [[nodiscard]] const std::vector<interval>& intervals() const { return intervals_; }

    void take(double start, double length) {
        if (length > slack_) intervals_.push_back({start - period_ * std::floor(start / period_), length});
    }
    /// Marks the current reservations. `undo` returns to a mark.
    [[nodiscard]] std::size_t mark() const { return intervals_.size(); }
    void undo(std::size_t mark) { intervals_.resize(mark); }

    /// The first start at or after `from` with `length` free, or `never`.
    [[nodiscard]] double first_free(double from, double length) const {
        if (length > period_ + slack_) return never;
        auto at = from;
        for (std::size_t moves = 0; moves <= intervals_.size(); ++moves) {
            const auto next = end_of_obstacle(at, length);
            if (next <= at) return at;
            at = next;
        }
        return never;
    }
    /// The last start at or before `until` with `length` free, or minus infinity.
    [[nodiscard]] double last_free(double until, double length) const {
        if (length > period_ + slack_) return -never;
        auto at = until;
        for (std::size_t moves = 0; moves <= intervals_.size(); ++moves) {
            const auto next = start_before_obstacle(at, length);
            if (next >= at) return at;
            at = next;
        }
        return -never;
    }
    [[nodiscard]] bool is_free(double start, double length) const {
        return length <= period_ + slack_ && end_of_obstacle(start, length) <= start;
    }
    /// Moves a free interval later until it touches a reservation. Returns the new start. If there are no reservations,
    /// returns `start`.
    [[nodiscard]] double push_right(double start, double length) const {
        auto room = never;
        for (const auto& p : intervals_)
            room = std::min(room, period_ - distance(p, start) - length);
        return room == never || room < 0.0 ? start : start + room;
    }
    [[nodiscard]] double push_left(double start) const {
        auto room = never;
        for (const auto& p : intervals_)
            room = std::min(room, distance(p, start) - p.length);
        return room == never || room < 0.0 ? start : start - room;
    }
    /// The lengths of the gaps between the intervals. If there are no intervals, the complete period is a gap.
    [[nodiscard]] std::vector<double> gaps() const {
        if (intervals_.empty()) return {period_};
        auto sorted = intervals_;
        std::sort(sorted.begin(), sorted.end(), [](const interval& a, const interval& b) { return a.start < b.start; });
        std::vector<double> lengths;
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            const auto next = i + 1 < sorted.size() ? sorted[i + 1].start : sorted.front().start + period_;
            const auto gap = next - sorted[i].start - sorted[i].length;
            if (gap > slack_) lengths.push_back(gap);
        }
        return lengths;
    }

private:
    /// The time from the start of an interval to `at`, modulo the period.
    [[nodiscard]] double distance(const interval& p, double at) const {
        const auto d = at - p.start;
        const auto wrapped = d - period_ * std::floor(d / period_);
        return wrapped >= period_ - slack_ ? 0.0 : wrapped;
    }
    /// Looks for a reservation that overlaps the interval from `at` to `at + length`. Returns the reservation's end, or
    /// `at` if no reservation overlaps the interval.
    [[nodiscard]] double end_of_obstacle(double at, double length) const {
        for (const auto& p : intervals_) {
            const auto behind = distance(p, at);
            if (behind < p.length - slack_) return at + (p.length - behind);
            if (behind + length > period_ + slack_) return at + (period_ - behind) + p.length;
        }
        return at;
    }
    [[nodiscard]] double start_before_obstacle(double at, double length) const {
        for (const auto& p : intervals_) {
            const auto behind = distance(p, at);
            if (behind < p.length - slack_) return at - behind - length;
            if (behind + length > period_ + slack_) return at - (behind + length - period_);
        }
        return at;
    }

    double period_ = 0.0;
    double slack_ = 0.0;
    std::vector<interval> intervals_;
};

} // namespace optpipe::detail
