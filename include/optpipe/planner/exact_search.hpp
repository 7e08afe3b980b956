#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/exact/pipeline_model.hpp"
#include "optpipe/planner/exact/prover.hpp"
#include "optpipe/planner/exact/reading.hpp"
#include "optpipe/schedule/bounds.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/validate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

struct exact_options {
    std::uint64_t seed = 1;
    /// Effort: the most conflicts. Where this ends the search, it is the same every time.
    std::size_t conflicts = std::numeric_limits<std::size_t>::max();
};

namespace exact::detail {

/// One search that works through a board. From above it asks for schedules better than the best; from below it asks
/// whether there are any far better ones, and where the answer is no the bound rises.
class board_search {
public:
    board_search(search_board& board, const exact_options& options)
        : board_{&board}, options_{options}, problem_{&board.to_solve()} {}

    void run() {
        if (board_->objective().is_unlimited()) try_builders();
        board_->raise_bound(bounds_of(*problem_).best(), part);
        if (board_->done() || too_large()) return;
        pooled_.emplace(*problem_, travel_form::pooled);
        bound_from_root();
        upper_.push_back({&*pooled_, std::make_unique<prover<>>(*pooled_, options_.seed)});
        if (pooled_->travels()) {
            in_turn_.emplace(*problem_, travel_form::in_turn);
            upper_.push_back({&*in_turn_, std::make_unique<prover<>>(*in_turn_, options_.seed)});
        }
        for (std::size_t effort = first_effort; !finished(); effort += effort / 2) {
            for (std::size_t i = 0; i < upper_.size() && !finished(); ++i)
                step_from_above(i, effort);
            if (!finished()) step_from_below(effort);
        }
    }

private:
    static constexpr std::string_view part = "exact";
    static constexpr std::size_t first_effort = 200;
    static constexpr std::size_t most_tasks = 2000;

    struct upper_search {
        const pipeline_model* model;
        std::unique_ptr<prover<>> search;
        bool begun = false;
        /// false: nothing more to be learned at its limit.
        bool active = true;
    };

    [[nodiscard]] bool finished() const { return board_->done() || spent_ >= options_.conflicts; }
    [[nodiscard]] std::size_t allowed(std::size_t effort) const {
        return std::min(effort, options_.conflicts - std::min(spent_, options_.conflicts));
    }
    [[nodiscard]] bool too_large() const {
        return 5 * problem_->graph.stages() * problem_->graph.microbatches() > most_tasks;
    }
    void try_builders() {
        for_each_builder([&](const auto& builder) {
            if (board_->done()) return;
            if (const auto built = build_schedule(*problem_, builder)) board_->offer(*built, builder.name);
        });
    }

    /// The largest objective that would be an improvement, in ticks.
    [[nodiscard]] ticks target() const {
        const auto wanted = board_->target();
        if (!wanted.is_unlimited()) return pooled_->time().below(wanted.value());
        return pooled_->time().nearest(problem_->serial_time().value()) + rounding();
    }
    /// How far rounding can put the sum of durations off.
    [[nodiscard]] ticks rounding() const {
        if (pooled_->time().is_exact()) return 0;
        return static_cast<ticks>(5 * problem_->graph.stages() * problem_->graph.microbatches());
    }
    /// No schedule has an objective of `most` ticks or less.
    void exclude(ticks most) {
        excluded_ = std::max(excluded_, most);
        if (board_->objective().is_unlimited() && most >= target())
            board_->raise_bound(duration::unlimited(), part);
        else
            board_->raise_bound(duration{pooled_->time().value(most + 1 - rounding())}, part);
    }

    /// The least objective that propagation alone leaves possible.
    void bound_from_root() {
        excluded_ = pooled_->time().below(board_->bound().value()) - 1 - rounding();
        ticks impossible = excluded_;
        ticks possible = target();
        while (possible - impossible > 1 && !board_->done()) {
            // The last one first: often it is all that is needed.
            const bool first = possible == target();
            const auto at = first ? possible : impossible + (possible - impossible) / 2;
            prover<> probe{*pooled_, options_.seed};
            probe.limit(at);
            const bool may = probe.may_be_possible([&] { return board_->done(); });
            (may ? possible : impossible) = first && may ? possible - 1 : at;
            if (!may) exclude(at);
            if (first && !may) return;
        }
    }

