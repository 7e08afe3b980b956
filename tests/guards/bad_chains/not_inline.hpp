#pragma once

#include <has_string.hpp>

std::string no_name() { return {}; }
