#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

namespace optpipe {

/// Merges neighbouring forwards and backwards into pairs listed in `overlaps` if the step gets shorter. The result has
/// the same operations as `s` at other times, or is `s`. Contract: `s` is valid.
///
/// Three ways are tried on all ranks at once: merge each forward with the next backward, with the previous backward, or
/// with either. Returns the best of the three resulting schedules and `s`. `stop` is polled before each of the three
/// attempts. O(operations × ranks).
[[nodiscard]] schedule merge_pairs(const problem& p, schedule s, stop_check stop = {});

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/outcome.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Which neighbours are merged: forward first, backward first, or both.
enum class pair_order { forward_first, backward_first, any };

/// The operations of each rank, which can be merged into one order.
class rank_lists {
public:
    rank_lists(const problem& p, const schedule& s) : p_{&p}, number_{p.graph}, lists_(p.graph.ranks()) {
        const auto sorted = order_of(s);
        for (const auto& op : sorted.operations)
            lists_[p.rank_of(op.stage)].push_back(op);
    }

    /// Merges neighbours on all ranks, from the first operation on.
    void merge(pair_order which) {
        for (auto& list : lists_) {
            std::size_t last = none; // the last computation that isn't in a pair
            for (std::size_t i = 0; i < list.size(); ++i) {
                if (is_transfer(list[i].kind)) continue;
                const bool is_free = !list[i].is_paired;
                if (is_free && last != none && shortens(list[last], list[i], which)) {
                    join(list, last, i);
                    last = none;
                } else {
                    last = is_free ? i : none;
                }
            }
        }
    }

    /// Merges the lists into one order. A pair is split again if one part depends on the other through operations in
    /// between.
    [[nodiscard]] order merged() {
        order result{p_->graph, {}};
        done_.assign(number_.size(), 0);
        per_rank<std::size_t> next(lists_.size(), 0);
        for (bool moved = true; moved;) {
            moved = false;
            for (const rank r : lists_.indices())
                while (advance(lists_[r], next[r], result))
                    moved = true;
            for (const rank r : lists_.indices())
                if (!moved) moved = split(lists_[r], next[r]);
        }
        return result;
    }

private:
    static constexpr std::size_t none = dynamic;
    using list_type = std::vector<operation>;

    [[nodiscard]] bool shortens(const operation& a, const operation& b, pair_order which) const {
        const bool forward_first = a.kind == operation_kind::forward;
        if (which != pair_order::any && forward_first != (which == pair_order::forward_first)) return false;
        const auto& f = forward_first ? a : b;
        const auto& back = forward_first ? b : a;
        if (f.stage == back.stage && f.microbatch == back.microbatch) return false;
        const auto* of = overlap_of(*p_, f, back);
        return of && pair_duration(*p_, *of, f, back) < duration_of(*p_, f) + duration_of(*p_, back);
    }
    /// Makes two operations a pair at the position of the second operation. Operations in between come before the pair,
    /// except those with the stage and microbatch of the first operation.
    static void join(list_type& list, std::size_t first, std::size_t second) {
        const auto [earlier, later] = std::pair{list[first], list[second]};
        const bool forward_first = earlier.kind == operation_kind::forward;
        const auto pair = forward_first ? pair_of(earlier, later) : pair_of(later, earlier);
        const auto begin = list.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end = list.begin() + static_cast<std::ptrdiff_t>(second) + 1;
        list_type behind;
        auto to = begin;
        for (auto at = begin + 1; at != end - 1; ++at)
            if (at->stage == earlier.stage && at->microbatch == earlier.microbatch)
                behind.push_back(*at);
            else
                *to++ = *at;
        *to++ = pair.forward;
        *to++ = pair.backward;
        std::copy(behind.begin(), behind.end(), to);
    }

    [[nodiscard]] static std::size_t width(const list_type& list, std::size_t at) {
        return list[at].is_paired && at + 1 < list.size() ? 2 : 1;
    }
    /// Appends the next operation or pair of a list to the order, if its inputs are done.
    bool advance(const list_type& list, std::size_t& at, order& to) {
        if (at == list.size()) return false;
        const auto end = at + width(list, at);
        for (auto i = at; i < end; ++i)
            if (!is_ready(list[i])) return false;
        for (; at < end; ++at) {
            done_[number_(list[at])] = 1;
            to.operations.push_back(list[at]);
        }
        return true;
    }
    [[nodiscard]] bool is_ready(const operation& op) const {
        bool ready = true;
        for_each_dependency(*p_, op, stash_way_of(*p_, op), [&](const operation& before, duration) {
            ready = ready && (is_done(before) ||
                              (is_gradient(before.kind) && is_done(sibling(before, operation_kind::backward))));
        });
        return ready;
    }
    [[nodiscard]] bool is_done(const operation& op) const { return done_[number_(op)] != 0; }
    /// Splits the pair at position `at` if one of its operations is ready, and puts this operation first.
    bool split(list_type& list, std::size_t at) {
        if (at == list.size() || width(list, at) == 1) return false;
        if (!is_ready(list[at]) && !is_ready(list[at + 1])) return false;
        if (!is_ready(list[at])) std::swap(list[at], list[at + 1]);
        list[at].is_paired = list[at + 1].is_paired = false;
        return true;
    }

    const problem* p_;
    operation_numbering<any_graph> number_;
    per_rank<list_type> lists_;
    std::vector<unsigned char> done_{};
};

/// A schedule with its objective. The mean end of the operations decides ties.
struct timed_pairs {
    schedule made{};
    duration objective{};
    double mean_end = 0.0;

    timed_pairs(const problem& p, schedule timed) : made{std::move(timed)}, objective{objective_of(p, made)} {
        for (const auto& each : made.operations)
            mean_end += each.end.value() / static_cast<double>(made.operations.size());
    }
    /// Whether this schedule is better than `other` by more than `slack`.
    [[nodiscard]] bool is_better_than(const timed_pairs& other, duration slack) const {
        if (objective < other.objective - slack) return true;
        return objective <= other.objective + slack && mean_end < other.mean_end - slack.value();
    }
};

} // namespace detail

OPTPIPE_INLINE schedule merge_pairs(const problem& p, schedule s, stop_check stop) {
    const auto slack = time_slack(p, s);
    detail::timed_pairs best{p, std::move(s)};
    const auto start = best.made;
    const auto offer = [&](detail::rank_lists lists) {
        const auto timed = simulate(p, lists.merged());
        if (!timed) return;
        if (detail::timed_pairs made{p, *timed}; made.is_better_than(best, slack)) best = std::move(made);
    };
    for (const auto which :
         {detail::pair_order::forward_first, detail::pair_order::backward_first, detail::pair_order::any}) {
        if (stop()) return best.made;
        detail::rank_lists lists{p, start};
        lists.merge(which);
        offer(std::move(lists));
    }
    return best.made;
}

} // namespace optpipe
#endif
