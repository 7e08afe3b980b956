#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/follow_storage.hpp"
#include "optpipe/schedule/construct/memory_levels.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// An order, and the storage option of each stage and microbatch in it.
class storage_choice {
public:
    storage_choice(const problem& p, order given)
        : p_{&p}, order_{std::move(given)}, cell_{p.graph}, used_{storage_in_use(p, order_.operations)} {
        for (const stage s : p.graph.all_stages())
            for (std::size_t option = 0; option < p.storage_options(s); ++option)
                cheaper_[s.position()].push_back(cheaper_options(s, option));
    }

    [[nodiscard]] const optpipe::order& order() const { return order_; }
    /// The storage option that each cell uses.
    [[nodiscard]] const std::vector<std::size_t>& used() const { return used_; }
    /// The cheaper options of a cell, the cheapest first. An option is cheaper if its work or its transfers take less
    /// time, and neither takes more.
    [[nodiscard]] std::span<const std::size_t> cheaper(std::size_t cell) const {
        return cheaper_[cell_.stage_of(cell).position()][used_[cell]];
    }

    /// The order with the storage options `used`.
    [[nodiscard]] optpipe::order with(const std::vector<std::size_t>& used) const {
        return {order_.graph, follow_storage(*p_, order_.operations, used)};
    }
    void set(optpipe::order changed, std::vector<std::size_t> used) {
        order_ = std::move(changed);
        used_ = std::move(used);
    }

private:
    [[nodiscard]] std::vector<std::size_t> cheaper_options(stage s, std::size_t used) const {
        const auto cost_of = [&](std::size_t option) {
            const auto o = p_->storage_of(s, option);
            return std::pair{o.extra_work(), o.transfer ? o.transfer->offload + o.transfer->reload : duration{}};
        };
        const auto most = cost_of(used);
        std::vector<std::size_t> result;
        for (std::size_t option = 0; option < p_->storage_options(s); ++option)
            if (const auto cost = cost_of(option);
                cost.first <= most.first && cost.second <= most.second && cost != most)
                result.push_back(option);
        std::stable_sort(result.begin(), result.end(),
                         [&](std::size_t a, std::size_t b) { return cost_of(a) < cost_of(b); });
        return result;
    }

    const problem* p_;
    optpipe::order order_;
    cell_numbering cell_;
    std::vector<std::size_t> used_;
    /// The cheaper options of each stage, indexed by the stage and the option in use.
    std::vector<std::vector<std::vector<std::size_t>>> cheaper_ =
        std::vector<std::vector<std::vector<std::size_t>>>(p_->graph.stages());
};

/// Finds cheaper storage options for the stashes of one rank without moving the start of any other operation. Removed
/// operations leave gaps. Stashes that are no longer dropped or offloaded must fit on the device.
class storage_in_place {
public:
    storage_in_place(const problem& p, rank r, std::vector<timed_operation> own)
        : p_{p}, limit_{p.memory_limit[r] + tolerance{}.at(p.memory_scale())}, levels_{place(std::move(own))} {}

    /// Changes options in `used` for the cells of this rank. Before the first change, `used` has the option of each
    /// cell in `choice`.
    void run(const storage_choice& choice, std::vector<std::size_t>& used) {
        const cell_numbering cell{p_.graph};
        for (std::size_t first = 0; first < own_.size();) {
            const auto here = cell(own_[first].op);
            auto last = first;
            while (last < own_.size() && cell(own_[last].op) == here)
                ++last;
            const std::span<const placed> all{own_.data() + first, last - first};
            for (const auto option : choice.cheaper(here)) {
                if (!take(all, used[here], option)) continue;
                used[here] = option;
                break;
            }
            first = last;
        }
    }

private:
    /// An operation, and the indices of the memory changes at its start and end.
    struct placed {
        operation op{};
        std::size_t start = 0;
        std::size_t end = 0;
    };
    struct change {
        duration time{};
        memory_size amount{};
        std::size_t* number = nullptr;
    };
    /// Adds `more` memory from memory change number `from` on.
    struct step {
        std::size_t from = 0;
        memory_size more{};
    };
    using steps = bounded_vector<step, 2 * all_operation_kinds.size()>;

