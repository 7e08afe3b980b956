#pragma once

#include "optpipe/core/standard.hpp"

inline int count(int slots) { return slots; }
