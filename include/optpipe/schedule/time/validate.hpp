#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// The rule of a valid schedule (io/README.md) that is violated.
enum class broken_rule {
    unknown_operation,
    cannot_offload,
    cannot_recompute,
    unknown_storage,
    other_storage,
    appears_twice,
    not_finite,
    wrong_duration,
    before_zero,
    missing_forward,
    wrong_backward,
    split_forbidden,
    full_forbidden,
    frozen_weights,
    frozen,
    group_order,
    storage_not_followed,
    pair_without_partner,
    unlisted_pair,
    too_early,
    compute_overlap,
    engine_overlap,
    link_overlap,
    device_memory,
    host_memory,
};

/// One violation of a rule, described by numbers. The meaning of the fields depends on the rule. `describe` puts the
/// numbers into words.
struct fault {
    broken_rule rule{};
    optpipe::rank rank{};
    operation subject{};
    operation other{};
    double is = 0.0;
    double needed = 0.0;
    double lag = 0.0;
    double time = 0.0;
};

[[nodiscard]] std::string describe(const fault& f);

namespace detail {

template <pipeline_graph Graph, class Sink> class schedule_checker {
public:
    constexpr schedule_checker(const basic_problem<Graph>& p, const basic_schedule<Graph>& s, tolerance t, Sink& sink)
        : p_{p}, s_{s}, sink_{sink}, number_{p.graph},
          index_(number_.size(), nothing), slack_{time_slack(p, s, t)}, memory_slack_{t.at(p.memory_scale())} {}

    constexpr void check() {
        // Later checks look up operations and storage options, and sort by time. So all operations must be known and
        // distinct, and all times finite.
        if (!check_each()) return;
        for (const stage s : p_.graph.all_stages())
            for (const microbatch m : p_.graph.all_microbatches())
                check_cell(s, m);
        const auto own = split_by_rank(p_.graph, s_.operations);
        for (const rank r : p_.graph.all_ranks()) {
            check_pairs(own[r]);
            check_compute_lane(own[r]);
        }
        check_transfer_lanes();
        check_memory(own, memory_kind::device, p_.memory_limit);
        check_memory(own, memory_kind::host, p_.host_memory_limit);
    }

private:
    static constexpr std::size_t nothing = dynamic;

    constexpr void report(broken_rule rule, const operation& op, double is = 0.0, double needed = 0.0,
                          const operation& other = {}, double lag = 0.0) {
        sink_(fault{rule, number_.contains(op) ? p_.rank_of(op.stage) : rank{}, op, other, is, needed, lag, 0.0});
    }
    constexpr const timed_operation* find(stage s, operation_kind kind, microbatch m) const {
        const auto i = index_[number_({s, kind, m})];
        return i == nothing ? nullptr : &s_.operations[i];
    }
    constexpr const timed_operation* gradient(stage s, microbatch m) const {
        const auto* full = find(s, operation_kind::backward, m);
        return full ? full : find(s, operation_kind::backward_input, m);
    }

    static constexpr bool is_finite(duration time) {
        constexpr auto most = std::numeric_limits<double>::max();
        return time.value() >= -most && time.value() <= most;
    }
    constexpr bool check_each() {
        bool sound = true;
        for (std::size_t i = 0; i < s_.operations.size(); ++i) {
            const auto& [op, start, end] = s_.operations[i];
            if (!number_.contains(op)) {
                report(broken_rule::unknown_operation, op);
                sound = false;
                continue;
            }
            auto& entry = index_[number_(op)];
            if (entry != nothing) {
                report(broken_rule::appears_twice, op);
                sound = false;
            }
            entry = i;
            if (!is_finite(start) || !is_finite(end)) {
                report(broken_rule::not_finite, op);
                sound = false;
                continue;
            }
            if (start < -slack_) report(broken_rule::before_zero, op, start.value());
            if (op.storage >= p_.storage[op.stage].size()) {
                report(broken_rule::unknown_storage, op);
                sound = false;
                continue;
            }
            if (!op_is_of_its_stage(op)) continue; // `check_backward` reports this operation
            if (is_transfer(op.kind) && !stored(op).offloads()) {
                report(broken_rule::cannot_offload, op);
                continue;
            }
            if (op.kind == operation_kind::recompute && !stored(op).recomputes()) {
                report(broken_rule::cannot_recompute, op);
                continue;
            }
            if (!op.is_paired) check_duration(s_.operations[i], duration_of(p_, op)); // pairs are checked below
        }
        return sound;
    }
    constexpr void check_duration(const timed_operation& timed, duration expected) {
        const auto length = timed.end - timed.start;
        if (!(length <= expected + slack_ && length >= expected - slack_))
            report(broken_rule::wrong_duration, timed.op, length.value(), expected.value());
    }

    constexpr bool op_is_of_its_stage(const operation& op) const {
        const auto gradients = p_.costs[op.stage].gradients;
        if (op.kind == operation_kind::backward_input) return gradients != gradient_kind::none;
        return !is_weight_gradient(op.kind) || gradients == gradient_kind::full;
    }
    constexpr const storage_option& stored(const operation& op) const { return p_.storage[op.stage][op.storage]; }

    /// Checks that all transfers and recomputations required by a storage option exist (rules 5 and 6). `check_each`
    /// has reported transfers and recomputations that the option doesn't have.
    constexpr void check_storage(const timed_operation& f) {
        const auto& option = stored(f.op);
        for (const auto kind : all_operation_kinds) {
            const bool is_asked_for =
                (is_transfer(kind) && option.offloads()) || (kind == operation_kind::recompute && option.recomputes());
            const auto* found = find(f.op.stage, kind, f.op.microbatch);
            if (!found && is_asked_for) report(broken_rule::storage_not_followed, sibling(f.op, kind));
            if (found && found->op.storage != f.op.storage)
                report(broken_rule::other_storage, found->op, 0.0, 0.0, f.op);
        }
    }

    constexpr void check_cell(stage s, microbatch m) {
        const auto* f = find(s, operation_kind::forward, m);
        const auto* i = find(s, operation_kind::backward_input, m);
        const auto* w = find(s, operation_kind::backward_weight, m);
        const auto* b = find(s, operation_kind::backward, m);
        const auto* out = find(s, operation_kind::offload, m);
        const auto* in = find(s, operation_kind::reload, m);
        const auto* again = find(s, operation_kind::recompute, m);
        const auto any = forward(s, m);
        if (!f) report(broken_rule::missing_forward, any);
        if (f) check_storage(*f);
        check_backward(s, m, i, w, b);
        const auto* g = gradient(s, m);
        check_edges(s, m, f, g);
        if (!p_.is_simple()) check_slice_and_group(s, m, f, g);
        after(g, f);
        after(w, i);
        after(out, f);
        after(in, out);
        after(g, in);
        after(again, f);
        after(again, in);
        after(g, again);
    }
    /// Checks rule 1 of a valid schedule.
    constexpr void check_backward(stage s, microbatch m, const timed_operation* i, const timed_operation* w,
                                  const timed_operation* b) {
        const auto any = forward(s, m);
        switch (p_.costs[s].gradients) {
        case gradient_kind::none:
            if (i || w || b) report(broken_rule::frozen, any);
            return;
        case gradient_kind::input:
            if (!i || w || b) report(broken_rule::frozen_weights, any);
            return;
        case gradient_kind::full: break;
        }
        if ((b != nullptr) == (i != nullptr) || (i != nullptr) != (w != nullptr))
            report(broken_rule::wrong_backward, any);
        if (!p_.split_backward && !b) report(broken_rule::split_forbidden, any);
        if (!p_.full_backward && b) report(broken_rule::full_forbidden, any);
    }
    /// Checks rules 2 and 3 along the edges that leave a stage.
    constexpr void check_edges(stage s, microbatch m, const timed_operation* f, const timed_operation* g) {
        p_.graph.for_each_edge_out_of(s, [&](const edge& e) {
            const double size = e.size * p_.microbatches.factors(s, m).message;
            after(find(e.to, operation_kind::forward, m), f, size * p_.hop(s, e.to));
            if (p_.costs[e.to].gradients != gradient_kind::none) after(g, gradient(e.to, m), size * p_.hop(e.to, s));
        });
    }
    /// Checks rules 2 and 3 between the slices of a sequence, and within a group.
    constexpr void check_slice_and_group(stage s, microbatch m, const timed_operation* f, const timed_operation* g) {
        if (const auto before = p_.microbatches.slice_before(m)) {
            after(f, find(s, operation_kind::forward, *before));
            after(gradient(s, *before), g);
        }
        p_.groups.for_each_member(
            s, [&](stage member, duration delay) { after(g, find(member, operation_kind::forward, m), delay); });
        if (!p_.groups.has(s) || m.position() + 1 >= p_.graph.microbatches() || !f) return;
        // Compares the order of forwards on this stage with the other stages of its group.
        p_.groups.for_each_member(s, [&](stage member, duration) {
            if (!(s < member)) return;
            for (microbatch other = m.next(); other.position() < p_.graph.microbatches(); ++other)
                check_group_order(s, member, m, other);
        });
    }
    constexpr void check_group_order(stage a, stage b, microbatch m, microbatch other) {
        const auto* first = find(a, operation_kind::forward, m);
        const auto* second = find(a, operation_kind::forward, other);
        const auto* there = find(b, operation_kind::forward, m);
        const auto* there_too = find(b, operation_kind::forward, other);
        if (!first || !second || !there || !there_too) return;
        if ((first->start <= second->start) != (there->start <= there_too->start))
            report(broken_rule::group_order, there->op, 0.0, 0.0, there_too->op);
    }
    constexpr void after(const timed_operation* later, const timed_operation* earlier, duration lag = {}) {
        if (!later || !earlier || later->start >= earlier->end + lag - slack_) return;
        report(broken_rule::too_early, later->op, later->start.value(), earlier->end.value(), earlier->op, lag.value());
    }

    using lane = std::vector<const timed_operation*>;
    constexpr void exclusive(broken_rule rule, lane entries) {
        std::sort(entries.begin(), entries.end(),
                  [](const timed_operation* a, const timed_operation* b) { return starts_before(*a, *b); });
        const timed_operation* running = nullptr;
        for (const auto* next : entries) {
            if (running && next->start < running->end - slack_)
                report(rule, next->op, next->start.value(), running->end.value(), running->op);
            if (!running || next->end > running->end) running = next;
        }
    }
    /// Checks rules 1 and 4: the marked operations of a rank form pairs that `overlaps` lists.
    constexpr void check_pairs(const std::vector<timed_operation>& own) {
        lane parts;
        for (const auto& timed : own)
            if (timed.op.is_paired) parts.push_back(&timed);
        std::sort(parts.begin(), parts.end(),
                  [](const timed_operation* a, const timed_operation* b) { return starts_before(*a, *b); });
        for (std::size_t i = 0; i < parts.size();) {
            const auto* f = parts[i];
            const auto* b = i + 1 < parts.size() ? parts[i + 1] : nullptr;
            const bool are_together = b && f->start == b->start && f->end == b->end &&
                                      f->op.kind == operation_kind::forward && is_gradient(b->op.kind);
            if (are_together)
                check_pair(*f, *b);
            else
                report(broken_rule::pair_without_partner, f->op, f->start.value());
            i += are_together ? 2 : 1;
        }
    }
    constexpr void check_pair(const timed_operation& f, const timed_operation& b) {
        const bool is_whole = b.op.kind == operation_kind::backward;
        const auto kind = is_whole ? overlap_kind::backward : overlap_kind::backward_input;
        const auto* listed = p_.overlaps.find(f.op.stage, b.op.stage, kind);
        if (!listed) return report(broken_rule::unlisted_pair, f.op, 0.0, 0.0, b.op);
        const auto& of_f = p_.microbatches.factors(f.op.stage, f.op.microbatch);
        const auto& of_b = p_.microbatches.factors(b.op.stage, b.op.microbatch);
        const auto& usual = p_.costs[b.op.stage];
        const auto weight = is_whole ? usual.backward_weight : duration{};
        const auto alone = of_f.forward * p_.costs[f.op.stage].forward;
        const auto back = of_b.backward_input * usual.backward_input + of_b.backward_weight * weight;
        const auto unscaled = p_.costs[f.op.stage].forward + usual.backward_input + weight;
        const auto scaled = listed->duration.value() * ((alone + back) / unscaled);
        check_duration(f, std::max({alone, back, duration{scaled}}) + of_b.forward * stored(b.op).backward_extra);
    }
    constexpr void check_compute_lane(const std::vector<timed_operation>& own) {
        lane compute;
        for (const auto& timed : own)
            if (!is_transfer(timed.op.kind) && !(timed.op.is_paired && is_gradient(timed.op.kind)))
                compute.push_back(&timed);
        exclusive(broken_rule::compute_overlap, std::move(compute));
    }
    /// Checks that no two transfers overlap on a lane. `lane_of(operation)` is the lane that a transfer occupies.
    template <class LaneOf>
    constexpr void exclusive_transfers(broken_rule rule, const lane& transfers, LaneOf lane_of) {
        std::vector<lane> lanes(2 * p_.graph.ranks());
        for (const auto* t : transfers)
            lanes[lane_of(t->op)].push_back(t);
        for (auto& l : lanes)
            exclusive(rule, std::move(l));
    }
    constexpr void check_transfer_lanes() {
        lane transfers;
        for (const auto& timed : s_.operations)
            if (is_transfer(timed.op.kind)) transfers.push_back(&timed);
        const auto& rules = p_.transfer;
        const auto inward = [](const operation& op) { return op.kind == operation_kind::reload ? std::size_t{1} : 0; };
        exclusive_transfers(broken_rule::engine_overlap, transfers, [&](const operation& op) {
            return 2 * p_.rank_of(op.stage).position() + (rules.engines == 2 ? inward(op) : 0);
        });
        // The link of a single rank is checked only if it is stricter than the copy engines.
        std::vector<std::size_t> sharers(p_.graph.ranks(), 0);
        for (const auto l : rules.link)
            ++sharers[l];
        const auto on_link = [&](const timed_operation* t) {
            return sharers[rules.link[p_.rank_of(t->op.stage)]] > 1 ||
                   (rules.engines == 2 && rules.duplex == duplex_kind::half);
        };
        lane shared;
        for (const auto* t : transfers)
            if (on_link(t)) shared.push_back(t);
        exclusive_transfers(broken_rule::link_overlap, shared, [&](const operation& op) {
            return 2 * std::size_t{rules.link[p_.rank_of(op.stage)]} +
                   (rules.duplex == duplex_kind::full ? inward(op) : 0);
        });
    }

    template <class Limits>
    constexpr void check_memory(const per_rank<std::vector<timed_operation>>& own, memory_kind which,
                                const Limits& limits) {
        bool any_limit = false;
        for (const auto limit : limits)
            any_limit = any_limit || !limit.is_unlimited();
        if (!any_limit) return;
        const auto curves = curves_of(p_, s_, which, slack_);
        for (const rank r : p_.graph.all_ranks())
            check_memory(r, own[r], curves[r], which, limits[r]);
    }
    constexpr void check_memory(rank r, const std::vector<timed_operation>& own, const std::vector<memory_point>& curve,
                                memory_kind which, memory_size limit) {
        const auto peak = peak_of(curve);
        if (limit.is_unlimited() || peak <= limit + memory_slack_) return;
        const auto at =
            std::find_if(curve.begin(), curve.end(), [&](const memory_point& m) { return m.level == peak; })->time;
        const bool device = which == memory_kind::device;
        operation culprit{};
        for (const auto& timed : own) {
            if (timed.start < at || timed.start > at + slack_) continue;
            const auto effect = memory_effect_of(p_, timed.op);
            if ((device ? effect.acquired_at_start : effect.host_acquired_at_start) > memory_size{}) culprit = timed.op;
        }
        sink_(fault{device ? broken_rule::device_memory : broken_rule::host_memory,
                    r,
                    culprit,
                    {},
                    peak.value(),
                    limit.value(),
                    0.0,
                    at.value()});
    }

    const basic_problem<Graph>& p_;
    const basic_schedule<Graph>& s_;
    Sink& sink_;
    operation_numbering<Graph> number_;
    std::vector<std::size_t> index_;
    duration slack_;
    memory_size memory_slack_;
};

} // namespace detail

