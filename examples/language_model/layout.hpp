#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace language_model {

template <class Real> class scattered;

/// A range of a flat buffer.
struct piece {
    std::size_t begin = 0;
    std::size_t size = 0;

    template <class Real> [[nodiscard]] std::span<Real> of(std::span<Real> buffer) const {
        return buffer.subspan(begin, size);
    }
    template <class Real> [[nodiscard]] std::span<Real> of(const scattered<Real>& buffer) const {
        return buffer.at(*this);
    }
};

/// A buffer that is contiguous, or has its pieces in different places.
template <class Real> class scattered {
public:
    scattered() = default;
    template <class Buffer>
    requires std::convertible_to<Buffer, std::span<Real>> scattered(Buffer&& whole)
        : places_{{0, std::span<Real>{whole}}} {}

    /// Adds the place of the next piece, in the order of the buffer.
    void add(piece which, std::span<Real> at) { places_.push_back({which.begin, at}); }
    [[nodiscard]] std::span<Real> at(piece which) const {
        const auto next = std::upper_bound(places_.begin(), places_.end(), which.begin,
                                           [](std::size_t begin, const place& each) { return begin < each.begin; });
        if (next == places_.begin()) throw std::out_of_range{"a buffer hasn't got this piece"};
        const auto& found = *(next - 1);
        return found.at.subspan(which.begin - found.begin, which.size);
    }

private:
    struct place {
        std::size_t begin;
        std::span<Real> at;
    };
    std::vector<place> places_{};
};

/// The ranges of a buffer outside of `others`, which are in order and don't overlap.
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

/// Allocates pieces of a buffer, one after the other.
class layout {
public:
    piece take(std::size_t size) {
        pieces_.push_back({size_, size});
        size_ += size;
        return pieces_.back();
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// All pieces allocated until now.
    [[nodiscard]] const std::vector<piece>& pieces() const { return pieces_; }

private:
    std::size_t size_ = 0;
    std::vector<piece> pieces_{};
};

} // namespace language_model
