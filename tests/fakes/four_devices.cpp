#include "cuda.hpp"

namespace {

/// Provides four devices for programs with their own main.
[[maybe_unused]] const bool is_set = [] {
    fake_cuda::reset({.devices = 4});
    return true;
}();

} // namespace
