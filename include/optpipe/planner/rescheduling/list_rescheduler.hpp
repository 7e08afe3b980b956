#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/rank_resources.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// How the beginning or the end of a schedule is rescheduled.
struct rescheduling {
    /// The length of the part of the schedule that stays unchanged.
    duration kept{};
    /// Longest wait of a ready operation for an operation with a longer tail, as a share of its duration.
    double wait = 0.0;
    /// Largest random time that is added to each tail.
    duration noise{};
};

/// List scheduling of the beginning or the end of a schedule. Among ready operations with enough memory, a rank or copy
/// engine takes the one with the longest tail. Weight gradients therefore fill gaps. A reload, or another operation
/// that takes memory early, only becomes ready when it must start. The beginning is scheduled in reversed time:
/// operations wait for their successors. In reversed time, an operation acquires the memory that it releases in forward
/// time.
class list_rescheduler {
public:
    /// Schedules the beginning or the end of `given` again.
    list_rescheduler(const problem& p, const schedule& given, bool beginning)
        : p_{p}, beginning_{beginning}, ready_(3 * p.graph.ranks()), resources_{p, tolerance{}} {
        add_jobs(given);
        add_dependencies();
        find_tails();
    }
    list_rescheduler(const list_rescheduler&) = delete;
    list_rescheduler& operator=(const list_rescheduler&) = delete;

    /// The length of the resulting schedule, from its first start to its last end. The length is unlimited if no
    /// remaining operation fits in memory, or if the run is stopped. `stop` is polled for every operation.
    [[nodiscard]] duration run(const rescheduling& how, random_numbers& random, stop_check stop = {}) {
        wait_ = how.wait;
        visits_ = 0;
        reset(how.noise, random);
        auto left = jobs_.size();
        for (auto& j : jobs_)
            if (j.before < how.kept) {
                place(j, j.before);
                --left;
            }
        for (auto& j : jobs_)
            if (!j.placed && j.waits == 0) ready_[j.lanes.own].push_back(&j);
        for (; left > 0; --left)
            if (stop() || !place_next()) return duration::unlimited();
        return length();
    }
    /// Average number of operations that the last run considered to choose the next one. If many operations wait for
    /// memory or a copy engine, most of the run's time is spent on considering waiting operations.
    [[nodiscard]] std::size_t visits_per_operation() const { return visits_ / jobs_.size(); }
    /// The order of the last run. Contract: the last run succeeded.
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
        occupied_lanes lanes{};
        duration length{};
        memory_effect effect{};
        /// The operation's start in the given schedule.
        duration before{};
        /// Time from the operation's start to the end of the step.
        duration tail{};
        std::size_t inputs = 0;
        std::vector<std::pair<job*, duration>> next{};

