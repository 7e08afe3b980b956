#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe::milp {

/// In the free format, blanks separate fields. In the fixed format, fields have fixed columns (2-3, 5-12, 15-22, 25-36,
/// 40-47, 50-61), and names may contain blanks. `automatic` tries the free format first, then the fixed format. If
/// neither format fits, the error comes from the reader that got further.
enum class mps_format : unsigned char { automatic, free, fixed };

} // namespace optpipe::milp
