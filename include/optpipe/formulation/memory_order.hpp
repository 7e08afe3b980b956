#pragma once

#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/precedence.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace optpipe::formulation {

/// Generalizes "F of microbatch a must wait for the backward of a − L" to unequal stages: a gradient or W must precede
/// F if the rank would otherwise exceed its memory at the start of F even in the best case.
class memory_order {
public:
    memory_order(const operation_table& operations, precedence& known) : t_{operations}, known_{known} {}

    /// Returns true if anything changed.
    bool apply() {
        bool changed = false;
        for (const rank r : t_.problem().graph.all_ranks())
            if (t_.is_limited(r)) changed = apply(r) || changed;
        return changed;
    }

private:
    bool apply(rank r) {
        bool changed = false;
        const auto own = t_.cells_on(r);
        for (const cell c : own) {
            if (known_.must_stop()) return changed;
            const auto f = t_.id(role::forward, c);
            if (level_at(f, own, {}) > limit(r)) known_.contradict();
            for (const cell y : own)
                for (const role what : {role::gradient, role::weight}) {
                    const auto b = t_.id(what, y);
                    if (known_.contradiction()) return changed;
                    if (!t_.exists(b) || known_.precedes(b, f) || known_.precedes(f, b)) continue;
                    if (level_at(f, own, b) > limit(r)) changed = known_.order(b, f) || changed;
                }
        }
        return changed;
    }
    [[nodiscard]] double limit(rank r) const { return (t_.problem().memory_limit[r] + t_.memory_slack()).value(); }

    /// The least memory of the rank, whose cells are `own`, once `f` has started, if `late` and all its known
    /// successors come after it.
    [[nodiscard]] double level_at(operation_id f, const std::vector<cell>& own,
                                  std::optional<operation_id> late) const {
        double level = 0.0;
        for (const cell y : own)
            level += y == t_.cell_of(f) ? t_.least_held(t_.stage_of(y)).value() : least_of(y, f, late);
        return level;
    }
    [[nodiscard]] double least_of(cell y, operation_id f, std::optional<operation_id> late) const {
        const auto least = t_.least_on_device(t_.stage_of(y));
        if (least == memory_size{} || !known_.precedes(t_.id(role::forward, y), f)) return 0.0;
        const auto may_be_over = [&](operation_id b) {
            return !known_.precedes(f, b) && b != late && !(late && known_.precedes(*late, b));
        };
        const bool gradient = may_be_over(t_.id(role::gradient, y));
        if (!gradient) return least.value();
        if (!t_.problem().split_backward || may_be_over(t_.id(role::weight, y))) return 0.0;
        return std::min(least, t_.problem().costs[t_.stage_of(y)].weight_stash).value();
    }

    const operation_table& t_;
    precedence& known_;
};

} // namespace optpipe::formulation
