#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Which of several schedules a local search goes on from. All are searched for as long; then the better half for twice
/// as long, and so on, until two were left (successive halving; Jamieson and Talwalkar, 2016). Thread-safe.
class multi_start {
public:
    struct candidate {
        schedule best{};
        duration objective{};
    };
    struct turn {
        candidate from;
        std::size_t moves = 0;
    };

    /// Begins with these, the most promising first; what was there before is dropped. Only so many are searched as can
    /// be in so many seconds.
    void begin(std::vector<candidate> starts, double seconds = std::numeric_limits<double>::infinity()) {
        const std::scoped_lock lock{mutex_};
        waiting_ = std::move(starts);
        seconds_ = seconds;
        searched_.clear();
        round_ = running_ = 0;
    }
    /// The next to be searched, and for how many moves: `first` in the first round. Empty: that is more than `most`,
    /// others of the round are still being searched, or the last round is over.
    [[nodiscard]] std::optional<turn> take(std::size_t first, std::size_t most) {
        const std::scoped_lock lock{mutex_};
        if (waiting_.empty() && running_ == 0 && !searched_.empty()) halve();
        if (waiting_.empty()) return std::nullopt;
        const auto moves = first << round_;
        if (moves > most) return std::nullopt;
        turn next{std::move(waiting_.front()), moves};
        waiting_.erase(waiting_.begin());
        ++running_;
        return next;
    }
    /// What became of one that was taken, after so many seconds.
    void put(candidate found, double seconds) {
        const std::scoped_lock lock{mutex_};
        searched_.push_back(std::move(found));
        --running_;
        if (round_ == 0) keep_first(seconds_ / (rounds * seconds));
    }

private:
    /// From eight. Each takes as long as the first: half as many, twice as long.
    static constexpr double rounds = 3.0;

    /// Drops the last of those that wait where more than `most` are searched in all.
    void keep_first(double most) {
        while (!waiting_.empty() && static_cast<double>(searched_.size() + running_ + waiting_.size()) > most)
            waiting_.pop_back();
    }
    void halve() {
        const auto kept = searched_.size() > 2 ? (searched_.size() + 1) / 2 : 0;
        std::stable_sort(searched_.begin(), searched_.end(),
                         [](const candidate& a, const candidate& b) { return a.objective < b.objective; });
        searched_.resize(kept);
        waiting_ = std::exchange(searched_, {});
        ++round_;
    }

    std::mutex mutex_{};
    std::vector<candidate> waiting_{};
    std::vector<candidate> searched_{}; ///< in this round
    std::size_t running_ = 0;
    std::size_t round_ = 0;
    double seconds_ = 0.0;
};

} // namespace optpipe::detail
