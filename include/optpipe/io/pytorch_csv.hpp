#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/io/pytorch_actions.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <string>

namespace optpipe {

/// The two formats of PyTorch's schedule files.
enum class pytorch_format {
    compute_only,  ///< computations only; PyTorch adds messages, with receives as early as possible
    compute_comms, ///< all actions; each receive is at its place in the plan
};

struct pytorch_options {
    pytorch_format format = pytorch_format::compute_only;
    /// Whether to leave out offloads, reloads and recomputation, which PyTorch's schedules can't express. If false,
    /// `to_pytorch` refuses a schedule with offloads, reloads or recomputation.
    bool without_storage = false;
    /// For FSDP in `compute_comms`: the number of stages per rank with gathered parameters. PyTorch itself uses 3. If
    /// 0, UNSHARD and RESHARD are left out. More stages need more memory, but leave more time for gathering.
    std::size_t unsharded_stages = 0;
};

/// Whether the schedule has offloads, reloads, recomputations, or backwards that recompute piecewise.
[[nodiscard]] bool uses_storage(const problem& p, const schedule& s);

/// The schedule as PyTorch's `_PipelineScheduleRuntime` loads it. Refused if a rank has no stage, or the order isn't
/// executable. Refused if stashes are offloaded or recomputed, unless `without_storage` is set. Refused for problems
/// with edges, groups or frozen stages. Pairs with an I are refused, because PyTorch only runs pairs with a full
/// backward. Pairs with a full backward can be written in `compute_only`, but not in `compute_comms`. Microbatches may
/// differ, and may be slices of sequences. The user's stage module stores the data that one slice leaves for the next.
///
/// A stage under FSDP needs UNSHARD and RESHARD. In `compute_only`, PyTorch adds UNSHARD and RESHARD. In
/// `compute_comms`, `to_pytorch` adds UNSHARD and RESHARD if `unsharded_stages` isn't 0.
[[nodiscard]] outcome<pytorch_schedule> to_pytorch(const problem& p, const schedule& s,
                                                   const pytorch_options& options = {});

/// The order of the computations in a schedule file, for `simulate` on a problem. Overlapping actions become a pair if
/// the problem has this pair, and otherwise run in order. All activations are kept on the device.
///
/// Throws `input_error` if the file doesn't fit the problem's ranks, stages or microbatches. Throws `input_error` if a
/// stage lacks a storage option that keeps all activations. Throws `input_error` if messages of `compute_comms` are
/// wrong (`message_violations`). Refused for problems with edges, groups or frozen stages. Refused if the file's rows
/// deadlock even with buffered sends.
[[nodiscard]] outcome<order> order_of(const problem& p, const pytorch_schedule& file, const std::string& source_name);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/container.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/io/beyond_chain.hpp"
#include "optpipe/io/pytorch_messages.hpp"
#include "optpipe/io/pytorch_unshard.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe {

OPTPIPE_INLINE bool uses_storage(const problem& p, const schedule& s) {
    return std::any_of(s.operations.begin(), s.operations.end(), [&](const timed_operation& timed) {
        const auto kind = timed.op.kind;
        return is_transfer(kind) || kind == operation_kind::recompute ||
               storage_of(p, timed.op).backward_extra > duration{};
    });
}
namespace detail {

[[nodiscard]] constexpr pytorch_action_kind pytorch_kind(operation_kind kind) {
    switch (kind) {
    case operation_kind::forward: return pytorch_action_kind::forward;
    case operation_kind::backward_input: return pytorch_action_kind::backward_input;
    case operation_kind::backward_weight: return pytorch_action_kind::backward_weight;
    case operation_kind::backward: return pytorch_action_kind::backward;
    case operation_kind::offload:
    case operation_kind::reload:
    case operation_kind::recompute: break;
    }
    OPTPIPE_EXPECT(false, "pytorch_kind: PyTorch has no such action");
    return pytorch_action_kind::forward;
}

[[nodiscard]] constexpr std::optional<operation_kind> operation_kind_of(pytorch_action_kind kind) {
    for (const auto each : all_operation_kinds)
        if (!is_transfer(each) && each != operation_kind::recompute && pytorch_kind(each) == kind) return each;
    return std::nullopt;
}

/// Why PyTorch can't run a schedule; empty if it can.
[[nodiscard]] inline std::optional<refusal> pytorch_lacks(const problem& p, const schedule& s,
                                                          const pytorch_options& options) {
    if (const auto beyond = beyond_chain(p, "PyTorch")) return beyond;
    per_rank<unsigned char> has_stage(p.graph.ranks(), 0);
    for (const stage each : p.graph.all_stages())
        has_stage[p.rank_of(each)] = 1;
    for (const rank r : p.graph.all_ranks())
        if (!has_stage[r])
            return refusal{refusal_reason::does_not_apply,
                           {"rank ", r.value(), " has no stage; in PyTorch each has one"}};
    for (const auto& timed : s.operations)
        if (timed.op.is_paired && timed.op.kind == operation_kind::backward_input)
            return refusal{
                refusal_reason::does_not_apply,
                {spelling(timed.op), " is in a pair; PyTorch's runtime runs pairs with a full backward only"}};
    if (options.format == pytorch_format::compute_comms && has_pairs(s.operations))
        return refusal{refusal_reason::does_not_apply,
                       "the schedule has pairs, which are written without messages only: PyTorch adds these"};
    if (!options.without_storage && uses_storage(p, s))
        return refusal{refusal_reason::does_not_apply,
                       "the schedule offloads or recomputes, which PyTorch's schedules can't express"};
    return std::nullopt;
}

/// The problem as PyTorch sees it: without storage options and memory.
[[nodiscard]] inline problem without_storage(problem p) {
    for (const stage s : p.graph.all_stages()) {
        auto costs = p.costs[s];
        costs.activation = costs.weight_stash = {};
        p.set_stage(s, costs);
    }
    return p;
}

/// The computations of a schedule, in the order of the schedule.
[[nodiscard]] inline order compute_order(const schedule& s) {
    auto result = order_of(s);
    std::erase_if(result.operations,
                  [](const operation& op) { return is_transfer(op.kind) || op.kind == operation_kind::recompute; });
    for (auto& op : result.operations)
        op.storage = 0;
    return result;
}

/// Writes the rows of `compute_comms` from the programs of all ranks.
///
/// PyTorch issues a row's actions in order, and computations wait for their messages. In each program, all messages are
/// on one lane. The programs don't deadlock, even if every send waits for its receive.
class pytorch_lowering {
public:
    pytorch_lowering(const problem& p, const per_rank<rank_program>& programs) : p_{&p} {
        for (const auto& each : programs)
            rows_.push_back(actions_of(each));
    }

