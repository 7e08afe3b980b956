#pragma once

#include "optpipe/core/standard.hpp"

#include <nvtx3/nvToolsExt.h>

namespace optpipe::cuda {

/// In profilers, marks the commands that the thread issues with the label of the operation ("PP:2F0").
class range {
public:
    explicit range(const char* label) { static_cast<void>(nvtxRangePushA(label)); }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() { static_cast<void>(nvtxRangePop()); }
};

} // namespace optpipe::cuda
