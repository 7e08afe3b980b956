#pragma once

#include "optpipe/milp/result.hpp"

#include <array>
#include <cstddef>
#include <string_view>

namespace optpipe::formulation {

/// The family of constraints to which a variable or a row belongs.
enum class family : unsigned char {
    objective,
    end_times,
    dependencies,
    exclusivity,
    full_backward,
    storage_options,
    transfer_windows,
    copy_engines,
    device_memory,
    host_memory,
    stash_pool,
    monotone,
    load,
    tails,
    memory_area,
};
inline constexpr std::size_t families = static_cast<std::size_t>(family::memory_area) + 1;

[[nodiscard]] constexpr std::string_view name_of(family f) {
    constexpr std::array<std::string_view, families> names{
        "objective",       "end times",        "dependencies", "exclusivity",   "full backward",
        "storage options", "transfer windows", "copy engines", "device memory", "host memory",
        "stash pool",      "monotone",         "load",         "tails",         "memory area"};
    return names[static_cast<std::size_t>(f)];
}

using family_sizes = std::array<milp::model_size, families>;

} // namespace optpipe::formulation
