#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// How an end of a schedule is scheduled anew.
struct rescheduling {
    /// The length of the rest, which stays as it is.
    duration kept{};
    /// An operation that is ready gives way to one with a longer tail that will be within this part of its duration.
    double wait = 0.0;
    /// Tails are longer by up to this much at random.
    duration noise{};
};

/// List scheduling of one end of a schedule without transfers: ranks take whatever is ready and has memory, the longest
/// tail first, so that weight gradients fill gaps. The beginning is scheduled backwards in time, in which an
/// operation waits for those that need it, and memory is acquired where it was released.
class list_rescheduler {
public:
    /// For the beginning of the schedule, or for its end. Contract: no stash is offloaded.
    list_rescheduler(const problem& p, const schedule& given, bool beginning)
        : p_{p}, beginning_{beginning}, ready_(p.graph.ranks()), free_(p.graph.ranks()), held_(p.graph.ranks()) {
        add_jobs(given);
        add_dependencies();
        find_tails();
    }
    list_rescheduler(const list_rescheduler&) = delete;
    list_rescheduler& operator=(const list_rescheduler&) = delete;

    /// The length of the schedule made, from its first start to its last end; unlimited where memory leaves no
    /// operation to go on with, or if it is stopped. `stop` is asked for every operation.
    [[nodiscard]] duration run(const rescheduling& how, random_numbers& random, stop_check stop = {}) {
        wait_ = how.wait;
        reset(how.noise, random);
        auto left = jobs_.size();
        for (auto& j : jobs_)
            if (j.before < how.kept) {
                place(j, j.before);
                --left;
            }
        for (auto& j : jobs_)
            if (!j.placed && j.waits == 0) ready_[j.on].push_back(&j);
        for (; left > 0; --left)
            if (stop() || !place_next()) return duration::unlimited();
        return length();
    }
    /// The order that the last run made. Contract: it made one.
    [[nodiscard]] order made() const {
        std::vector<const job*> sorted;
        for (const auto& j : jobs_)
            sorted.push_back(&j);
        const auto when = [&](const job* j) { return beginning_ ? -(j->start + j->length) : j->start; };
        std::stable_sort(sorted.begin(), sorted.end(), [&](const job* a, const job* b) { return when(a) < when(b); });
        order result{p_.graph, {}};
        for (const auto* j : sorted)
            result.operations.push_back(j->op);
        return result;
    }

private:
    struct job {
        operation op{};
        rank on{};
        duration length{};
        memory_size acquired{};
        memory_size released{};
        /// Its start in the given schedule.
        duration before{};
        /// To the end of the step.
        duration tail{};
        std::size_t inputs = 0;
        std::vector<std::pair<job*, duration>> next{};

        // Of a run.
        duration priority{};
        std::size_t waits = 0;
        /// When its inputs are, as far as they are placed.
        duration available{};
        duration start{};
        bool placed = false;
    };

    void add_jobs(const schedule& given) {
        const auto end = last_end(given);
        jobs_.reserve(given.operations.size());
        for (const auto& timed : given.operations) {
            const auto effect = memory_effect_of(p_, timed.op);
            job j{.op = timed.op, .on = p_.rank_of(timed.op.stage), .length = duration_of(p_, timed.op)};
            j.acquired = beginning_ ? effect.released_at_end : effect.acquired_at_start;
            j.released = beginning_ ? effect.acquired_at_start : effect.released_at_end;
            j.before = beginning_ ? end - timed.end : timed.start;
            jobs_.push_back(std::move(j));
        }
    }
    void add_dependencies() {
        const operation_numbering<any_graph> number{p_.graph};
        std::vector<job*> known(number.size(), nullptr);
        for (auto& j : jobs_)
            known[number(j.op)] = &j;
        const auto link = [&](job* earlier, job* later, duration delay) {
            if (beginning_) std::swap(earlier, later);
            earlier->next.emplace_back(later, delay);
            ++later->inputs;
        };
        const auto find = [&](const operation& op) {
            auto* j = known[number(op)];
            if (!j && op.kind == operation_kind::backward_input)
                j = known[number(sibling(op, operation_kind::backward))];
            return j;
        };
        for (auto& j : jobs_) {
            for_each_dependency(p_, j.op, stash_way_of(p_, j.op, false),
                                [&](const operation& before, duration delay) { link(find(before), &j, delay); });
            // In time for its gradient, as it takes memory.
            const bool again = j.op.kind == operation_kind::recompute && !beginning_;
            if (!again || p_.is_last(j.op.stage)) continue;
            const auto next = j.op.stage.next();
            link(find(backward_input(next, j.op.microbatch)), &j, p_.hop(next, j.op.stage) - j.length);
        }
    }
    void find_tails() {
        std::vector<job*> sorted;
        for (auto& j : jobs_) {
            j.waits = j.inputs;
            if (j.waits == 0) sorted.push_back(&j);
        }
        for (std::size_t i = 0; i < sorted.size(); ++i)
            for (const auto& [later, delay] : sorted[i]->next)
                if (--later->waits == 0) sorted.push_back(later);
        for (auto at = sorted.rbegin(); at != sorted.rend(); ++at) {
            auto& j = **at;
            for (const auto& [later, delay] : j.next)
                j.tail = std::max(j.tail, delay + later->tail);
            j.tail += j.length;
        }
    }

