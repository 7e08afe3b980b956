#pragma once

#include <vector>

inline std::string first(const std::vector<std::string>& names) { return names.front(); }
