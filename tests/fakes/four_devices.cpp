#include "cuda.hpp"

namespace {

/// For programs that have a main of their own: they find four devices.
[[maybe_unused]] const bool is_set = [] {
    fake_cuda::reset({.devices = 4});
    return true;
}();

} // namespace
