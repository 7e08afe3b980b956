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

#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::formulation {

OPTPIPE_INLINE plan_times plan_of(const operation_table& t, const named_values& values, const std::string& source) {
    constexpr double half = 0.5;
    plan_times times{std::vector<double>(t.size(), 0.0), std::vector<unsigned char>(t.cells(), 0),
                     std::vector<unsigned char>(t.cells(), 0)};
    const auto is_set = [&](const std::string& name) {
        const auto found = values.find(name);
        return found != values.end() && found->second > half;
    };
    for (cell c = 0; c < t.cells(); ++c) {
        times.offloaded[c] = t.may_offload(t.stage_of(c)) && is_set(offloaded_name(t, c)) ? 1 : 0;
        times.is_full[c] = t.may_be_full(t.stage_of(c)) && is_set(full_name(t, c)) ? 1 : 0;
    }
    std::vector<violation> missing;
    for (operation_id a = 0; a < t.size(); ++a) {
        if (!t.exists(a)) continue;
        const auto found = values.find(end_name(t, a));
        const bool matters = !t.is_transfer(a) || times.offloaded[t.cell_of(a)] != 0;
        if (found != values.end())
            times.start[a] = found->second - t.length(a);
        else if (matters)
            missing.push_back({end_name(t, a), "has no value: not a solution of a model of this problem"});
    }
    if (!missing.empty()) throw input_error{source, std::move(missing)};
    return times;
}

} // namespace optpipe::formulation
#endif
