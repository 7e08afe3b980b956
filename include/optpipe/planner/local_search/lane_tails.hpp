#pragma once

#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

namespace optpipe::detail {

/// The tails of operations. A tail is the longest path from an operation's start to the step's end, including waits for
/// memory. The sum of an operation's start and its tail is a lower bound on the objective. Takes O(n) for n operations,
/// or O(n log n) with shared links.
class lane_tails {
public:
    using id = flat_problem::id;
    static constexpr id none = flat_problem::none;

    lane_tails(const lane_orders& lanes, const lane_times& times)
        : p_{&lanes.flat()}, lanes_{&lanes}, times_{&times}, tail_(p_->size(), 0.0), found_(p_->size(), 0) {}

    /// Computes all tails. `extra(rank)` is added to the tails of paths that end on a rank. For `span`, `extra(rank)`
    /// is the negated first start of the rank.
    template <class Extra> void find(Extra extra) {
        lanes_after_.clear();
        for (id r = 0; r < p_->ranks(); ++r)
            lanes_after_.push_back({extra(r), {least, least}, least});
        if (p_->offloads()) std::fill(tail_.begin(), tail_.end(), least);
        if (p_->channels() > 0)
            find_by_start();
        else
            find_by_lane();
    }
    [[nodiscard]] double operator[](id i) const { return tail_[at(i)]; }

private:
    /// Visits all lanes from their ends. The visit of a lane pauses at an operation whose consumer on another lane
    /// hasn't been visited.
    void find_by_lane() {
        ++round_;
        here_.clear();
        std::size_t left = 0;
        for (id r = 0; r < p_->ranks(); ++r) {
            here_.push_back(lanes_->previous(lanes_->end(r), r));
            if (here_.back() >= lanes_->begin(r)) ++left;
        }
        for (bool moved = true; moved && left > 0;) {
            moved = false;
            for (id r = p_->ranks(); r-- > 0;) {
                id& position = here_[at(r)];
                if (position < lanes_->begin(r)) continue;
                for (; position >= lanes_->begin(r); position = lanes_->previous(position, r)) {
                    const id i = (*lanes_)[position];
                    if (!has_all_consumers(i)) break;
                    pass(i);
                    found_[at(i)] = round_;
                    moved = true;
                }
                if (position < lanes_->begin(r)) --left;
            }
        }
    }
    [[nodiscard]] bool has_all_consumers(id i) const {
        const auto consumers = p_->neighbours(lanes_->facts(i).consumers);
        return std::all_of(consumers.begin(), consumers.end(),
                           [&](const auto& user) { return found_[at(i + user.difference)] == round_; });
    }
    /// Visits operations from the last start to the first. Shared links require this order: a transfer may start after
    /// its successors on the lane, and `find_by_lane` would wait forever. An operation may have waited for an operation
    /// without duration that starts at the same time. Among operations with equal starts, those with a duration are
    /// visited first.
    void find_by_start() {
        by_start_.clear();
        for (id r = 0; r < p_->ranks(); ++r)
            for (id position = lanes_->next(lanes_->begin(r) - 1, r); position < lanes_->end(r);
                 position = lanes_->next(position, r)) {
                const id i = (*lanes_)[position];
                by_start_.push_back({times_->start(i), times_->end(i) > times_->start(i), position});
            }
        std::sort(by_start_.begin(), by_start_.end(), std::greater<>{});
        for (const auto& [start, has_length, position] : by_start_)
            pass((*lanes_)[position]);
    }

    static constexpr double least = std::numeric_limits<double>::lowest();
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    /// Tails of the operations that come next on a lane.
    struct after {
        double compute = 0.0;
        double engine[2] = {least, least};
        double acquisition = least;
    };

    /// Computes an operation's tail from the tails of the operations that wait for it.
    void pass(id i) {
        const auto& f = lanes_->facts(i);
        auto& next = lanes_after_[at(f.rank)];
        const id behind = f.channel == none ? none : lanes_->link_next(i);
        const bool transfer = is_transfer(f.kind);
        auto& lane = transfer ? next.engine[f.engine] : next.compute;
        double rest = lane;
        for (const auto& user : p_->neighbours(f.consumers))
            rest = std::max(rest, user.delay + tail_[at(i + user.difference)]);
        if (behind != none) rest = std::max(rest, tail_[at(behind)]);
        if (f.kind == operation_kind::offload) rest = std::max(rest, tail_[at(p_->sibling(i, operation_kind::reload))]);
        if (f.kind == operation_kind::reload) rest = std::max(rest, tail_[at(lanes_->user_of_stash(i))]);
        if (f.kind == operation_kind::forward && lanes_->is_offloaded(i))
            rest = std::max(rest, tail_[at(p_->sibling(i, operation_kind::offload))]);
        double& tail = tail_[at(i)];
        if (p_->offloads()) {
            rest = std::max(rest, tail); // at this point, `tail` belongs to operations that wait for memory freed by
                                         // `i`
            tail = least;
        }
        tail = std::max(f.duration + rest, f.acquired > 0.0 ? next.acquisition : least);
        lane = tail;
        if (f.acquired <= 0.0) return; // `freed_by` may belong to the I that a B without acquisition replaced
        next.acquisition = tail;
        if (const id freed = times_->freed_by(i); freed != none) tail_[at(freed)] = std::max(tail_[at(freed)], tail);
    }

    const flat_problem* p_;
    const lane_orders* lanes_;
    const lane_times* times_;
    std::vector<double> tail_;
    std::vector<std::size_t> found_;
    std::vector<id> here_;
    std::vector<std::tuple<double, bool, id>> by_start_; ///< start, whether the operation takes time, position
    std::vector<after> lanes_after_;
    std::size_t round_ = 0;
};

} // namespace optpipe::detail
