#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe::milp {

/// Free: fields are separated by blanks. Fixed: fields have fixed columns (2-3, 5-12, 15-22, 25-36, 40-47, 50-61), so
/// names may contain blanks. Automatic: free, or fixed if the text can't be read as free.
enum class mps_format : unsigned char { automatic, free, fixed };

} // namespace optpipe::milp
