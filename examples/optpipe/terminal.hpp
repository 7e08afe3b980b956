#pragma once

#include <cstddef>

namespace program {

/// Columns of standard output: what COLUMNS says, else what the terminal has, else 100.
std::size_t columns();

} // namespace program
