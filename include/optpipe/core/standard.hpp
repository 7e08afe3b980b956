#pragma once

// Included, directly or not, by every header before its first line of code, so that this is the first error, and no
// others follow. MSVC keeps __cplusplus at 199711 unless told otherwise.
#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L
#error "OptPipe needs C++20: compile with -std=c++20 (MSVC: /std:c++20), or link its CMake targets, which ask for it"
#include "optpipe/core/C++20"
#endif
