#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <vector>

namespace optpipe::milp {

/// The memory of the vectors in bytes, without memory that the elements own.
template <class... Ts> [[nodiscard]] std::size_t bytes_of(const std::vector<Ts>&... vectors) {
    return (std::size_t{0} + ... + (vectors.capacity() * sizeof(Ts)));
}

/// The memory of a vector of vectors, including the inner vectors.
template <class T> [[nodiscard]] std::size_t bytes_of_lists(const std::vector<std::vector<T>>& lists) {
    std::size_t sum = bytes_of(lists);
    for (const auto& l : lists)
        sum += bytes_of(l);
    return sum;
}

} // namespace optpipe::milp
