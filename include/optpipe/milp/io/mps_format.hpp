#pragma once

#include "optpipe/core/standard.hpp"

namespace optpipe::milp {

/// Free: fields are separated by blanks. Fixed: by their columns (2-3, 5-12, 15-22, 25-36, 40-47, 50-61), so that names
/// may hold blanks; text in other columns is refused. Automatic: free, and where that can't be read, fixed; of what
/// neither can read, the message is that of the format that came further.
enum class mps_format : unsigned char { automatic, free, fixed };

} // namespace optpipe::milp
