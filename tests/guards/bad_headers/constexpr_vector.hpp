#pragma once

#include "optpipe/core/standard.hpp"

#include <vector>

constexpr int first_of(const std::vector<int>& items) { return items[0]; }
