#pragma once

#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/formulation/storage_options.hpp"
#include "optpipe/formulation/variable_names.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace optpipe::formulation {

/// Adds the variables that all families share, in the same order for all options of the model. The variables are the
/// objective C, each end E, each storage option x, and each full backward. For `span`, the first start of each rank is
/// a variable, too.
inline void add_end_times(model_builder& d) {
    using kind = meaning::kind;
    const auto& t = d.operations();
    const auto& p = d.problem();
    d.objective = d.add_variable(family::objective, std::max(0.0, d.wanted().bound.value()), d.horizon(),
                                 meaning::of(kind::objective), "C");
    for (operation_id a = 0; a < t.size(); ++a)
        if (t.exists(a))
            d.set_end(a, d.add_variable(family::end_times, d.earliest(end_of(a)), d.latest(end_of(a)),
                                        meaning::of(kind::end_time, a), end_name(t, a)));
    for (cell c = 0; c < t.cells(); ++c)
        add_choices(d, c);
    for (cell c = 0; c < t.cells(); ++c)
        if (t.may_be_full(t.stage_of(c))) {
            d.set_full(c, d.add_binary(family::full_backward, meaning::of(kind::is_full, c), full_name(t, c)));
            if (!p.full_backward) d.add_row(family::full_backward, sum{}.add(1.0, d.full(c)), -milp::infinity, 0.0);
        }
    if (!d.is_span()) return;
    for (const rank r : p.graph.all_ranks()) {
        double latest = d.horizon() * static_cast<double>(t.ranks());
        for (const auto a : d.precedences().computations_on(r))
            latest = std::min(latest, d.latest(start_of(a)));
        d.first_starts.push_back(d.add_variable(family::objective, 0.0, std::max(0.0, latest),
                                                meaning::of(kind::first_start, r.position()),
                                                "first." + std::to_string(r.value())));
    }
}

} // namespace optpipe::formulation
