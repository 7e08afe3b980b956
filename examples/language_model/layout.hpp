#pragma once

#include <cstddef>
#include <span>

namespace language_model {

/// A piece of a flat buffer.
struct piece {
    std::size_t begin = 0;
    std::size_t size = 0;

    template <class Real> [[nodiscard]] std::span<Real> of(std::span<Real> buffer) const {
        return buffer.subspan(begin, size);
    }
};

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
