#pragma once

#include "optpipe/formulation/operation_table.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace optpipe::formulation {

/// Names of the variables that determine a schedule.
[[nodiscard]] inline std::string end_name(const operation_table& t, operation_id a) { return "E." + t.name_of(a); }
[[nodiscard]] inline std::string cell_name(const operation_table& t, const char* what, cell c) {
    return what + std::to_string(c / t.microbatches()) + "." + std::to_string(c % t.microbatches());
}
[[nodiscard]] inline std::string full_name(const operation_table& t, cell c) { return cell_name(t, "full.", c); }
[[nodiscard]] inline std::string storage_name(const operation_table& t, cell c, storage_index option) {
    return cell_name(t, "storage.", c) + "." + std::to_string(option);
}
/// The storage options of a stage that have a variable. If a stage has two options, only the second option has a
/// variable.
[[nodiscard]] inline std::span<const storage_index> options_with_variable(const operation_table& t, stage s) {
    const std::span all{t.options(s)};
    return all.size() > 2 ? all : all.subspan(1);
}

/// The names of C, the ends, storage options and full backwards, the first variables of every model.
[[nodiscard]] inline std::vector<std::string> leading_names(const operation_table& t) {
    std::vector<std::string> names{"C"};
    for (operation_id a = 0; a < t.size(); ++a)
        if (t.exists(a)) names.push_back(end_name(t, a));
    for (cell c = 0; c < t.cells(); ++c)
        for (const auto o : options_with_variable(t, t.stage_of(c)))
            names.push_back(storage_name(t, c, o));
    for (cell c = 0; c < t.cells(); ++c)
        if (t.may_be_full(t.stage_of(c))) names.push_back(full_name(t, c));
    return names;
}

} // namespace optpipe::formulation
