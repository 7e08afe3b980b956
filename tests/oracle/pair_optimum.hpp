#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace oracle {

/// The least makespan of a tiny problem with pairs, without limits of memory and transfers, by looking at all orders.
/// A node for which an earlier node has placed the same operations, none of them later, is left out: any completion of
/// this node would be no longer after the other one. At most 9 stages × microbatches.
class pair_optimum {
public:
    explicit pair_optimum(const optpipe::problem& p) : p_{p}, number_{p.graph} {
        expand(optpipe::placer<optpipe::any_graph>{p}, 0);
    }
    [[nodiscard]] double makespan() const { return best_.value(); }

private:
    using placer = optpipe::placer<optpipe::any_graph>;
    using operation = optpipe::operation;

    void expand(const placer& placed, std::uint64_t mask) {
        const auto& so_far = placed.result();
        if (last_end(so_far) >= best_ || is_dominated(so_far, mask)) return;
        bool any = false;
        for (const optpipe::stage s : p_.graph.all_stages())
            for (const optpipe::microbatch m : p_.graph.all_microbatches())
                for (const auto kind :
                     {optpipe::operation_kind::forward, optpipe::operation_kind::backward,
                      optpipe::operation_kind::backward_input, optpipe::operation_kind::backward_weight})
                    any = try_next(placed, mask, {operation{s, kind, m}}) || any;
        for (const optpipe::overlap& each : p_.overlaps)
            for (const optpipe::microbatch m : p_.graph.all_microbatches())
                for (const optpipe::microbatch n : p_.graph.all_microbatches()) {
                    const bool is_whole = each.kind == optpipe::overlap_kind::backward;
                    const auto back = is_whole ? backward(each.backward, n) : backward_input(each.backward, n);
                    const auto pair = pair_of(forward(each.forward, m), back);
                    any = try_next(placed, mask, {pair.forward, pair.backward}) || any;
                }
        if (!any && is_complete(placed)) best_ = last_end(so_far);
    }
    bool try_next(const placer& placed, std::uint64_t mask, const std::vector<operation>& next) {
        // I and then W is as good as a B; equal microbatches begin in their order.
        if (next.size() == 1 && next[0].kind == optpipe::operation_kind::backward && may_split(p_, next[0].stage))
            return false;
        const auto& first = next[0];
        if (first.kind == optpipe::operation_kind::forward && first.stage.value() == 0 && p_.microbatches.are_equal() &&
            first.microbatch.value() > 0 && !placed.done(forward(first.stage, first.microbatch.previous())))
            return false;
        auto child = placed;
        for (const auto& op : next) {
            if (child.place(op) != placer::obstacle::none) return false;
            mask |= std::uint64_t{1} << number_(op);
        }
        expand(child, mask);
        return true;
    }
    [[nodiscard]] bool is_complete(const placer& placed) const {
        for (const optpipe::stage s : p_.graph.all_stages())
            for (const optpipe::microbatch m : p_.graph.all_microbatches())
                if (!placed.missing_of(s, m).empty()) return false;
        return true;
    }
    bool is_dominated(const optpipe::schedule& so_far, std::uint64_t mask) {
        std::vector<double> ends(number_.size(), 0.0);
        for (const auto& timed : so_far.operations)
            ends[number_(timed.op)] = timed.end.value();
        auto& seen = seen_[mask];
        for (const auto& other : seen)
            if (std::equal(other.begin(), other.end(), ends.begin(), [](double a, double b) { return a <= b; }))
                return true;
        seen.push_back(std::move(ends));
        return false;
    }

    const optpipe::problem& p_;
    optpipe::operation_numbering<optpipe::any_graph> number_;
    optpipe::duration best_ = optpipe::duration::unlimited();
    std::unordered_map<std::uint64_t, std::vector<std::vector<double>>> seen_{};
};

} // namespace oracle
