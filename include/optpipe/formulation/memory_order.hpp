#pragma once

#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/precedence.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace optpipe::formulation {

/// "F of microbatch a must wait for the backward of a − L", for unequal stages: if a gradient or W that came after F
/// left the rank with too much at the start of F even if all else were as good as it can be, it comes before F.
class memory_order {
public:
    memory_order(const operation_table& operations, precedence& known) : t_{operations}, known_{known} {}

    /// True if anything is new.
    bool apply() {
        bool changed = false;
        for (const rank r : t_.task().graph.all_ranks())
            if (t_.is_limited(r)) changed = apply(r) || changed;
        return changed;
    }

private:
    bool apply(rank r) {
        bool changed = false;
        const auto own = t_.cells_on(r);
        for (const cell c : own) {
            const auto f = t_.id(role::forward, c);
            if (level_at(f, r, {}) > limit(r)) known_.contradict();
            for (const cell y : own)
                for (const role what : {role::gradient, role::weight}) {
                    const auto b = t_.id(what, y);
                    if (known_.contradiction()) return changed;
                    if (!t_.exists(b) || known_.known(b, f) || known_.known(f, b)) continue;
                    if (level_at(f, r, b) > limit(r)) changed = known_.order(b, f) || changed;
                }
        }
        return changed;
    }
    [[nodiscard]] double limit(rank r) const { return (t_.task().memory_limit[r] + t_.memory_slack()).value(); }

    /// The least that the rank can hold once `f` has started, if `late` (and all that is known to follow it) comes
    /// after it.
    [[nodiscard]] double level_at(operation_id f, rank r, std::optional<operation_id> late) const {
        double level = 0.0;
        for (const cell y : t_.cells_on(r))
            level += y == t_.cell_of(f) ? t_.costs_of(f).activation.value() : least_of(y, f, late);
        return level;
    }
    [[nodiscard]] double least_of(cell y, operation_id f, std::optional<operation_id> late) const {
        const auto& c = t_.task().costs[t_.stage_of(y)];
        if (t_.may_travel(t_.stage_of(y)) || !known_.known(t_.id(role::forward, y), f)) return 0.0;
        const auto may_be_over = [&](operation_id b) {
            return !known_.known(f, b) && b != late && !(late && known_.known(*late, b));
        };
        const bool gradient = may_be_over(t_.id(role::gradient, y));
        if (!gradient) return c.activation.value();
        if (!t_.task().split_backward || may_be_over(t_.id(role::weight, y))) return 0.0;
        return std::min(c.activation, c.weight_stash).value();
    }

    const operation_table& t_;
    precedence& known_;
};

} // namespace optpipe::formulation
