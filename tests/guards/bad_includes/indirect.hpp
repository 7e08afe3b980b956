#pragma once

#include <lucky.hpp>

inline std::vector<int> none() { return {}; }