/// Calls `sink(const fault&)` for every violation of a rule of io/README.md. Unknown and repeated operations and times
/// that aren't finite hide other violations.
template <pipeline_graph Graph, class Sink>
constexpr void for_each_fault(const basic_problem<Graph>& p, const basic_schedule<Graph>& s, Sink sink,
                              tolerance t = {}) {
    detail::schedule_checker<Graph, Sink>{p, s, t, sink}.check();
}

/// Converts a fault to a violation, and says where it occurs.
[[nodiscard]] inline violation violation_of(const fault& f) {
    const bool has_rank = f.rule != broken_rule::unknown_operation;
    return {has_rank ? "rank " + std::to_string(f.rank.value()) : "operations", describe(f)};
}

/// All violations of a schedule. Each violation names the rank, the operation and the times. The list is empty if the
/// schedule is valid.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<violation> validate(const basic_problem<Graph>& p, const basic_schedule<Graph>& s,
                                              tolerance t = {}) {
    std::vector<violation> found;
    for_each_fault(
        p, s, [&](const fault& f) { found.push_back(violation_of(f)); }, t);
    return found;
}

template <pipeline_graph Graph>
[[nodiscard]] constexpr bool is_valid(const basic_problem<Graph>& p, const basic_schedule<Graph>& s, tolerance t = {}) {
    bool sound = true;
    for_each_fault(
        p, s, [&](const fault&) { sound = false; }, t);
    return sound;
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] std::vector<violation> validate(const problem& p, const schedule& s, tolerance t = {});
[[nodiscard]] bool is_valid(const problem& p, const schedule& s, tolerance t = {});
#endif

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/format.hpp"

