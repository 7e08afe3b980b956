#pragma once

#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
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

/// Switches the stashes of a schedule to cheaper storage options while the objective stays the same.
class storage_reduction {
public:
    storage_reduction(const problem& p, const schedule& given, std::size_t effort, stop_check stop)
        : p_{p}, given_{given}, stop_{stop}, effort_{effort},
          objective_{objective_of(p, given)}, order_{order_of(given)}, cell_{p.graph}, used_(cell_.size(), 0) {
        for (const auto& op : order_.operations)
            if (!p.storage[op.stage].empty())
                used_[cell_(op)] = op.storage;
            else if (op.kind == operation_kind::offload)
                used_[cell_(op)] = 1;
    }

    schedule run() && {
        std::vector<std::vector<std::size_t>> cheaper(cell_.size());
        std::size_t most = 0;
        for (std::size_t cell = 0; cell < cell_.size(); ++cell) {
            cheaper[cell] = cheaper_options(cell_.stage_of(cell), used_[cell]);
            most = std::max(most, cheaper[cell].size());
        }
        const auto at_first = used_;
        for (std::size_t nth = 0; nth < most; ++nth) {
            std::vector<change> all;
            for (std::size_t cell = 0; cell < cell_.size(); ++cell)
                if (used_[cell] == at_first[cell] && nth < cheaper[cell].size())
                    all.push_back({cell, cheaper[cell][nth]});
            take(all);
        }
        if (used_ == at_first) return given_;
        auto timed = time_order(p_, order_);
        return timed && objective_of(p_, *timed) <= objective_ ? *std::move(timed) : given_;
    }

private:
    struct change {
        std::size_t cell;
        std::size_t option;
    };

    /// The options that take no more work and no more transfer time, and less of one of them; the cheapest first.
    [[nodiscard]] std::vector<std::size_t> cheaper_options(stage s, std::size_t used) const {
        const auto cost_of = [&](std::size_t option) {
            const auto o = p_.storage_of(s, option);
            return std::pair{o.extra_work(), o.transfer ? o.transfer->offload + o.transfer->reload : duration{}};
        };
        const auto most = cost_of(used);
        std::vector<std::size_t> result;
        for (std::size_t option = 0; option < p_.storage_options(s); ++option)
            if (const auto cost = cost_of(option);
                cost.first <= most.first && cost.second <= most.second && cost != most)
                result.push_back(option);
        std::stable_sort(result.begin(), result.end(),
                         [&](std::size_t a, std::size_t b) { return cost_of(a) < cost_of(b); });
        return result;
    }
    /// Applies all changes or, if that fails, each half separately: few trials if nearly all changes of a range are
    /// possible.
    void take(std::span<const change> some) {
        if (some.empty() || effort_ < order_.operations.size() || stop_()) return;
        effort_ -= order_.operations.size();
        if (take_together(some) || some.size() == 1) return;
        const auto half = some.size() / 2;
        take(some.first(half));
        take(some.subspan(half));
    }
    bool take_together(std::span<const change> some) {
        auto used = used_;
        for (const auto& [cell, option] : some)
            used[cell] = option;
        auto candidate = with_options(used);
        const auto timed =
            p_.objective == objective_kind::span ? time_order(p_, candidate, stop_) : simulate(p_, candidate);
        if (!timed || objective_of(p_, *timed) > objective_) return false;
        objective_ = objective_of(p_, *timed);
        order_ = std::move(candidate);
        used_ = std::move(used);
        return true;
    }
    /// The order without transfers and recomputations that aren't needed any more; a newly needed one comes right
    /// before its gradient.
    [[nodiscard]] order with_options(const std::vector<std::size_t>& used) const {
        order result{order_.graph, {}};
        for (auto op : order_.operations) {
            const auto before = used_[cell_(op)];
            const auto now = used[cell_(op)];
            if (before != now) {
                const auto option = p_.storage_of(op.stage, now);
                if (is_transfer(op.kind) && !option.offloads()) continue;
                if (op.kind == operation_kind::recompute && !option.recomputes()) continue;
                if (!p_.storage[op.stage].empty()) op.storage = static_cast<storage_index>(now);
                if (is_gradient(op.kind) && option.recomputes() && !p_.storage_of(op.stage, before).recomputes())
                    result.operations.push_back(sibling(op, operation_kind::recompute));
            }
            result.operations.push_back(op);
        }
        return result;
    }

    const problem& p_;
    const schedule& given_;
    stop_check stop_;
    /// Number of operations that may still be placed.
    std::size_t effort_;
    duration objective_;
    order order_;
    cell_numbering cell_;
    /// The storage option of each cell in `order_`.
    std::vector<std::size_t> used_;
};

} // namespace detail

/// A valid schedule with less recomputation and fewer transfers, if those don't shorten the step. Each stage and
/// microbatch may use any storage option that takes no more of either, and gets one of the cheapest that don't increase
/// the objective. This cleans up after searches that look only at the objective.
///
/// `effort` is the approximate number of operations to place; each trial simulates the whole schedule. When the effort
/// is spent, or `stop` asks for it, the cheapest schedule found is returned.
[[nodiscard]] inline schedule with_cheaper_storage(const problem& p, const schedule& s, std::size_t effort,
                                                   stop_check stop = {}) {
    return detail::storage_reduction{p, s, effort, stop}.run();
}

} // namespace optpipe
