#pragma once

#include <cstddef>

namespace program {

/// Columns of standard output: the value of COLUMNS, else the width of the terminal, else 100.
std::size_t columns();

} // namespace program
