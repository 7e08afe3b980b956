#pragma once

#include "optpipe/core/standard.hpp"

#include <nvtx3/nvToolsExt.h>

namespace optpipe::cuda {

/// While a range exists, profilers show the operation's label (such as "PP:2F0") on commands that the thread issues.
class range {
public:
    explicit range(const char* label) { static_cast<void>(nvtxRangePushA(label)); }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() { static_cast<void>(nvtxRangePop()); }
};

} // namespace optpipe::cuda
