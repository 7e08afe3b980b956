#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/plan_times.hpp"
#include "optpipe/formulation/solution_text.hpp"

#include <string>

namespace optpipe::formulation {

/// The plan that named values represent. Throws `input_error` if an operation has no end time.
[[nodiscard]] plan_times plan_of(const operation_table& t, const named_values& values, const std::string& source);

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/core/error.hpp"
#include "optpipe/formulation/variable_names.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::formulation {

OPTPIPE_INLINE plan_times plan_of(const operation_table& t, const named_values& values, const std::string& source) {
    constexpr double half = 0.5;
    plan_times times{t};
    std::vector<violation> missing;
    const auto is_set = [&](const std::string& name) {
        const auto found = values.find(name);
        return found != values.end() && found->second > half;
    };
    for (cell c = 0; c < t.cells(); ++c) {
        const stage s = t.stage_of(c);
        times.is_full[c] = t.may_be_full(s) && is_set(full_name(t, c)) ? 1 : 0;
        const auto named = options_with_variable(t, s);
        const auto chosen =
            std::find_if(named.begin(), named.end(), [&](storage_index o) { return is_set(storage_name(t, c, o)); });
        if (chosen != named.end())
            times.storage[c] = *chosen;
        else if (named.size() == t.options(s).size())
            missing.push_back({cell_name(t, "storage.", c), "no storage option is chosen"});
    }
    for (operation_id a = 0; a < t.size(); ++a) {
        if (!t.exists(a)) continue;
        const auto found = values.find(end_name(t, a));
        if (found != values.end())
            times.start[a] = found->second - t.length(a, times.storage[t.cell_of(a)]);
        else if (times.takes_place(t, a))
            missing.push_back({end_name(t, a), "has no value: not a solution of a model of this problem"});
    }
    if (!missing.empty()) throw input_error{source, std::move(missing)};
    return times;
}

} // namespace optpipe::formulation
#endif
