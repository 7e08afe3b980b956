#pragma once

#include "optpipe/milp/search/crew.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/linked_stop.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/planner/run_log.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {

/// How to race parts against each other.
struct race_options {
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    /// Of the first turns; later ones are longer.
    double turn_seconds = 0.1;
};

namespace detail {

/// Who has had how much of the time, and whose turn is next.
///
/// Turns are shared out as a fair queue shares a line: the part with the least time behind it, in proportion to its
/// weight, is next. A part's weight grows with the share of the gap that its turns close, and fades when they close
/// nothing. Each turn of a part has more effort than the one before. A part that doesn't draw has one turn at a time,
/// and rests once more effort gives it nothing more to do, until there is a better schedule to begin with. What is left
/// before the deadline goes to those whose shortest turn so far fits: in a large problem many can't stop soon after
/// they have begun.
class turns {
public:
    struct turn {
        std::size_t part = 0;
        part_options options{};
        double gap = 1.0;
        double expected_seconds = 0.0;
        /// Until it is done, or the race is over.
        bool steady = false;
    };

    turns(const search_board& board, const std::vector<any_search_part>& parts, const race_options& options)
        : board_{board}, options_{options} {
        for (const auto& part : parts) {
            entry e;
            e.part = &part;
            e.suits = part.suits(board.to_solve());
            e.effort = e.suits ? std::max<std::size_t>(1, part.first_effort(board.to_solve())) : 0;
            e.expected_seconds = options.turn_seconds;
            e.weight = part.share();
            e.steady = e.suits && options.threads > 1 && part.steady(board.to_solve());
            entries_.push_back(e);
        }
    }

    /// Waits while the only parts that could go on are at work already, or couldn't end in time. Nothing: the race is
    /// over.
    std::optional<turn> next() {
        constexpr std::chrono::milliseconds between_looks{20};
        std::unique_lock lock{mutex_};
        for (;;) {
            if (board_.done() || failed_) return std::nullopt;
            if (auto* e = least_served()) return begin(*e);
            const bool only_late = std::any_of(entries_.begin(), entries_.end(),
                                               [&](const entry& e) { return has_more(e) && is_too_late(e); });
            if (only_late)
                changed_.wait_for(lock, between_looks);
            else if (working_ == 0)
                return std::nullopt;
            else
                changed_.wait(lock);
        }
    }
    /// `cut`: it might have gone on.
    void finish(const turn& t, double seconds, bool cut) {
        const std::scoped_lock lock{mutex_};
        auto& e = entries_[t.part];
        --working_;
        --e.working;
        steady_at_work_ -= t.steady ? 1 : 0;
        e.served += seconds - t.expected_seconds;
        const double after = gap();
        const double closed = t.gap > 0.0 ? std::max(0.0, (t.gap - after) / t.gap) : 0.0;
        e.weight = fading * e.weight + (1.0 - fading) * (e.part->share() + reward * closed);
        plan_next(e, t, seconds, cut);
        changed_.notify_all();
    }
    void fail() {
        const std::scoped_lock lock{mutex_};
        failed_ = true;
        --working_;
        changed_.notify_all();
    }

private:
    static constexpr double fading = 0.7;
    static constexpr double reward = 10.0;

    struct entry {
        const any_search_part* part = nullptr;
        bool suits = true;
        bool steady = false;
        std::size_t working = 0;
        std::size_t begun = 0;
        std::size_t effort = 1;
        double expected_seconds = 0.0;
        double served = 0.0;
        double weight = 1.0;
        /// Rests until there is something better than this.
        std::optional<duration> rests_at{};
        std::size_t last_effort = 0;
        double last_seconds = 0.0;
        double shortest_seconds = 0.0;
        /// Turns in a row that took no longer although they might have.
        std::size_t idle_turns = 0;
    };

