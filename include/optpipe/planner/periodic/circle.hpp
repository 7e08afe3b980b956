#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace optpipe::detail {

/// What one resource does in a period that repeats without end: pieces of a circle, none on top of another. Times are
/// any reals; only their place in the period counts.
class circle {
public:
    struct piece {
        double start = 0.0;
        double length = 0.0;
    };
    static constexpr double never = std::numeric_limits<double>::infinity();

    circle() = default;
    /// Pieces may overlap by `slack`.
    circle(double circumference, double slack) : circumference_{circumference}, slack_{slack} {}

    [[nodiscard]] double circumference() const { return circumference_; }
    [[nodiscard]] const std::vector<piece>& pieces() const { return pieces_; }

    void take(double start, double length) {
        if (length > slack_) pieces_.push_back({start - circumference_ * std::floor(start / circumference_), length});
    }
    /// How much was taken so far, and back to there.
    [[nodiscard]] std::size_t mark() const { return pieces_.size(); }
    void undo(std::size_t mark) { pieces_.resize(mark); }

    /// The first start from `from` on at which `length` is free; `never` if there is none.
    [[nodiscard]] double first_free(double from, double length) const {
        if (length > circumference_ + slack_) return never;
        auto at = from;
        for (std::size_t moves = 0; moves <= pieces_.size(); ++moves) {
            const auto next = end_of_obstacle(at, length);
            if (next <= at) return at;
            at = next;
        }
        return never;
    }
    /// The last start up to `until` at which `length` is free; minus infinity if there is none.
    [[nodiscard]] double last_free(double until, double length) const {
        if (length > circumference_ + slack_) return -never;
        auto at = until;
        for (std::size_t moves = 0; moves <= pieces_.size(); ++moves) {
            const auto next = start_before_obstacle(at, length);
            if (next >= at) return at;
            at = next;
        }
        return -never;
    }
    [[nodiscard]] bool is_free(double start, double length) const {
        return length <= circumference_ + slack_ && end_of_obstacle(start, length) <= start;
    }
    /// A free place that is moved on until it touches what comes next; itself where nothing does.
    [[nodiscard]] double flush_ahead(double start, double length) const {
        auto room = never;
        for (const auto& p : pieces_)
            room = std::min(room, circumference_ - distance(p, start) - length);
        return room == never || room < 0.0 ? start : start + room;
    }
    [[nodiscard]] double flush_back(double start) const {
        auto room = never;
        for (const auto& p : pieces_)
            room = std::min(room, distance(p, start) - p.length);
        return room == never || room < 0.0 ? start : start - room;
    }
    /// The lengths of what is left between the pieces; the whole circle where nothing is taken.
    [[nodiscard]] std::vector<double> gaps() const {
        if (pieces_.empty()) return {circumference_};
        auto sorted = pieces_;
        std::sort(sorted.begin(), sorted.end(), [](const piece& a, const piece& b) { return a.start < b.start; });
        std::vector<double> lengths;
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            const auto next = i + 1 < sorted.size() ? sorted[i + 1].start : sorted.front().start + circumference_;
            const auto gap = next - sorted[i].start - sorted[i].length;
            if (gap > slack_) lengths.push_back(gap);
        }
        return lengths;
    }

private:
    /// From the start of a piece to `at`, on the way round.
    [[nodiscard]] double distance(const piece& p, double at) const {
        const auto d = at - p.start;
        const auto wrapped = d - circumference_ * std::floor(d / circumference_);
        return wrapped >= circumference_ - slack_ ? 0.0 : wrapped;
    }
    /// The earliest time from which on the piece that is in the way isn't any more; `at` itself where none is.
    [[nodiscard]] double end_of_obstacle(double at, double length) const {
        for (const auto& p : pieces_) {
            const auto behind = distance(p, at);
            if (behind < p.length - slack_) return at + (p.length - behind);
            if (behind + length > circumference_ + slack_) return at + (circumference_ - behind) + p.length;
        }
        return at;
    }
    [[nodiscard]] double start_before_obstacle(double at, double length) const {
        for (const auto& p : pieces_) {
            const auto behind = distance(p, at);
            if (behind < p.length - slack_) return at - behind - length;
            if (behind + length > circumference_ + slack_) return at - (behind + length - circumference_);
        }
        return at;
    }

    double circumference_ = 0.0;
    double slack_ = 0.0;
    std::vector<piece> pieces_;
};

} // namespace optpipe::detail
