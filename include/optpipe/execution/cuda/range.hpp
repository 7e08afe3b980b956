#pragma once

#include "optpipe/core/standard.hpp"

#include <nvtx3/nvToolsExt.h>

namespace optpipe::cuda {

/// Labels the thread's commands in profilers, for example as "PP:2F0".
class range {
public:
    explicit range(const char* label) { static_cast<void>(nvtxRangePushA(label)); }
    range(const range&) = delete;
    range& operator=(const range&) = delete;
    ~range() { static_cast<void>(nvtxRangePop()); }
};

} // namespace optpipe::cuda