    [[nodiscard]] double gap() const {
        const auto objective = board_.objective();
        if (objective.is_unlimited() || objective <= duration{}) return 1.0;
        return std::max(0.0, (objective - board_.bound()) / objective);
    }
    /// Whether it would be begun, were there time enough.
    [[nodiscard]] bool has_more(const entry& e) const {
        if (!e.suits || (e.working > 0 && !e.part->draws())) return false;
        return !e.rests_at || board_.objective() < *e.rests_at - board_.slack();
    }
    [[nodiscard]] bool is_too_late(const entry& e) const { return e.shortest_seconds > seconds_left(); }
    entry* least_served() {
        entry* next = nullptr;
        for (auto& e : entries_)
            if (has_more(e) && !is_too_late(e) && (!next || e.served / e.weight < next->served / next->weight))
                next = &e;
        return next;
    }
    turn begin(entry& e) {
        const auto index = static_cast<std::size_t>(&e - entries_.data());
        const auto seed = options_.seed + (e.part->draws() ? e.begun : 0);
        // One thread is always left to the others.
        const bool steady = e.steady && steady_at_work_ + 1 < options_.threads;
        steady_at_work_ += steady ? 1 : 0;
        const turn t{index, {seed, steady ? most_effort : e.effort, 1}, gap(), e.expected_seconds, steady};
        ++e.begun;
        ++e.working;
        ++working_;
        e.served += t.expected_seconds;
        return t;
    }
    /// Turns grow by their results, once they are long enough to be measured.
    void plan_next(entry& e, const turn& t, double seconds, bool cut) const {
        constexpr std::size_t most_idle_turns = 2;
        const bool more_effort = e.last_effort > 0 && t.options.effort >= 2 * e.last_effort;
        const bool idle = !e.part->draws() && !cut && more_effort && seconds < 1.3 * e.last_seconds;
        e.idle_turns = idle ? e.idle_turns + 1 : 0;
        e.rests_at.reset();
        if (e.idle_turns >= most_idle_turns || (idle && t.options.effort == most_effort))
            e.rests_at = board_.objective();
        e.last_effort = t.options.effort;
        e.last_seconds = seconds;
        e.shortest_seconds = e.shortest_seconds > 0.0 ? std::min(e.shortest_seconds, seconds) : seconds;
        const double least_growth = e.part->draws() ? 2.0 : 4.0;
        const double wanted = std::clamp(options_.turn_seconds / std::max(seconds, shortest), least_growth, 16.0);
        // None may have the rest of the time to itself but those that have a large share.
        const double longest = std::max(options_.turn_seconds, 0.5 * std::min(2.0, e.part->share()) * seconds_left());
        const double growth = std::min(wanted, std::max(1.0, longest / std::max(seconds, shortest)));
        e.effort = scaled(t.options.effort, growth);
        e.expected_seconds = seconds * growth;
    }
    [[nodiscard]] double seconds_left() const {
        constexpr double always = 1e6;
        if (board_.limits().deadline == std::chrono::steady_clock::time_point::max()) return always;
        const std::chrono::duration<double> left = board_.limits().deadline - std::chrono::steady_clock::now();
        return std::max(0.0, left.count());
    }
    static std::size_t scaled(std::size_t effort, double factor) {
        const double product = static_cast<double>(effort) * factor;
        return product >= static_cast<double>(most_effort) ? most_effort : static_cast<std::size_t>(product);
    }
    static constexpr double shortest = 1e-9;
    static constexpr auto most_effort = std::numeric_limits<std::size_t>::max();

    const search_board& board_;
    race_options options_;
    std::mutex mutex_{};
    std::condition_variable changed_{};
    std::vector<entry> entries_{};
    std::size_t working_ = 0;
    std::size_t steady_at_work_ = 0;
    bool failed_ = false;
};

/// A part whose effort turns out to be much more than was thought gives way to the others, and has twice the time when
/// its next turn comes.
inline std::chrono::steady_clock::time_point deadline_of(const search_board& board, const turns::turn& t) {
    if (t.steady) return board.limits().deadline;
    constexpr double patience = 8.0;
    constexpr double least_seconds = 0.5;
    constexpr double most_seconds = 1e6;
    const double seconds = std::clamp(patience * t.expected_seconds, least_seconds, most_seconds);
    const auto length =
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    return std::min(board.limits().deadline, std::chrono::steady_clock::now() + length);
}

} // namespace detail

/// Runs the parts side by side on all threads until the board is done or no part has anything left to try. They see
/// each other's finds at once, and who closes the gap gets more of the time.
///
/// Runs on the threads of the arena that the caller is in. What a part throws leaves this function, after the others
/// have been asked to stop.
inline void race_parts(search_board& board, const std::vector<any_search_part>& parts, const race_options& options,
                       run_log& log) {
    detail::turns turns{board, parts, options};
    linked_stop stop{board.limits().stop};
    const auto work = [&](std::size_t) {
        while (const auto turn = turns.next()) {
            const stopwatch watch;
            const auto& part = parts[turn->part];
            search_board door{board, {deadline_of(board, *turn), stop.token(), board.limits().gap}, part.name()};
            try {
                part(door, turn->options);
            } catch (...) {
                turns.fail();
                stop.request_stop();
                throw;
            }
            log.add(part.name(), watch.seconds());
            turns.finish(*turn, watch.seconds(), door.done());
            if (board.done()) stop.request_stop();
        }
    };
    milp::search::crew{options.threads, work}.run(options.threads);
}

} // namespace optpipe
