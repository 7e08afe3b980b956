#pragma once

#include "optpipe/core/standard.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cstdint>
#include <mutex>
#include <utility>

namespace optpipe::libtorch {

/// The state of a device's default random generator.
[[nodiscard]] inline at::Tensor random_state(at::Device of) {
    auto generator = at::globalContext().defaultGenerator(of);
    const std::scoped_lock lock{generator.mutex()};
    return generator.get_state();
}

/// Sets the state of a device's default random generator, and restores the old state at the end. Only one
/// `random_scope` of a process is active at a time. Ranks that are threads share a device's generator, so their stages
/// take turns.
class random_scope {
public:
    random_scope(at::Device device, const at::Tensor& state)
        : turn_{turns()}, generator_{at::globalContext().defaultGenerator(device)}, outer_{random_state(device)} {
        const std::scoped_lock lock{generator_.mutex()};
        generator_.set_state(state);
    }
    /// Starts with the given seed.
    random_scope(at::Device device, std::uint64_t seed)
        : turn_{turns()}, generator_{at::globalContext().defaultGenerator(device)}, outer_{random_state(device)} {
        const std::scoped_lock lock{generator_.mutex()};
        generator_.set_current_seed(seed);
    }
    ~random_scope() {
        const std::scoped_lock lock{generator_.mutex()};
        generator_.set_state(outer_);
    }
    random_scope(const random_scope&) = delete;
    random_scope& operator=(const random_scope&) = delete;

private:
    /// One lock serves all devices, so only one stage at a time draws random numbers. The lock is recursive, because a
    /// thread may recompute during its own forward. A recomputation on autograd's thread during a forward would be a
    /// deadlock.
    static std::recursive_mutex& turns() {
        static std::recursive_mutex only;
        return only;
    }
    std::unique_lock<std::recursive_mutex> turn_;
    at::Generator generator_;
    at::Tensor outer_;
};

} // namespace optpipe::libtorch