    /// Numbers all memory changes by time, releases first, and returns the memory in use after each change.
    std::vector<memory_size> place(std::vector<timed_operation> own) {
        std::sort(own.begin(), own.end(), [](const timed_operation& a, const timed_operation& b) {
            return std::pair{a.op.stage, a.op.microbatch} < std::pair{b.op.stage, b.op.microbatch};
        });
        own_.reserve(own.size());
        std::vector<change> changes;
        changes.reserve(2 * own.size());
        for (const auto& [op, start, end] : own) {
            own_.push_back({op});
            const auto effect = memory_effect_of(p_, op);
            changes.push_back({start, effect.acquired_at_start, &own_.back().start});
            changes.push_back({end, -effect.released_at_end, &own_.back().end});
        }
        std::sort(changes.begin(), changes.end(), [](const change& a, const change& b) {
            return a.time != b.time ? a.time < b.time : a.amount < b.amount;
        });
        std::vector<memory_size> levels;
        levels.reserve(changes.size());
        memory_size level{};
        for (const auto& each : changes) {
            *each.number = levels.size();
            level += each.amount;
            levels.push_back(level);
        }
        return levels;
    }
    bool take(std::span<const placed> cell, std::size_t from, std::size_t to) {
        const stage s = cell.front().op.stage;
        const auto before = p_.storage_of(s, from);
        const auto after = p_.storage_of(s, to);
        if (!fits_into(after, before)) return false;
        const auto more = steps_between(cell, before, after);
        for (std::size_t i = 0; i + 1 < more.size(); ++i)
            if (more[i].more > memory_size{} && more[i].from < more[i + 1].from &&
                levels_.highest(more[i].from, more[i + 1].from) + more[i].more > limit_)
                return false;
        for (std::size_t i = 0; i + 1 < more.size(); ++i)
            levels_.raise(more[i].from, more[i + 1].from, more[i].more);
        return true;
    }
    /// Whether `option` can replace `other` in a schedule. `other` must have all operations of `option`, and none may
    /// be shorter or transfer less.
    static bool fits_into(const storage_option& option, const storage_option& other) {
        if (option.recompute > other.recompute || option.backward_extra > other.backward_extra) return false;
        if (!option.transfer) return true;
        return other.transfer && option.transfer_size <= other.transfer_size &&
               option.transfer->offload <= other.transfer->offload && option.transfer->reload <= other.transfer->reload;
    }
    /// The memory that a cell needs in addition after each of its memory changes, if `after` replaces `before`.
    [[nodiscard]] steps steps_between(std::span<const placed> cell, const storage_option& before,
                                      const storage_option& after) const {
        const auto& costs = p_.costs[cell.front().op.stage];
        steps result;
        for (const auto& [op, start, end] : cell) {
            const bool falls_away =
                is_transfer(op.kind) ? !after.offloads() : op.kind == operation_kind::recompute && !after.recomputes();
            const auto old = memory_effect_of(costs, before, op.kind);
            const auto now = falls_away ? memory_effect{} : memory_effect_of(costs, after, op.kind);
            result.push_back({start, now.acquired_at_start - old.acquired_at_start});
            result.push_back({end, old.released_at_end - now.released_at_end});
        }
        std::sort(result.begin(), result.end(), [](const step& a, const step& b) { return a.from < b.from; });
        memory_size sum{};
        for (auto& each : result)
            each.more = sum += each.more;
        return result;
    }

    const problem& p_;
    memory_size limit_;
    std::vector<placed> own_{}; ///< the rank's operations, sorted by cell
    memory_levels levels_;
};