    [[nodiscard]] pytorch_schedule run() const {
        const auto at = positions();
        pytorch_schedule result;
        for (std::size_t r = 0; r < rows_.size(); ++r)
            result.rows.push_back(with_waits(r, at));
        return result;
    }

private:
    using position_map = std::map<std::string, std::size_t>;

    /// The action of PyTorch for one end of a message. The action of a send names the sending stage, and the action of
    /// a receive names the receiving stage.
    [[nodiscard]] static pytorch_action message_action(const exchange_part& part) {
        const bool sends = part.side == exchange_part::side_kind::send;
        const auto& op = part.message;
        if (direction_of(op) == message_direction::forward)
            return {sends ? op.stage : op.stage.next(),
                    sends ? pytorch_action_kind::send_forward : pytorch_action_kind::receive_forward,
                    op.microbatch,
                    {}};
        return {sends ? op.stage : op.stage.previous(),
                sends ? pytorch_action_kind::send_backward : pytorch_action_kind::receive_backward,
                op.microbatch,
                {}};
    }

    /// The actions of a program. Messages that progress together become separate cells, in the same order on both
    /// ranks.
    [[nodiscard]] static std::vector<pytorch_action> actions_of(const rank_program& program) {
        std::vector<pytorch_action> actions;
        for (const auto& each : program.instructions) {
            if (each.kind == instruction_kind::compute)
                actions.push_back({each.op.stage, pytorch_kind(each.op.kind), each.op.microbatch, {}});
            if (each.kind != instruction_kind::exchange) continue;
            std::vector<exchange_part> parts(program.parts.begin() + each.first_part,
                                             program.parts.begin() + each.first_part + each.parts);
            std::sort(parts.begin(), parts.end(), [&](const exchange_part& a, const exchange_part& b) {
                const auto key = [&](const exchange_part& part) {
                    const bool sends = part.side == exchange_part::side_kind::send;
                    return std::tuple{sends ? program.self : part.peer, part.message};
                };
                return key(a) < key(b);
            });
            for (const auto& part : parts)
                actions.push_back(message_action(part));
        }
        return actions;
    }

