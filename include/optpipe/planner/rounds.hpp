#pragma once

#include "optpipe/milp/search/crew.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/linked_stop.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/planner/run_log.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// How to run parts in rounds.
struct round_options {
    std::uint64_t seed = 1;
    std::size_t threads = 1;
    std::size_t rounds = std::numeric_limits<std::size_t>::max();
    /// How much more effort each round spends than the one before.
    std::size_t growth = 4;
    /// How often a part that draws runs in each round, with seeds of its own.
    std::size_t copies = 2;
};

namespace detail {

/// All jobs of one round. Each has a board of its own that begins with what is known at the start of the round; what
/// they found is put together in the order of the jobs. Once one has settled the search, all after it are stopped and
/// what they found is forgotten; none before it is. So the outcome is the same on any number of threads.
class search_round {
public:
    struct job {
        const any_search_part* part = nullptr;
        part_options options{};
    };

    search_round(search_board& board, std::vector<job> jobs)
        : board_{board}, start_{board.incumbent()}, bound_{board.bound()}, jobs_{std::move(jobs)},
          found_(jobs_.size()), settled_{jobs_.size()} {
        for (std::size_t k = 0; k < jobs_.size(); ++k)
            stops_.push_back(std::make_unique<linked_stop>(board.limits().stop));
    }

    void run(std::size_t threads, run_log& log) {
        const auto one = [&](std::size_t k) { run_job(k, log); };
        milp::search::crew{jobs_.size(), one}.run(threads);
        for (std::size_t k = 0; k < jobs_.size() && k <= settled_; ++k) {
            if (found_[k].incumbent) board_.offer(*found_[k].incumbent, jobs_[k].part->name());
            board_.raise_bound(found_[k].bound, jobs_[k].part->name());
        }
    }

private:
    struct finds {
        std::shared_ptr<const schedule> incumbent{};
        duration bound{};
    };

    void run_job(std::size_t k, run_log& log) {
        if (settled_ < k) return;
        const stopwatch watch;
        const auto& part = *jobs_[k].part;
        search_board own{board_.to_solve(), {board_.limits().deadline, stops_[k]->token(), board_.limits().gap}};
        if (start_) own.offer(*start_, part.name());
        own.raise_bound(bound_, part.name());
        try {
            part(own, jobs_[k].options);
        } catch (...) {
            for (auto& stop : stops_)
                stop->request_stop();
            throw;
        }
        found_[k] = {own.incumbent(), own.bound()};
        if (own.settled()) settle(k);
        log.add(part.name(), watch.seconds());
    }
    void settle(std::size_t k) {
        auto first = settled_.load();
        while (k < first && !settled_.compare_exchange_weak(first, k)) {
        }
        for (auto j = k + 1; j < stops_.size(); ++j)
            stops_[j]->request_stop();
    }

    search_board& board_;
    std::shared_ptr<const schedule> start_;
    duration bound_;
    std::vector<job> jobs_;
    std::vector<finds> found_;
    std::vector<std::unique_ptr<linked_stop>> stops_{};
    std::atomic<std::size_t> settled_;
};

/// Rounds in which nobody is to take long.
inline constexpr std::size_t short_rounds = 3;

/// What a part is given in a round; those that take long begin later, with little.
inline std::size_t effort_of(const any_search_part& part, const problem& p, std::size_t round, std::size_t factor) {
    const auto first = part.first_effort(p);
    if (first == 0) return round < short_rounds ? 0 : factor;
    constexpr auto most = std::numeric_limits<std::size_t>::max();
    return first > most / factor ? most : first * factor;
}

} // namespace detail

/// Runs all parts with an effort each, then again with more, until the board is done or the rounds are over. Parts
/// learn of each other's finds between two rounds only, so the same seed gives the same finds on any number of threads,
/// unless time or a stop request cuts them short; parts whose effort is timed are left out. In each round the parts
/// that come first in `parts` have the first say: those that may prove quickly should.
///
/// Runs on the threads of the arena that the caller is in. What a part throws leaves this function.
inline void search_in_rounds(search_board& board, const std::vector<any_search_part>& parts,
                             const round_options& options, run_log& log) {
    const auto& p = board.to_solve();
    std::size_t factor = 1;
    for (std::size_t round = 0; round < options.rounds && !board.done(); ++round) {
        std::vector<detail::search_round::job> jobs;
        for (const auto& part : parts) {
            if (part.timed() || !part.suits(p)) continue;
            const auto effort = detail::effort_of(part, p, round, factor);
            if (effort == 0) continue;
            const auto copies = part.draws() ? options.copies : 1;
            for (std::size_t copy = 0; copy < copies; ++copy)
                jobs.push_back({&part, {options.seed + (part.draws() ? round * copies + copy : 0), effort, 1}});
        }
        if (jobs.empty() && round >= detail::short_rounds) return;
        if (!jobs.empty()) detail::search_round{board, std::move(jobs)}.run(options.threads, log);
        if (factor <= std::numeric_limits<std::size_t>::max() / options.growth) factor *= options.growth;
    }
}

} // namespace optpipe