/// Takes cheaper storage options for as many stashes as the objective allows.
class storage_reduction {
public:
    storage_reduction(const problem& p, const schedule& given, std::size_t effort, stop_check stop)
        : p_{p}, given_{given}, stop_{stop}, effort_{effort},
          objective_{objective_of(p, given)}, choice_{p, order_of(given)} {}

    schedule run() && {
        const auto at_first = choice_.used();
        std::size_t most = 0;
        for (std::size_t cell = 0; cell < at_first.size(); ++cell)
            most = std::max(most, choice_.cheaper(cell).size());
        for (std::size_t nth = 0; nth < most; ++nth) {
            std::vector<change> all;
            for (std::size_t cell = 0; cell < at_first.size(); ++cell)
                if (choice_.used()[cell] == at_first[cell] && nth < choice_.cheaper(cell).size())
                    all.push_back({cell, choice_.cheaper(cell)[nth]});
            take(all);
        }
        if (choice_.used() == at_first) return given_;
        auto timed = time_order(p_, choice_.order());
        return timed && objective_of(p_, *timed) <= objective_ ? *std::move(timed) : given_;
    }

private:
    struct change {
        std::size_t cell;
        std::size_t option;
    };

    /// Applies all changes at once. If the changes aren't possible together, each half is tried separately. Halving
    /// takes few trials if nearly all changes are possible.
    void take(std::span<const change> some) {
        const auto operations = choice_.order().operations.size();
        if (some.empty() || effort_ < operations || stop_()) return;
        effort_ -= operations;
        if (take_together(some) || some.size() == 1) return;
        const auto half = some.size() / 2;
        take(some.first(half));
        take(some.subspan(half));
    }
    bool take_together(std::span<const change> some) {
        auto used = choice_.used();
        for (const auto& [cell, option] : some)
            used[cell] = option;
        auto candidate = choice_.with(used);
        const auto timed =
            p_.objective == objective_kind::span ? time_order(p_, candidate, stop_) : simulate(p_, candidate);
        if (!timed || objective_of(p_, *timed) > objective_) return false;
        objective_ = objective_of(p_, *timed);
        choice_.set(std::move(candidate), std::move(used));
        return true;
    }

    const problem& p_;
    const schedule& given_;
    stop_check stop_;
    /// Number of operations that may still be placed.
    std::size_t effort_;
    duration objective_;
    storage_choice choice_;
};

} // namespace detail

/// A valid schedule without unnecessary recomputation and transfers. Removes the recomputation and transfers of a stash
/// that fits on the device, if all other operations keep their starts. The objective is no higher, because the
/// remaining operations start no later. O(n log n). `stop` is polled between ranks. Once `stop` returns true, the
/// schedule is returned as it is.
[[nodiscard]] inline schedule with_cheaper_storage_in_place(const problem& p, const schedule& s, stop_check stop = {}) {
    const detail::storage_choice choice{p, order_of(s)};
    auto used = choice.used();
    auto lanes = detail::split_by_rank(p.graph, s.operations);
    for (const rank r : p.graph.all_ranks()) {
        if (stop()) return s;
        detail::storage_in_place{p, r, std::move(lanes[r])}.run(choice, used);
    }
    if (used == choice.used()) return s;
    auto timed = time_order(p, choice.with(used), stop);
    return timed && objective_of(p, *timed) <= objective_of(p, s) ? *std::move(timed) : s;
}

/// Like `with_cheaper_storage_in_place`, but operations may move while the objective is no higher. Stashes get the
/// cheapest storage options with no more recomputation and transfers than before.
///
/// `effort` is the approximate number of operations to place; each trial simulates the whole schedule. When the effort
/// is used up, or `stop` returns true, the cheapest schedule found is returned.
[[nodiscard]] inline schedule with_cheaper_storage(const problem& p, const schedule& s, std::size_t effort,
                                                   stop_check stop = {}) {
    if (effort < s.operations.size() || stop()) return s;
    return detail::storage_reduction{p, with_cheaper_storage_in_place(p, s, stop), effort, stop}.run();
}

} // namespace optpipe