    void reset(duration noise, random_numbers& random) {
        constexpr std::size_t grains = 1000;
        for (auto& j : jobs_) {
            j.priority = j.tail;
            if (noise > duration{})
                j.priority += static_cast<double>(random.below(grains)) / static_cast<double>(grains) * noise;
            j.waits = j.inputs;
            j.available = duration{};
            j.placed = false;
        }
        for (const rank r : p_.graph.all_ranks()) {
            ready_[r].clear();
            free_[r] = duration{};
            held_[r] = memory_size{};
        }
    }
    void place(job& j, duration at) {
        j.start = at;
        j.placed = true;
        free_[j.on] = std::max(free_[j.on], at + j.length);
        held_[j.on] += j.acquired - j.released;
        for (const auto& [later, delay] : j.next) {
            --later->waits;
            later->available = std::max(later->available, at + j.length + delay);
        }
    }
    [[nodiscard]] bool fits(const job& j) const { return held_[j.on] + j.acquired <= p_.memory_limit[j.on] + slack_; }
    [[nodiscard]] duration earliest(const job& j) const { return std::max(j.available, free_[j.on]); }
    [[nodiscard]] static bool precedes(const job& a, const job& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.before < b.before;
    }

    /// On the rank that can start an operation first.
    bool place_next() {
        auto first = duration::unlimited();
        rank on{};
        for (const rank r : p_.graph.all_ranks())
            for (const auto* j : ready_[r])
                if (earliest(*j) < first && fits(*j)) {
                    first = earliest(*j);
                    on = r;
                }
        if (first.is_unlimited()) return false;
        auto* chosen = best_until(on, first);
        chosen = best_until(on, first + wait_ * chosen->length);
        std::erase(ready_[on], chosen);
        place(*chosen, earliest(*chosen));
        // A recomputation that is kept may come before its last input here.
        for (const auto& [later, delay] : chosen->next)
            if (later->waits == 0 && !later->placed) ready_[later->on].push_back(later);
        return true;
    }
    [[nodiscard]] job* best_until(rank on, duration until) const {
        job* best = nullptr;
        for (auto* j : ready_[on])
            if (earliest(*j) <= until && fits(*j) && (!best || precedes(*j, *best))) best = j;
        return best;
    }

    [[nodiscard]] duration length() const {
        auto first = duration::unlimited();
        duration last{};
        for (const auto& j : jobs_) {
            first = std::min(first, j.start);
            last = std::max(last, j.start + j.length);
        }
        return last - first;
    }

    const problem& p_;
    bool beginning_;
    double wait_ = 0.0;
    memory_size slack_ = tolerance{}.at(p_.memory_scale());
    std::vector<job> jobs_{};
    per_rank<std::vector<job*>> ready_;
    /// The end of the last operation placed on a rank, and what it holds then.
    per_rank<duration> free_;
    per_rank<memory_size> held_;
};

} // namespace optpipe::detail