    [[nodiscard]] position_map positions() const {
        position_map at;
        for (const auto& row : rows_)
            for (std::size_t i = 0; i < row.size(); ++i)
                at.emplace(to_string(row[i]), i);
        return at;
    }

    /// Adds waits for sends, and a reduction after each stage's last backward.
    ///
    /// A send has ended once its receiver has posted the receive. A computation proves a send's end if the receiver
    /// posted the receive before sending the computation's input. The wait for a send follows the first computation
    /// that proves its end. If no computation proves the end of a send, the wait is at the end of the row.
    [[nodiscard]] pytorch_schedule::row with_waits(std::size_t r, const position_map& at) const {
        pytorch_schedule::row row;
        std::map<rank, std::vector<pytorch_action>> pending;
        std::map<stage, std::size_t> backwards;
        for (const auto& action : rows_[r]) {
            row.emplace_back(action);
            if (is_send(action.kind)) pending[p_->rank_of(message_partner(action).stage)].push_back(action);
            if (!is_compute(action.kind)) continue;
            if (action.kind != pytorch_action_kind::backward_weight) settle(row, pending, action, at);
            const bool last =
                action.kind == pytorch_action_kind::backward_weight || action.kind == pytorch_action_kind::backward;
            if (!last || ++backwards[action.stage] < p_->graph.microbatches()) continue;
            row.push_back(pytorch_action{action.stage, pytorch_action_kind::reduce_gradients, {}, {}});
            row.push_back(pytorch_action{action.stage, pytorch_action_kind::wait_reduce_gradients, {}, {}});
        }
        for (const auto& [peer, sent] : pending)
            for (const auto& each : sent)
                row.push_back(wait_for(each));
        return row;
    }

    /// Adds the waits for the sends whose end `computed` proves (`with_waits`).
    void settle(pytorch_schedule::row& row, std::map<rank, std::vector<pytorch_action>>& pending,
                const pytorch_action& computed, const position_map& at) const {
        const auto input = received_by(computed);
        if (!at.contains(to_string(input))) return;
        const auto sent = message_partner(input);
        const auto proof = at.find(to_string(sent))->second;
        auto& own = pending[p_->rank_of(sent.stage)];
        const auto settled = [&](const pytorch_action& each) {
            return at.find(to_string(message_partner(each)))->second < proof;
        };
        for (const auto& each : own)
            if (settled(each)) row.push_back(wait_for(each));
        std::erase_if(own, settled);
    }

