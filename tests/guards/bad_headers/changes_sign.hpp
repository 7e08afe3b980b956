#pragma once

#include <cstddef>

inline std::size_t as_size(int count) { return count; }
