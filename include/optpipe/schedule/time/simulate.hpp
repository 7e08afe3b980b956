#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/rank_resources.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {

/// Places operations one after the other. Each operation starts as early as the rules of a valid schedule
/// (io/README.md) and all placed operations allow. Operations that share a lane, a link or a memory keep the order of
/// the calls. A pair is placed by the call for its second part. O(1) amortized per operation.
template <pipeline_graph Graph> class placer {
public:
    constexpr explicit placer(const basic_problem<Graph>& p, tolerance t = {})
        : problem_{&p}, is_simple_{p.is_simple()}, number_{p.graph},
          ends_(number_.size(), duration::unlimited()), cell_{p.graph},
          storage_(cell_.size(), storage_index{}), resources_{p, t} {
        result_.graph = p.graph;
        result_.operations.reserve(most_operations_per_cell * p.graph.cells());
    }

    /// The reason why the operation can't come next; `none` if it can.
    enum class obstacle { none, unknown, twice, other_storage, group_order, pair, input_missing, memory, host_memory };

    constexpr obstacle place(const operation& op) {
        const auto& p = *problem_;
        if (is_two_operations(p, op)) {
            const auto met = place(sibling(op, operation_kind::backward_input));
            return met == obstacle::none ? place(sibling(op, operation_kind::backward_weight)) : met;
        }
        if (const auto met = obstacle_of(op); met != obstacle::none) return met;
        const rank r = p.rank_of(op.stage);
        if (op.is_paired) return place_part(op, r);
        if (!is_transfer(op.kind) && first_part_on(r)) return obstacle::pair;
        const auto ready = ready_time(op);
        if (ready.is_unlimited()) return obstacle::input_missing;

        const auto effect = effect_of(op);
        const auto lanes = resources_.lanes_of(op.kind, r);
        const auto [start, lacks] = resources_.earliest_start(lanes, r, effect, ready);
        if (lacks) return *lacks == memory_kind::host ? obstacle::host_memory : obstacle::memory;
        const auto end = start + duration_of(p, op);
        resources_.occupy(lanes, r, effect, start, end);
        commit(op, start, end);
        return obstacle::none;
    }

    /// Whether the first part of a pair is still waiting for its second part.
    [[nodiscard]] constexpr bool has_open_pair() const {
        return std::any_of(first_parts_.begin(), first_parts_.end(), [](const auto& part) { return part.is_paired; });
    }
    /// Returns `op` if it lacks an input, and otherwise the first part of its pair.
    [[nodiscard]] constexpr operation part_that_waits(const operation& op) const {
        const auto* first = is_second_part(op) ? first_part_on(problem_->rank_of(op.stage)) : nullptr;
        return first && !ready_time(op).is_unlimited() ? *first : op;
    }
    [[nodiscard]] constexpr bool done(const operation& op) const { return !ends_[number_(op)].is_unlimited(); }
    /// An input of `op` that hasn't been placed, or a placed operation that excludes `op`. Contract: `place(op)`
    /// returned `input_missing`.
    [[nodiscard]] constexpr operation reason_against(const operation& op) const {
        const stage s = op.stage;
        const microbatch m = op.microbatch;
        const auto kind = op.kind;
        if ((is_gradient(kind) || kind == operation_kind::backward_weight) && done(backward(s, m)))
            return backward(s, m);
        if (is_gradient(kind) && done(backward_input(s, m))) return backward_input(s, m);
        for (const auto& needed : inputs_of(op))
            if (!is_there(needed)) return needed;
        return op;
    }
    /// The inputs of an operation. For an input that may be I or B, the list has the placed one, or B.
    [[nodiscard]] constexpr std::vector<operation> inputs_of(const operation& op) const {
        std::vector<operation> inputs;
        for_each_dependency(*problem_, op, way_of(op), [&](const operation& before, duration) {
            const bool other = is_gradient(before.kind) && op.kind != operation_kind::backward_weight;
            inputs.push_back(other ? gradient_of(before.stage, before.microbatch) : before);
        });
        return inputs;
    }
    /// The operations that a stage and microbatch still lack, in their order.
    [[nodiscard]] constexpr bounded_vector<operation, 6> missing_of(stage s, microbatch m) const {
        bounded_vector<operation, 6> missing;
        const auto lack = [&](operation op) {
            op.storage = storage_used(op);
            if (!done(op)) missing.push_back(op);
        };
        auto first = forward(s, m);
        first.storage = storage_used(first);
        const auto way = way_of(first);
        lack(first);
        if (way.is_offloaded) lack(offload_of(s, m));
        if (way.is_offloaded) lack(reload_of(s, m));
        if (way.is_recomputed) lack(recompute_of(s, m));
        const auto gradients = problem_->costs[s].gradients;
        if (gradients != gradient_kind::none) lack(gradient_of(s, m));
        if (gradients == gradient_kind::full && done(backward_input(s, m))) lack(backward_weight(s, m));
        return missing;
    }
    [[nodiscard]] constexpr const basic_schedule<Graph>& result() const& { return result_; }
    [[nodiscard]] constexpr basic_schedule<Graph>&& result() && {
        return static_cast<basic_schedule<Graph>&&>(result_);
    }

private:
    /// The reason why the operation can't come next, apart from its inputs.
    constexpr obstacle obstacle_of(const operation& op) {
        if (!number_.contains(op) || !is_possible(*problem_, op)) return obstacle::unknown;
        if (done(op)) return obstacle::twice;
        if (op.kind != operation_kind::forward && op.storage != storage_used(op) &&
            done(forward(op.stage, op.microbatch)))
            return obstacle::other_storage;
        if (!is_simple_ && op.kind == operation_kind::forward && !follows_group(op)) return obstacle::group_order;
        return obstacle::none;
    }
    constexpr memory_effect effect_of(const operation& op) const {
        const auto& p = *problem_;
        return is_simple_ ? memory_effect_of(p.costs[op.stage], storage_of(p, op), op.kind) : memory_effect_of(p, op);
    }

    /// The first part of a pair on this rank that waits for its second part; null if there is none.
    constexpr const operation* first_part_on(rank r) const {
        return !first_parts_.empty() && first_parts_[r.position()].is_paired ? &first_parts_[r.position()] : nullptr;
    }
    constexpr obstacle place_part(const operation& op, rank r) {
        const auto* first = first_part_on(r);
        if (op.kind == operation_kind::forward) {
            if (first) return obstacle::pair;
            first_parts_.resize(problem_->graph.ranks());
            first_parts_[r.position()] = op;
            return obstacle::none;
        }
        const auto* of = first ? overlap_of(*problem_, *first, op) : nullptr;
        return of ? place_pair(*of, {*first, op}, r) : obstacle::pair;
    }
    constexpr obstacle place_pair(const overlap& of, const operation_pair& pair, rank r) {
        const auto ready = std::max(ready_time(pair.forward), ready_time(pair.backward));
        if (ready.is_unlimited()) return obstacle::input_missing;
        auto effect = effect_of(pair.forward);
        const auto of_backward = effect_of(pair.backward);
        effect.acquired_at_start += of_backward.acquired_at_start + of.memory;
        effect.released_at_end += of_backward.released_at_end + of.memory;
        const auto lanes = resources_.lanes_of(pair.forward.kind, r);
        const auto [start, lacks] = resources_.earliest_start(lanes, r, effect, ready);
        if (lacks) return obstacle::memory;
        const auto end = start + pair_duration(*problem_, of, pair.forward, pair.backward);
        resources_.occupy(lanes, r, effect, start, end);
        commit(pair.forward, start, end);
        commit(pair.backward, start, end);
        first_parts_[r.position()].is_paired = false;
        return obstacle::none;
    }

    constexpr duration gradient_end(stage s, microbatch m) const {
        return std::min(ends_[number_(backward_input(s, m))], ends_[number_(backward(s, m))]);
    }

    /// The backward that has been placed for a stage and microbatch. If no backward has been placed, returns B, or I on
    /// a stage without B.
    constexpr operation gradient_of(stage s, microbatch m) const {
        const bool is_input_alone = problem_->costs[s].gradients == gradient_kind::input;
        return is_input_alone || done(backward_input(s, m)) ? backward_input(s, m) : backward(s, m);
    }
    constexpr bool is_there(const operation& op) const {
        return is_gradient(op.kind) ? !gradient_end(op.stage, op.microbatch).is_unlimited() : done(op);
    }

    /// The storage option that the forward of the stage and microbatch has. Contract: the forward has been placed.
    constexpr storage_index storage_used(const operation& op) const { return storage_[cell_(op)]; }
    constexpr stash_way way_of(const operation& op) const { return stash_way_of(*problem_, op); }

    /// The time when the operation's inputs are ready; unlimited while an input hasn't been placed. The time is also
    /// unlimited for an impossible operation, such as a second gradient.
    constexpr duration ready_time(const operation& op) const {
        if (is_gradient(op.kind) && !gradient_end(op.stage, op.microbatch).is_unlimited()) return duration::unlimited();
        if (op.kind == operation_kind::backward_input && !may_split(*problem_, op.stage)) return duration::unlimited();
        return input_time(
            *problem_, op, [this](const operation& before) { return ends_[number_(before)]; },
            waits_for_stash(op.kind) ? way_of(op) : stash_way{}, is_simple_);
    }

    constexpr void commit(const operation& op, duration start, duration end) {
        if (!is_simple_)
            for_each_release_of_others(*problem_, op,
                                       [&](rank of, memory_size amount) { resources_.release(of, amount, end); });
        ends_[number_(op)] = end;
        if (op.kind == operation_kind::forward) storage_[cell_(op)] = op.storage;
        if (!is_simple_ && op.kind == operation_kind::forward && problem_->groups.has(op.stage))
            forwards_[op.stage.position()].push_back(op.microbatch);
        result_.operations.push_back({op, start, end});
    }

    /// Whether the forward `op` keeps the order of forwards equal on all stages of its group. Returns true if the stage
    /// has no group.
    constexpr bool follows_group(const operation& op) {
        if (!problem_->groups.has(op.stage)) return true;
        forwards_.resize(problem_->graph.stages());
        bool follows = true;
        const auto done_until_now = forwards_[op.stage.position()].size();
        problem_->groups.for_each_member(op.stage, [&](stage member, duration) {
            const auto& there = forwards_[member.position()];
            follows = follows && (there.size() <= done_until_now || there[done_until_now] == op.microbatch);
        });
        return follows;
    }

    const basic_problem<Graph>* problem_;
    bool is_simple_;
    operation_numbering<Graph> number_;
    std::vector<duration> ends_;
    cell_numbering cell_;
    /// The storage option of each cell whose forward has been placed.
    std::vector<storage_index> storage_;
    /// For each stage in a group, the microbatches whose forwards have been placed.
    std::vector<std::vector<microbatch>> forwards_{};
    /// For each rank, the first part of a pair that waits for its second part. If no pair waits, the element isn't
    /// marked as paired. The list stays empty until a pair is placed.
    std::vector<operation> first_parts_{};
    detail::rank_resources<Graph> resources_;
    basic_schedule<Graph> result_{};
};

