#pragma once

#if defined(OPTPIPE_NEVER)
#include <has_string.hpp>
#endif

inline std::string any_name() { return {}; }
