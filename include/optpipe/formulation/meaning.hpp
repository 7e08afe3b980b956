#pragma once

#include "optpipe/formulation/literal.hpp"
#include "optpipe/formulation/operation_table.hpp"

#include <compare>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// The start or the end of an operation.
struct event {
    operation_id op = 0;
    bool is_end = true;

    friend constexpr auto operator<=>(const event&, const event&) = default;
};
constexpr event start_of(operation_id a) { return {a, false}; }
constexpr event end_of(operation_id a) { return {a, true}; }

/// The meaning of a model variable in terms of a schedule.
struct meaning {
    enum class kind : unsigned char {
        objective,
        first_start,    ///< the first start on the rank `op`
        end_time,       ///< the end of the operation `op`
        is_full,        ///< whether the backward of the cell `op` is one operation
        chosen,         ///< whether the cell `op` has the storage option `other`
        order,          ///< whether `op` comes before `other`
        transfer_order, ///< whether `op` comes before `other`, for two transfers
        is_before,      ///< whether `first` comes no later than `then`
        excess,         ///< max(0, constant + the sum of the parts)
        product,        ///< the sum of the parts if `when` holds, 0 otherwise
    };

    kind what = kind::objective;
    std::size_t op = 0;
    std::size_t other = 0;
    event first{};
    event then{};
    double constant = 0.0;
    std::vector<std::pair<double, literal>> parts{};
    literal when{};

    static meaning of(kind k, std::size_t op = 0, std::size_t other = 0) {
        meaning m;
        m.what = k;
        m.op = op;
        m.other = other;
        return m;
    }
    static meaning is_before(event first, event then) {
        meaning m = of(kind::is_before);
        m.first = first;
        m.then = then;
        return m;
    }
    static meaning excess_of(double constant) {
        meaning m = of(kind::excess);
        m.constant = constant;
        return m;
    }
};

} // namespace optpipe::formulation
