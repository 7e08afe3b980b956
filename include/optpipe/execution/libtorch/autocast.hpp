#pragma once

#include "optpipe/core/standard.hpp"

#include <ATen/autocast_mode.h>

namespace optpipe::libtorch {

/// This thread's autocast setting for one kind of device: on or off, and the type.
struct autocast_state {
    at::DeviceType device = at::kCPU;
    bool is_enabled = false;
    at::ScalarType type = at::kFloat;

    [[nodiscard]] static autocast_state of(at::DeviceType device) {
        return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
    }
    void set() const {
        at::autocast::set_autocast_enabled(device, is_enabled);
        at::autocast::set_autocast_dtype(device, type);
    }
};

/// While this object exists, its thread casts as described by `state`.
class autocast_scope {
public:
    explicit autocast_scope(const autocast_state& state) : outer_{autocast_state::of(state.device)} {
        at::autocast::increment_nesting();
        state.set();
    }
    ~autocast_scope() {
        if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
        outer_.set();
    }
    autocast_scope(const autocast_scope&) = delete;
    autocast_scope& operator=(const autocast_scope&) = delete;

private:
    autocast_state outer_;
};

} // namespace optpipe::libtorch
