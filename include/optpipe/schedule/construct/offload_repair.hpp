#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/offload_placement.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Moves a rank's computations and transfers so that the rank keeps its memory limit. Offloads come earlier, and
/// reloads later. If memory is still short, more stashes are offloaded, the last needed first. The order of the
/// computations stays the same. A computation waits for the transfers moved before it.
template <pipeline_graph Graph> class memory_keeper {
public:
    /// `may_offload` flags stashes that may be offloaded even if the order keeps them.
    constexpr memory_keeper(const basic_problem<Graph>& p, const cell_flags& may_offload)
        : p_{p}, may_offload_{may_offload}, slack_{tolerance{}.at(p.memory_scale())}, cells_(p.graph.cells()) {}

    /// Returns false if the limit can't be kept, and leaves the best order found in `lane`.
    constexpr bool run(rank r, std::vector<operation>& lane) {
        limit_ = p_.memory_limit[r] + slack_;
        host_limit_ = p_.host_memory_limit[r] + slack_;
        level_ = host_ = memory_size{};
        kept_ = true;
        last_offload_ = 0;
        done_.clear();
        waiting_.clear();
        prefetched_.clear();
        held_.clear();
        note(lane);
        for (const auto& op : lane)
            take(op);
        lane.clear();
        for (const auto& one : done_)
            if (!one.retracted) lane.push_back(one.op);
        return kept_;
    }

private:
    struct cell {
        std::size_t due = 0;       ///< the position of the stash's gradient
        std::size_t reload_at = 0; ///< the position of the stash's reload in the new order
        bool offloads = false;
        bool offload_done = false;
        bool reload_done = false;
        bool is_whole = false; ///< whether one full backward replaces I and W
    };
    struct step {
        operation op{};
        bool retracted = false;
    };

    constexpr std::size_t index(const operation& op) const { return cell_numbering{p_.graph}(op); }
    constexpr cell& at(const operation& op) { return cells_[index(op)]; }
    constexpr memory_size stash(const operation& op) const { return p_.costs[op.stage].activation; }

    constexpr void note(const std::vector<operation>& lane) {
        for (std::size_t i = 0; i < lane.size(); ++i) {
            auto& c = at(lane[i]);
            if (lane[i].kind == operation_kind::forward) c = cell{};
            if (lane[i].kind == operation_kind::offload) c.offloads = true;
            if (is_gradient(lane[i].kind)) c.due = i;
        }
    }

    constexpr void take(const operation& op) {
        auto& c = at(op);
        switch (op.kind) {
        case operation_kind::forward:
            kept_ = make_room(stash(op), op) && kept_;
            append(op);
            held_.push_back(op);
            break;
        case operation_kind::offload:
            if (c.offloads && !c.offload_done) offload(op);
            break;
        case operation_kind::reload:
            if (c.offloads && !c.reload_done) wait(op);
            reload_what_fits();
            break;
        case operation_kind::backward_input:
        case operation_kind::backward:
            if (c.offloads && !c.offload_done) stay(op);
            if (c.offloads && !c.reload_done) fetch(op);
            forget(prefetched_, op);
            forget(held_, op);
            backward(op);
            reload_what_fits();
            break;
        case operation_kind::backward_weight:
            if (!c.is_whole) append(op);
            reload_what_fits();
            break;
        case operation_kind::recompute: break; // only kept and offloaded stashes are supported
        }
    }
    constexpr void forget(std::vector<operation>& list, const operation& op) const {
        std::erase_if(list, [&](const operation& other) { return index(other) == index(op); });
    }
    constexpr void wait(const operation& op) {
        const auto is_due_later = [&](const operation& other) { return at(other).due > at(op).due; };
        waiting_.insert(std::find_if(waiting_.begin(), waiting_.end(), is_due_later), op);
    }
    constexpr void append(const operation& op) {
        const auto effect = memory_effect_of(p_, with_implied_storage(p_, op));
        level_ += effect.acquired_at_start - effect.released_at_end;
        host_ += effect.host_acquired_at_start - effect.host_released_at_end;
        done_.push_back({op});
    }
    constexpr void offload(const operation& op) {
        if (host_ + stash(op) > host_limit_) {
            stay(op);
            return;
        }
        last_offload_ = done_.size();
        append(offload_of(op.stage, op.microbatch));
        at(op).offload_done = true;
        forget(held_, op);
    }
    /// Leaves the stash of the operation on the device.
    constexpr void stay(const operation& op) {
        at(op).offloads = false;
        forget(waiting_, op);
    }
    constexpr void reload(const operation& op) {
        append(reload_of(op.stage, op.microbatch));
        at(op).reload_done = true;
        at(op).reload_at = done_.size() - 1;
    }
    constexpr void reload_what_fits() {
        while (!waiting_.empty()) {
            const auto op = waiting_.front();
            if (!at(op).offload_done || level_ + stash(op) > limit_) return;
            waiting_.erase(waiting_.begin());
            reload(op);
            prefetched_.push_back(op);
        }
    }
    /// Appends the reload that the gradient `op` needs now.
    constexpr void fetch(const operation& op) {
        forget(waiting_, op);
        kept_ = make_room(stash(op), op) && kept_;
        reload(op);
    }
    /// Appends a backward. The backward is full if the weight stash exceeds the activation, the excess doesn't fit, and
    /// the problem has full backwards. In a problem without full backwards, B becomes I and W.
    constexpr void backward(operation op) {
        const bool is_two = is_two_operations(p_, op);
        if (is_two) op.kind = operation_kind::backward_input;
        const auto more = memory_effect_of(p_, op).acquired_at_start;
        if (more <= memory_size{} || make_room(more, op) || !p_.full_backward) {
            append(op);
            if (is_two) append(sibling(op, operation_kind::backward_weight));
            return;
        }
        append(optpipe::backward(op.stage, op.microbatch));
        at(op).is_whole = true;
    }
    constexpr bool make_room(memory_size amount, const operation& for_what) {
        while (level_ + amount > limit_)
            if (!offload_earlier() && !put_off_reload(for_what) && !offload_more(for_what)) return false;
        return true;
    }
    constexpr bool offload_earlier() {
        for (const auto& op : held_)
            if (at(op).offloads && host_ + stash(op) <= host_limit_) {
                const auto first = op;
                offload(first);
                return true;
            }
        return false;
    }
    constexpr bool put_off_reload(const operation& for_what) {
        const operation* last = nullptr;
        for (const auto& op : prefetched_)
            if (index(op) != index(for_what) && (!last || at(op).due > at(*last).due)) last = &op;
        if (!last) return false;
        const auto op = *last;
        auto& c = at(op);
        // A later offload may rely on the host memory that the reload frees.
        if (!host_limit_.is_unlimited() && c.reload_at < last_offload_) return false;
        done_[c.reload_at].retracted = true;
        c.reload_done = false;
        level_ -= stash(op);
        host_ += stash(op);
        forget(prefetched_, op);
        wait(op);
        return true;
    }
    constexpr bool offload_more(const operation& for_what) {
        const operation* last = nullptr;
        for (const auto& op : held_)
            if (may_offload_[index(op)] && index(op) != index(for_what) && host_ + stash(op) <= host_limit_ &&
                (!last || at(op).due > at(*last).due))
                last = &op;
        if (!last) return false;
        const auto op = *last;
        at(op).offloads = true;
        offload(op);
        wait(op);
        return true;
    }

    const basic_problem<Graph>& p_;
    const cell_flags& may_offload_;
    memory_size slack_;
    std::vector<cell> cells_;
    memory_size limit_{};
    memory_size host_limit_{};
    memory_size level_{};
    memory_size host_{};
    bool kept_ = true;
    std::size_t last_offload_ = 0;
    std::vector<step> done_{};
    std::vector<operation> waiting_{};    ///< reloads that wait for memory; the reload with the soonest gradient is
                                          ///< first
    std::vector<operation> prefetched_{}; ///< reloads whose position may still be moved back
    std::vector<operation> held_{};       ///< forwards whose stashes are on the device and weren't offloaded
};

} // namespace optpipe::detail
