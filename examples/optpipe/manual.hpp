#pragma once

#include "command_table.hpp"

#include <string>

namespace program {

/// The manual of the program, for section 1 (roff with the man macros).
std::string manual_page(const command_table& table);

} // namespace program
