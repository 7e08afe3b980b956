#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace language_model {

/// A piece of a flat buffer.
struct piece {
    std::size_t begin = 0;
    std::size_t size = 0;

    template <class Real> [[nodiscard]] std::span<Real> of(std::span<Real> buffer) const {
        return buffer.subspan(begin, size);
    }
};

/// The pieces of a buffer that are not among some others, which are in order and don't overlap.
[[nodiscard]] inline std::vector<piece> rest_of(std::size_t size, const std::vector<piece>& others) {
    std::vector<piece> rest;
    std::size_t at = 0;
    for (const auto& other : others) {
        if (other.begin > at) rest.push_back({at, other.begin - at});
        at = other.begin + other.size;
    }
    if (size > at) rest.push_back({at, size - at});
    return rest;
}

/// Hands out pieces of a buffer, one after the other.
class layout {
public:
    piece take(std::size_t size) {
        const piece result{size_, size};
        size_ += size;
        return result;
    }
    [[nodiscard]] std::size_t size() const { return size_; }

private:
    std::size_t size_ = 0;
};

} // namespace language_model