    const problem* p_;
    std::vector<std::vector<pytorch_action>> rows_{};
};

/// Turns each `OVERLAP_F_B` into a pair if the problem has this pair. Contract: `lanes` has the computations of `file`.
inline void mark_pairs(const problem& p, const pytorch_schedule& file, compute_lanes& lanes) {
    for (const rank r : lanes.indices()) {
        std::size_t at = 0;
        for (const auto& cell : file.rows[r.position()]) {
            if (!cell || !is_compute(cell->kind)) continue;
            const bool is_overlap = cell->kind == pytorch_action_kind::overlap;
            if (is_overlap && cell->overlapped.size() == 2) mark_pair(p.overlaps, lanes[r][at], lanes[r][at + 1]);
            at += is_overlap ? cell->overlapped.size() : 1;
        }
    }
}

} // namespace detail

OPTPIPE_INLINE outcome<pytorch_schedule> to_pytorch(const problem& p, const schedule& s,
                                                    const pytorch_options& options) {
    if (const auto lacking = detail::pytorch_lacks(p, s, options)) return *lacking;
    const auto plain = detail::without_storage(p);
    const auto timed = simulate(plain, detail::compute_order(s));
    if (!timed) return timed.why();
    if (options.format == pytorch_format::compute_comms) {
        lowering_options how;
        how.lanes = message_lanes::single;
        const auto programs = lower(plain, *timed, how);
        if (!programs) return programs.why();
        auto result = detail::pytorch_lowering{plain, *programs}.run();
        if (options.unsharded_stages > 0)
            for (auto& row : result.rows)
                row = detail::with_unshards(row, options.unsharded_stages);
        return result;
    }
    pytorch_schedule result;
    for (const auto& own : operations_by_rank(*timed)) {
        auto& row = result.rows.emplace_back();
        for (const auto& each : own) {
            pytorch_action action{each.op.stage, detail::pytorch_kind(each.op.kind), each.op.microbatch, {}};
            if (is_second_part(each.op))
                row.back() = pytorch_action{{}, pytorch_action_kind::overlap, {}, {*row.back(), std::move(action)}};
            else
                row.emplace_back(std::move(action));
        }
    }
    return result;
}

OPTPIPE_INLINE outcome<order> order_of(const problem& p, const pytorch_schedule& file, const std::string& source_name) {
    if (const auto beyond = detail::beyond_chain(p, "PyTorch")) return *beyond;
    std::vector<violation> found;
    const auto ranks = p.graph.ranks();
    if (file.rows.size() != ranks)
        found.push_back({"", "has " + std::to_string(file.rows.size()) + " rows, the problem has " +
                                 std::to_string(ranks) + " ranks"});
    compute_lanes lanes(ranks);
    const operation_numbering<any_graph> possible{p.graph};
    for (std::size_t r = 0; r < file.rows.size() && found.empty(); ++r)
        detail::for_each_action(file.rows[r], [&](const pytorch_action& action) {
            const auto kind = detail::operation_kind_of(action.kind);
            if (!kind || !found.empty()) return;
            operation op{action.stage, *kind, *action.microbatch};
            const auto place = "row " + std::to_string(r + 1);
            if (!possible.contains(op))
                return found.push_back({place, to_string(action) + ": the problem has no such stage or microbatch"});
            if (p.rank_of(op.stage).position() != r)
                return found.push_back({place, to_string(action) + ": the problem has this stage on rank " +
                                                   std::to_string(p.rank_of(op.stage).value())});
            const auto& options = p.storage[op.stage];
            const auto keep = keep_stash(p.costs[op.stage]);
            const auto kept = std::find_if(options.begin(), options.end(), [&](const storage_option& each) {
                return !each.offloads() && each.extra_work() == duration{} && each.held == keep.held;
            });
            if (kept == options.end())
                return found.push_back({place, to_string(action) + ": its stage can't keep all its activations"});
            op.storage = static_cast<storage_index>(kept - options.begin());
            lanes[rank{r}].push_back(op);
        });
    if (found.empty()) detail::mark_pairs(p, file, lanes);
    if (found.empty() && is_compute_comms(file)) found = message_violations(p.graph, file);
    if (!found.empty()) throw input_error{source_name, std::move(found)};
    auto computed = interleave(p.graph, lanes);
    if (!computed || !is_compute_comms(file)) return computed;
    const auto stuck = stuck_actions(p.graph, file, pytorch_sends::buffered);
    if (stuck.empty()) return computed;
    return refusal{refusal_reason::not_executable, {"the rows wait for each other: ", std::string_view{stuck.front()}}};
}

} // namespace optpipe
#endif
