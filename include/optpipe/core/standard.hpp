#pragma once

// Every header includes this file first. MSVC keeps __cplusplus at 199711 unless told otherwise.
#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L
#error "OptPipe needs C++20: compile with -std=c++20 (MSVC: /std:c++20), or link its CMake targets, which ask for it"
#include "optpipe/core/C++20"
#endif

// Infinity stands for "unlimited", and inputs that aren't numbers are refused. A compiler that assumes finite numbers
// removes checks for infinity and for NaN.
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "OptPipe needs infinity: add -fno-finite-math-only behind -ffast-math or -Ofast (icpx: -fp-model=precise)"
#include "optpipe/core/infinity"
#endif

#ifndef __cpp_exceptions
#error "OptPipe needs exceptions: compile without -fno-exceptions (MSVC: with /EHsc)"
#include "optpipe/core/exceptions"
#endif

// <windows.h> defines the macros `min` and `max`, which break calls of `std::min` and `std::max`.
#if defined(min) || defined(max)
#error "OptPipe needs the names min and max: define NOMINMAX before <windows.h>, or #undef both"
#include "optpipe/core/min_and_max"
#endif

// Containers of libstdc++'s debug mode can't be used in constant expressions. Clang refuses every constexpr function
// that names a container of this mode. GCC refuses only functions that aren't templates. Functions that GCC refuses are
// marked OPTPIPE_CONSTEXPR.
#if defined(_GLIBCXX_DEBUG) && defined(__clang__)
#error "OptPipe needs constexpr containers: with Clang compile with -D_GLIBCXX_ASSERTIONS in place of -D_GLIBCXX_DEBUG"
#include "optpipe/core/constexpr_containers"
#elif defined(_GLIBCXX_DEBUG)
#define OPTPIPE_CONSTEXPR inline
#else
#define OPTPIPE_CONSTEXPR constexpr
#endif
