#pragma once

#include "sweep_rows.hpp"

#include <string>
#include <vector>

namespace program {

/// A picture of the objective over the values of the field, with a curve for each way to plan and one for the bound.
/// `ways` are in the order of the legend, `unit` is the unit of time.
std::string picture_of(const std::string& field, const std::string& unit, const std::vector<std::string>& values,
                       const std::vector<std::string>& ways, const std::vector<sweep_row>& rows);

} // namespace program
