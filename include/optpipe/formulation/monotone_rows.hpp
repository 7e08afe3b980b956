#pragma once

#include "optpipe/formulation/model_builder.hpp"

#include <cstddef>
#include <optional>

namespace optpipe::formulation {

/// Triangle inequalities in which one of the three orders is known. If b follows a, b also follows the known
/// predecessors of a. For microbatches a and b, "W of b before F of a" implies "I of b before F of a". If microbatches
/// keep their order, "W of b before F of a" also implies "W of b before F of a + 1". Transfers have monotone rows, too.
class monotone_rows {
public:
    explicit monotone_rows(model_builder& d) : d_{d}, t_{d.operations()} {}

    void add() {
        for (const rank r : t_.problem().graph.all_ranks())
            for (const auto& pair : d_.precedences().covering_pairs(r))
                for (const auto z : d_.precedences().computations_on(r)) {
                    if (z == pair.before || z == pair.after) continue;
                    imply(d_.order(pair.after, z), d_.order(pair.before, z));
                }
        d_.for_each_transfer_order([&](operation_id a, operation_id b, const literal& l) {
            if (const auto next = next_of(a))
                if (const auto later = d_.transfer_order(*next, b)) imply(*later, l);
            if (const auto next = next_of(b))
                if (const auto later = d_.transfer_order(a, *next)) imply(l, *later);
        });
        d_.for_each_before([&](event first, event then, const literal& l) {
            for (const auto& next : followers(first))
                if (const auto later = d_.find_before(next, then)) imply(*later, l);
            for (const auto& next : followers(then))
                if (const auto later = d_.find_before(first, next)) imply(l, *later);
            bridge(first, then, l);
        });
    }

private:
    void imply(const literal& if_this, const literal& then_that) {
        if (if_this == then_that) return;
        d_.add_row(family::monotone, sum{}.add(1.0, then_that).add(-1.0, if_this), 0.0, milp::infinity);
    }
    [[nodiscard]] std::optional<operation_id> next_of(operation_id a) const {
        return d_.keeps_order() ? t_.next_interchangeable(a) : std::nullopt;
    }
    /// Two events that never come before `e`: the same event of the next microbatch, and the end of W if `e` ends I.
    [[nodiscard]] std::vector<event> followers(event e) const {
        std::vector<event> found;
        const bool always_in_order = t_.role_of(e.op) != role::weight || !t_.may_be_full(t_.stage_of(e.op));
        if (const auto next = next_of(e.op); next && always_in_order) found.push_back({*next, e.is_end});
        if (t_.role_of(e.op) == role::gradient && t_.has_weight(t_.stage_of(e.op)) && e.is_end)
            found.push_back(end_of(t_.id(role::weight, t_.cell_of(e.op))));
        return found;
    }
    /// A transfer lies between its F and the operation that needs the stash.
    void bridge(event first, event then, const literal& l) {
        const bool from_transfer = t_.is_transfer(first.op), to_transfer = t_.is_transfer(then.op);
        if (from_transfer == to_transfer) return;
        const auto a = from_transfer ? d_.forward_of(first.op) : first.op;
        const auto b = to_transfer ? d_.needs_stash(then.op) : then.op;
        if (a != b) imply(l, d_.order(a, b));
    }

    model_builder& d_;
    const operation_table& t_;
};

} // namespace optpipe::formulation
