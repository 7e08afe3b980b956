#pragma once

inline std::string another_name() { return {}; }

#include <has_string.hpp>