namespace optpipe {

OPTPIPE_INLINE std::string describe(const fault& f) {
    const auto op = to_string(f.subject);
    const auto is = format_number(f.is, 9);
    const auto needed = format_number(f.needed, 9);
    const auto until = to_string(f.other) + " runs until " + needed;
    const auto cell = "stage " + std::to_string(f.subject.stage.value()) + ", microbatch " +
                      std::to_string(f.subject.microbatch.value());
    switch (f.rule) {
    case broken_rule::unknown_operation: return op + ": no such stage or microbatch";
    case broken_rule::cannot_offload: return op + ": this stage can't be offloaded";
    case broken_rule::cannot_recompute: return op + ": its storage option has no recomputation";
    case broken_rule::unknown_storage: return op + ": its stage has no such storage option";
    case broken_rule::other_storage: return op + " has another storage option than " + to_string(f.other);
    case broken_rule::appears_twice: return op + " appears twice";
    case broken_rule::not_finite: return op + ": its start or end is not a finite number";
    case broken_rule::wrong_duration: return op + " lasts " + is + ", not " + needed;
    case broken_rule::before_zero: return op + " starts at " + is + ", before 0";
    case broken_rule::missing_forward: return op + " is missing";
    case broken_rule::wrong_backward: return cell + ": needs either B, or I and W";
    case broken_rule::split_forbidden: return cell + ": only B may be used, split_backward is false";
    case broken_rule::full_forbidden: return cell + ": B may not be used, full_backward is false";
    case broken_rule::frozen_weights: return cell + ": its weights are frozen, so it needs one I alone";
    case broken_rule::frozen: return cell + ": it computes no gradients, so it has no I, W or B";
    case broken_rule::group_order:
        return op + " and " + to_string(f.other) + " run in another order than on other stages of the group";
    case broken_rule::storage_not_followed: return op + " is missing: its storage option asks for it";
    case broken_rule::pair_without_partner:
        return op + " is marked as a part of a pair, but no other part runs with it at " + is;
    case broken_rule::unlisted_pair: return to_string(pair_of(f.subject, f.other)) + " isn't listed in overlaps";
    case broken_rule::too_early:
        return op + " starts at " + is + ", before " + to_string(f.other) + "'s end " + needed +
               (f.lag > 0.0 ? " plus " + format_number(f.lag, 9) : "");
    case broken_rule::compute_overlap: return op + " starts at " + is + " while " + until;
    case broken_rule::engine_overlap: return op + " starts on the copy engine at " + is + " while " + until;
    case broken_rule::link_overlap: return op + " starts on the host link at " + is + " while " + until;
    case broken_rule::device_memory:
        return "holds " + is + " when " + op + " starts at " + format_number(f.time, 9) + ", its limit is " + needed;
    case broken_rule::host_memory:
        return "keeps " + is + " on the host when " + op + " starts at " + format_number(f.time, 9) +
               ", its limit is " + needed;
    }
    return {};
}

} // namespace optpipe
#endif