/// The smallest memory limit of each rank with which `simulate` can time the order. The limit is the peak memory of the
/// rank if operations wait only for earlier operations of the order.
template <pipeline_graph Graph>
[[nodiscard]] constexpr per_rank<memory_size, Graph::rank_extent>
memory_needed(const basic_problem<Graph>& p, const basic_order<Graph>& given, memory_kind which = memory_kind::device) {
    per_rank<memory_size, Graph::rank_extent> level(p.graph.ranks());
    auto peak = level;
    const bool device = which == memory_kind::device;
    const auto acquire = [&](const operation& op, memory_size beside) {
        const rank r = p.rank_of(op.stage);
        const auto effect = memory_effect_of(p, op);
        level[r] += device ? effect.acquired_at_start : effect.host_acquired_at_start;
        peak[r] = std::max(peak[r], level[r] + beside);
    };
    const auto release = [&](const operation& op) {
        const auto effect = memory_effect_of(p, op);
        level[p.rank_of(op.stage)] -= device ? effect.released_at_end : effect.host_released_at_end;
        if (device) for_each_release_of_others(p, op, [&](rank of, memory_size amount) { level[of] -= amount; });
    };
    per_rank<operation, Graph::rank_extent> first_part(p.graph.ranks()); // the first part of each rank's last pair
    const auto run = [&](const operation& op) {
        auto& first = first_part[p.rank_of(op.stage)];
        const auto* pair = is_second_part(op) ? overlap_of(p, first, op) : nullptr;
        acquire(op, pair && device ? pair->memory : memory_size{});
        if (op.is_paired && op.kind == operation_kind::forward)
            first = op; // the memory of the first part is released with the second part
        else
            release(op);
        if (pair) release(first);
    };
    for (const auto& op : given.operations) {
        const bool is_two = is_two_operations(p, op);
        run(is_two ? sibling(op, operation_kind::backward_input) : op);
        if (is_two) run(sibling(op, operation_kind::backward_weight));
    }
    return peak;
}

