#pragma once

#include "optpipe/schedule/builders/adaptive.hpp"

/// Plans that offload, for tests of how programs run: they needn't be good, so little effort makes them.
inline constexpr auto quick_adaptive = [] {
    auto quick = optpipe::adaptive;
    quick.effort = 1000;
    return quick;
}();
