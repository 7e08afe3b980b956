#pragma once

#if defined(OPTPIPE_NEVER)
#include <has_name.hpp>
#endif

inline name any_name() { return {}; }