        // State of a run.
        duration priority{};
        std::size_t waits = 0;
        /// Time at which the inputs that are already placed are available.
        duration available{};
        duration start{};
        bool placed = false;
    };

    void add_jobs(const schedule& given) {
        const auto end = last_end(given);
        jobs_.reserve(given.operations.size());
        for (const auto& timed : given.operations) {
            const rank r = p_.rank_of(timed.op.stage);
            job j{.op = timed.op, .on = r, .lanes = resources_.lanes_of(timed.op.kind, r)};
            j.length = duration_of(p_, timed.op);
            j.effect = memory_effect_of(p_, timed.op);
            if (beginning_) {
                std::swap(j.effect.acquired_at_start, j.effect.released_at_end);
                std::swap(j.effect.host_acquired_at_start, j.effect.host_released_at_end);
            }
            j.before = beginning_ ? end - timed.end : timed.start;
            jobs_.push_back(std::move(j));
        }
    }
    void add_dependencies() {
        const operation_numbering<any_graph> number{p_.graph};
        std::vector<job*> known(number.size(), nullptr);
        for (auto& j : jobs_)
            known[number(j.op)] = &j;
        const auto link = [](job* first, job* second, duration delay) {
            first->next.emplace_back(second, delay);
            ++second->inputs;
        };
        const auto find = [&](const operation& op) {
            auto* j = known[number(op)];
            if (!j && op.kind == operation_kind::backward_input)
                j = known[number(sibling(op, operation_kind::backward))];
            return j;
        };
        for (auto& j : jobs_) {
            for_each_dependency(p_, j.op, stash_way_of(p_, j.op), [&](const operation& before, duration delay) {
                auto* first = find(before);
                auto* second = &j;
                if (beginning_) std::swap(first, second);
                link(first, second, delay);
            });
        }
        for (auto& j : jobs_) {
            if (!is_wanted_late(j.op.kind)) continue;
            auto needed = j.length;
            if (const auto* again = known[number(recompute_of(j.op.stage, j.op.microbatch))];
                again && j.op.kind == operation_kind::reload)
                needed += again->length;
            duration ahead{};
            if (auto* signal = signal_for(j, find, needed, ahead)) link(signal, &j, ahead - needed);
        }
    }
    /// Whether operations of this kind should start late, because only a later operation uses their memory. True for
    /// reloads and recomputations and, in reversed time, for offloads.
    [[nodiscard]] bool is_wanted_late(operation_kind kind) const {
        if (beginning_) return kind == operation_kind::offload;
        return kind == operation_kind::reload || kind == operation_kind::recompute;
    }
    /// Finds the last operation on the path of `j`'s microbatch after which `j` still ends in time for the stash. Null
    /// if no operation of the path is early enough. `ahead` grows by the least time from the end of the found operation
    /// until the stash is needed.
    template <class Find>
    [[nodiscard]] job* signal_for(const job& j, const Find& find, duration needed, duration& ahead) const {
        auto after = j.op.stage;
        const auto look = [&](stage at, operation_kind kind) -> job* {
            ahead += beginning_ ? p_.hop(after, at) : p_.hop(at, after);
            after = at;
            auto* signal = find({at, kind, j.op.microbatch});
            if (ahead >= needed) return signal;
            ahead += signal->length;
            return nullptr;
        };
        const auto first = beginning_ ? operation_kind::forward : operation_kind::backward_input;
        const auto second = beginning_ ? operation_kind::backward_input : operation_kind::forward;
        for (auto at = j.op.stage; !p_.is_last(at);) {
            at = at.next();
            if (auto* signal = look(at, first)) return signal;
        }
        for (auto at = after; at > j.op.stage; at = at.previous())
            if (auto* signal = look(at, second)) return signal;
        return nullptr;
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
        for (auto& lane : ready_)
            lane.clear();
        resources_.clear();
    }
    void place(job& j, duration at) {
        const auto end = at + j.length;
        j.start = at;
        j.placed = true;
        resources_.occupy(j.lanes, j.on, j.effect, duration{}, end);
        for (const auto& [later, delay] : j.next) {
            --later->waits;
            later->available = std::max(later->available, end + delay);
        }
    }
    /// The earliest start. Unlimited if memory doesn't suffice even after all scheduled releases.
    [[nodiscard]] duration earliest(const job& j) const {
        return resources_.earliest_start(j.lanes, j.on, j.effect, j.available).start;
    }
    [[nodiscard]] static bool precedes(const job& a, const job& b) {
        return a.priority != b.priority ? a.priority > b.priority : a.before < b.before;
    }

    /// Finds the rank or copy engine that can start an operation first, and places the operation.
    bool place_next() {
        auto first = duration::unlimited();
        std::vector<job*>* lane = nullptr;
        for (auto& ready : ready_) {
            visits_ += ready.size();
            for (const auto* j : ready)
                if (const auto at = earliest(*j); at < first) {
                    first = at;
                    lane = &ready;
                }
        }
        if (!lane) return false;
        auto* chosen = best_until(*lane, first);
        resources_.advance(chosen->on, first);
        chosen = best_until(*lane, first + wait_ * chosen->length);
        std::erase(*lane, chosen);
        place(*chosen, earliest(*chosen));
        // Later operations may already be placed: a recomputation in the kept part may come before its last input.
        for (const auto& [later, delay] : chosen->next)
            if (later->waits == 0 && !later->placed) ready_[later->lanes.own].push_back(later);
        return true;
    }
    [[nodiscard]] job* best_until(const std::vector<job*>& ready, duration until) const {
        job* best = nullptr;
        for (auto* j : ready)
            if ((!best || precedes(*j, *best)) && earliest(*j) <= until) best = j;
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
    std::size_t visits_ = 0;
    std::vector<job> jobs_{};
    /// The ready operations of each rank, and of each of the rank's two copy engines.
    std::vector<std::vector<job*>> ready_;
    rank_resources<any_graph> resources_;
};

} // namespace optpipe::detail