namespace detail {

constexpr refusal not_executable(const decltype(refusal::sentence)& sentence, std::size_t position, rank where = {}) {
    refusal why;
    why.reason = refusal_reason::not_executable;
    why.sentence = sentence;
    why.rank = where;
    why.position = position;
    return why;
}

constexpr refusal unknown_operation(const operation& op, std::size_t position) {
    return not_executable(
        {"the problem has no ", spelling(op), ": no such stage or microbatch, or not with its storage option"},
        position);
}

/// The refusal of an operation: its spelling and rank, then the text `what`.
template <pipeline_graph Graph, text_part... What>
constexpr refusal refused(const basic_problem<Graph>& p, const operation& op, std::size_t position,
                          const What&... what) {
    const rank r = p.rank_of(op.stage);
    return not_executable({spelling(op), " (rank ", r.value(), ")", what...}, position, r);
}

/// The refusal for an operation that can't come at its position in the order.
template <pipeline_graph Graph>
constexpr refusal wrong_place(const basic_problem<Graph>& p, const placer<Graph>& so_far, const operation& op,
                              std::size_t position) {
    if (op.kind == operation_kind::backward_input && !may_split(p, op.stage))
        return refused(p, op, position, ": only B may be used, split_backward is false");
    const auto other = so_far.reason_against(op);
    const auto where = p.rank_of(other.stage).value();
    if (so_far.done(other)) return refused(p, op, position, " comes after ", spelling(other), ": either B, or I and W");
    if (is_gradient(other.kind) && other.stage != op.stage && p.split_backward)
        return refused(p, op, position, " comes before ", spelling(backward(other.stage, other.microbatch)), " or ",
                       spelling(backward_input(other.stage, other.microbatch)), " (rank ", where,
                       "), which it waits for");
    return refused(p, op, position, " comes before ", spelling(other), " (rank ", where, "), which it waits for");
}

/// Refuses an order that ends too early, and names a possible next operation.
template <pipeline_graph Graph>
constexpr refusal incomplete(const basic_problem<Graph>& p, const placer<Graph>& placed, std::size_t position) {
    operation next{};
    std::size_t missing = 0;
    bool is_found = false;
    const auto look_at = [&](const operation& op) {
        ++missing;
        if (is_found) return;
        is_found = true;
        for (const auto& needed : placed.inputs_of(op))
            is_found = is_found && placed.done(needed);
        if (is_found) next = op;
    };
    for (const stage s : p.graph.all_stages())
        for (const microbatch m : p.graph.all_microbatches())
            for (const auto& op : placed.missing_of(s, m))
                look_at(op);
    const rank r = p.rank_of(next.stage);
    const stage s = next.stage;
    const microbatch m = next.microbatch;
    decltype(refusal::sentence) text{missing, missing == 1 ? " operation is missing: " : " operations are missing, as ",
                                     spelling(next)};
    if (is_two_operations(p, next))
        text = {text, " as ", spelling(backward_input(s, m)), " and ", spelling(backward_weight(s, m))};
    else if (next.kind == operation_kind::backward && p.split_backward)
        text = {text, " (or ", spelling(backward_input(s, m)), " and ", spelling(backward_weight(s, m)), ")"};
    text = {text, " on rank ", r.value()};
    const auto inputs = placed.inputs_of(next);
    for (std::size_t i = 0; i < inputs.size(); ++i)
        text = {text, i == 0 ? ", though what it waits for is there: " : " and ", spelling(inputs[i])};
    return not_executable(text, position, r);
}

/// Refuses an order that needs too much memory, and names the rank that lacks most.
template <pipeline_graph Graph>
constexpr refusal memory_refusal(const basic_problem<Graph>& p, const basic_order<Graph>& given, memory_kind which) {
    // If the problem lacks an operation of the order, the memory that the order needs is undefined.
    const operation_numbering<Graph> number{p.graph};
    for (std::size_t i = 0; i < given.operations.size(); ++i)
        if (const auto& op = given.operations[i]; !number.contains(op) || !is_possible(p, op))
            return unknown_operation(op, i);
    const bool device = which == memory_kind::device;
    const auto needed = memory_needed(p, given, which);
    const auto& limits = device ? p.memory_limit : p.host_memory_limit;
    refusal why;
    why.reason = device ? refusal_reason::over_memory : refusal_reason::over_host_memory;
    for (const rank r : p.graph.all_ranks())
        if (r.value() == 0 || needed[r] - limits[r] > why.needed - why.limit) {
            why.rank = r;
            why.needed = needed[r];
            why.limit = limits[r];
        }
    return why;
}

} // namespace detail

