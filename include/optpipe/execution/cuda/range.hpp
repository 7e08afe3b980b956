#pragma once

#include "optpipe/core/standard.hpp"

#include <nvtx3/nvToolsExt.h>

namespace optpipe::cuda {

/// As long as a range exists, profilers show the operation's label ("PP:2F0") on the commands that the thread issues.
class range {
public:
    explicit range(const char* label) { static_cast<void>(nvtxRangePushA(label)); }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() { static_cast<void>(nvtxRangePop()); }
};

} // namespace optpipe::cuda
