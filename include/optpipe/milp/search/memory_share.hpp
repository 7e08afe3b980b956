#pragma once

#include "optpipe/milp/search/control.hpp"

#include <cstddef>

namespace optpipe::milp::search {

/// The memory of one component, counted by the search's control. The destructor releases the memory.
class memory_share {
public:
    explicit memory_share(control& c) : control_{&c} {}
    memory_share(const memory_share&) = delete;
    memory_share& operator=(const memory_share&) = delete;
    ~memory_share() { set(0); }

    void set(std::size_t bytes) {
        control_->charge(static_cast<std::ptrdiff_t>(bytes) - static_cast<std::ptrdiff_t>(bytes_));
        bytes_ = bytes;
    }

private:
    control* control_;
    std::size_t bytes_ = 0;
};

} // namespace optpipe::milp::search
