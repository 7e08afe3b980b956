#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

// LibTorch has a CHECK, too.
#undef CHECK
#define CHECK(...) DOCTEST_CHECK(__VA_ARGS__)
