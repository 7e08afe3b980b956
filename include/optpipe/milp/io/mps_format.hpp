#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe::milp {

/// Free: fields are separated by blanks. Fixed: fields have fixed columns (2-3, 5-12, 15-22, 25-36, 40-47, 50-61), so
/// names may contain blanks; text in other columns is refused. Automatic: free, or fixed if the text can't be read as
/// free. If neither format can read the text, the error comes from the format whose reader got further.
enum class mps_format : unsigned char { automatic, free, fixed };

} // namespace optpipe::milp