    void step_from_above(std::size_t i, std::size_t effort) {
        auto& own = upper_[i];
        const auto wanted = target();
        if (wanted < own.search->limit() || !own.begun) {
            own.begun = own.active = true;
            own.search->limit(wanted);
            if (const auto best = board_->incumbent()) own.search->follow(*best);
        }
        if (!own.active) return;
        const auto answer = count(*own.search, allowed(effort));
        if (answer == verdict::stopped) return;
        own.active = false;
        if (answer == verdict::impossible) {
            if (own.model->form() != travel_form::in_turn)
                exclude(own.search->limit());
            else
                call_named();
            return;
        }
        if (!offer(*own.model, own.search->solution())) call_named();
    }
    /// Where stashes without names might do better than those that return in turn.
    void call_named() {
        if (upper_.size() > 2) return;
        named_.emplace(*problem_, travel_form::named);
        upper_.push_back({&*named_, std::make_unique<prover<>>(*named_, options_.seed)});
    }
    /// Asks for a part of the gap; for less of it where the answer doesn't come, for more where it does.
    void step_from_below(std::size_t effort) {
        const auto high = std::min(target(), below_possible_);
        if (!lower_ || lower_->limit() <= excluded_ || lower_->limit() >= high) {
            if (high - excluded_ <= 1) return;
            lower_ = std::make_unique<prover<>>(*pooled_, options_.seed);
            lower_->limit(excluded_ + std::max<ticks>(1, (high - excluded_) / part_of_gap_));
        }
        const auto answer = count(*lower_, allowed(effort));
        if (answer == verdict::stopped) {
            // The smallest part is never given up, so that some answer comes.
            if (part_of_gap_ >= smallest_part) return;
            part_of_gap_ *= 2;
        } else if (answer == verdict::impossible) {
            exclude(lower_->limit());
            part_of_gap_ = std::max<ticks>(2, part_of_gap_ / 2);
        } else {
            below_possible_ = lower_->limit();
            offer(*pooled_, lower_->solution());
        }
        lower_.reset();
    }
    verdict count(prover<>& search, std::size_t effort) {
        const auto before = search.conflicts();
        const auto answer = search.search(effort, [&] { return board_->done(); });
        spent_ += search.conflicts() - before + 1;
        return answer;
    }
    /// Whether the solution is a schedule.
    bool offer(const pipeline_model& m, const assignment& a) {
        const auto found = write_schedule(m, a);
        if (!found) return false;
        if (is_valid(*problem_, *found)) board_->offer(*found, part);
        return true;
    }

    search_board* board_;
    exact_options options_;
    const problem* problem_;
    std::optional<pipeline_model> pooled_;
    std::optional<pipeline_model> in_turn_;
    std::optional<pipeline_model> named_;
    std::vector<upper_search> upper_;
    std::unique_ptr<prover<>> lower_;
    static constexpr ticks smallest_part = 64;
    ticks part_of_gap_ = 2;
    ticks excluded_ = 0;
    ticks below_possible_ = std::numeric_limits<ticks>::max();
    std::size_t spent_ = 0;
};

} // namespace exact::detail

/// Looks for the best schedule and for the proof that there is no better one: branch and bound on the order of pairs of
/// operations and on what travels, with propagation and learning, without any linear program.
///
/// Offers schedules and raises the bound as it goes; starts from the builders' best where the board has none. Returns
/// when the board is done, or the effort is spent; at once, with the bound from structure, where the problem has more
/// than 2000 operations and transfers. There `window_search` uses the same search on parts of a schedule.
inline void exact_search(search_board& board, const exact_options& options = {}) {
    exact::detail::board_search{board, options}.run();
}

} // namespace optpipe
