#pragma once

#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/schedule/operation.hpp"

#include <vector>

namespace optpipe::formulation {

/// The model's view of a schedule: the start of each operation, the full backwards, and the storage options.
struct plan_times {
    std::vector<double> start{};          ///< indexed by operation
    std::vector<unsigned char> is_full{}; ///< indexed by cell
    std::vector<storage_index> storage{}; ///< indexed by cell; an option of the model

    plan_times() = default;
    explicit plan_times(const operation_table& t) : start(t.size(), 0.0), is_full(t.cells(), 0) {
        for (cell c = 0; c < t.cells(); ++c)
            storage.push_back(t.options(t.stage_of(c)).front());
    }

    [[nodiscard]] storage_option stored(const operation_table& t, cell c) const {
        return t.stored(t.stage_of(c), storage[c]);
    }
    [[nodiscard]] bool is_offloaded(const operation_table& t, cell c) const { return stored(t, c).offloads(); }
    /// Whether the schedule contains the operation. A full backward has no separate W. A stash has only the operations
    /// of its storage option.
    [[nodiscard]] bool takes_place(const operation_table& t, operation_id a) const {
        const cell c = t.cell_of(a);
        if (!t.exists(a)) return false;
        if (t.is_transfer(a)) return is_offloaded(t, c);
        if (t.role_of(a) == role::recompute) return stored(t, c).recomputes();
        return t.role_of(a) != role::weight || is_full[c] == 0;
    }
    [[nodiscard]] operation operation_of(const operation_table& t, operation_id a) const {
        const cell c = t.cell_of(a);
        auto op = t.operation_of(a);
        if (t.role_of(a) == role::gradient && is_full[c] != 0) op.kind = operation_kind::backward;
        op.storage = storage[c];
        return op;
    }
};

} // namespace optpipe::formulation