/// Gives an order its earliest times. Operations that share a lane, a link or a memory keep their order. In this order,
/// every operation starts as early as the rules (io/README.md) allow. An operation waits for memory that an earlier
/// operation of the order frees.
///
/// No valid schedule with this order starts any operation earlier. Missing, repeated or premature operations make an
/// order `not_executable`. A refusal for lack of memory names a rank and the memory that it lacks. Transfers need not
/// name their storage option (`with_storage_of_transfers`). O(number of operations).
template <pipeline_graph Graph>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>> simulate(const basic_problem<Graph>& p,
                                                                const basic_order<Graph>& sequence) {
    if (detail::any_lacks_storage(p, sequence.operations)) return simulate(p, with_storage_of_transfers(p, sequence));
    using obstacle = typename placer<Graph>::obstacle;
    placer<Graph> place{p};
    std::size_t begun = 0;
    std::size_t finished = 0; // number of cells (pairs of a stage and a microbatch) that are finished
    const bool is_full = is_plain(p);
    for (std::size_t i = 0; i < sequence.operations.size(); ++i) {
        const auto& op = sequence.operations[i];
        switch (place.place(op)) {
        case obstacle::none: break;
        case obstacle::unknown: return detail::unknown_operation(op, i);
        case obstacle::other_storage: return detail::refused(p, op, i, " has another storage option than its forward");
        case obstacle::group_order: return detail::refused(p, op, i, " comes in another order than in its group");
        case obstacle::pair:
            if (!op.is_paired) return detail::refused(p, op, i, " is between the parts of a pair");
            return detail::refused(p, op, i,
                                   " is marked as a part of a pair, but its neighbour on the rank isn't the other part "
                                   "of a pair in `overlaps`");
        case obstacle::twice: return detail::refused(p, op, i, " appears twice");
        case obstacle::input_missing: return detail::wrong_place(p, place, place.part_that_waits(op), i);
        case obstacle::memory: return detail::memory_refusal(p, sequence, memory_kind::device);
        case obstacle::host_memory: return detail::memory_refusal(p, sequence, memory_kind::host);
        }
        begun += op.kind == operation_kind::forward ? 1 : 0;
        if (is_full ? is_weight_gradient(op.kind) : is_last_computation(p, op)) ++finished;
    }
    const auto all = p.graph.cells();
    if (begun != all || finished != all || place.has_open_pair())
        return detail::incomplete(p, place, sequence.operations.size());
    return static_cast<placer<Graph>&&>(place).result();
}

