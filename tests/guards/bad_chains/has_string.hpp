#pragma once

#include <string>

inline std::string a_name() { return {}; }
