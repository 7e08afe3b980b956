#pragma once

inline name another_name() { return {}; }

#include <has_name.hpp>