/// Postpones the forwards before each rank's first backward as far as later operations allow. Nothing else changes. On
/// a rank without backwards, the last operation stays in place. A forward stays in place if its end frees memory that
/// another operation may need. A rank that starts later is engaged for a shorter time, and holds stashes for less time.
template <pipeline_graph Graph>
constexpr void postpone_warm_up(const basic_problem<Graph>& p, basic_schedule<Graph>& s) {
    const bool transfers = offloads_anything(p);
    const operation_numbering<Graph> number{p.graph};
    std::vector<duration> start_of(number.size(), duration::unlimited());
    per_rank<duration, Graph::rank_extent> first_backward(p.graph.ranks(), duration::unlimited());
    per_rank<duration, Graph::rank_extent> last_end(p.graph.ranks());
    for (const auto& timed : s.operations) {
        start_of[number(timed.op)] = timed.start;
        const rank r = p.rank_of(timed.op.stage);
        auto& first = first_backward[r];
        last_end[r] = std::max(last_end[r], timed.end);
        if (!is_transfer(timed.op.kind) && timed.op.kind != operation_kind::forward)
            first = std::min(first, timed.start);
    }
    for (const rank r : p.graph.all_ranks())
        if (first_backward[r].is_unlimited()) first_backward[r] = last_end[r];
    std::vector<std::size_t> warm_up;
    for (std::size_t i = 0; i < s.operations.size(); ++i) {
        const auto& timed = s.operations[i];
        if (timed.op.kind == operation_kind::forward && !timed.op.is_paired &&
            timed.start <= first_backward[p.rank_of(timed.op.stage)])
            warm_up.push_back(i);
    }
    std::sort(warm_up.begin(), warm_up.end(),
              [&](std::size_t a, std::size_t b) { return starts_before(s.operations[b], s.operations[a]); });
    auto next_on_lane = first_backward;
    for (const auto i : warm_up) {
        auto& timed = s.operations[i];
        const stage at = timed.op.stage;
        const microbatch m = timed.op.microbatch;
        const rank r = p.rank_of(at);
        auto latest_end = next_on_lane[r];
        for (const auto after : {operation_kind::offload, operation_kind::recompute, operation_kind::backward_input,
                                 operation_kind::backward})
            latest_end = std::min(latest_end, start_of[number({at, after, m})]);
        for_each_consumer(p, timed.op, [&](const operation& after, duration delay) {
            latest_end = std::min(latest_end, start_of[number(after)] - delay);
            if (is_gradient(after.kind))
                latest_end = std::min(latest_end, start_of[number(sibling(after, operation_kind::backward))] - delay);
        });
        for_each_release_of_others(p, timed.op, [&](rank, memory_size) { latest_end = timed.end; });
        // A reload may wait for the memory that a forward without gradients frees.
        if (transfers && p.costs[at].gradients == gradient_kind::none) latest_end = timed.end;
        const auto length = timed.end - timed.start;
        if (latest_end > timed.end) {
            timed.start = latest_end - length;
            timed.end = latest_end;
        }
        start_of[number(timed.op)] = next_on_lane[r] = timed.start;
    }
}

#if defined(OPTPIPE_COMPILED) // defined in the library
[[nodiscard]] outcome<schedule> simulate(const problem& p, const order& sequence);
#endif

} // namespace optpipe
