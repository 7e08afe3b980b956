#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::learning {

/// A heap of variables. The first element is the most active variable (VSIDS, Moskewicz and others, 2001). Each
/// conflict makes its variables more active. Recent conflicts count more than earlier conflicts. Ties go to the lowest
/// index.
class vsids {
public:
    explicit vsids(std::size_t variables) : activity_(variables, 0.0), place_(variables, absent) {}

    [[nodiscard]] double activity(std::size_t v) const { return activity_[v]; }
    void set_activity(std::size_t v, double value) {
        activity_[v] = value;
        if (place_[v] != absent) sift_up(place_[v]);
    }
    /// Inserts the variable, unless it is already in the heap.
    void insert(std::size_t v) {
        if (place_[v] != absent) return;
        place_[v] = static_cast<std::uint32_t>(heap_.size());
        heap_.push_back(static_cast<std::uint32_t>(v));
        sift_up(place_[v]);
    }
    /// Removes the most active variable, and returns it. Returns nothing if the heap is empty.
    [[nodiscard]] std::optional<std::uint32_t> pop() {
        if (heap_.empty()) return std::nullopt;
        const auto top = heap_.front();
        place_[top] = absent;
        const auto last = heap_.back();
        heap_.pop_back();
        if (last != top) {
            put(0, last);
            sift_down(0);
        }
        return top;
    }

    void bump(std::size_t v) {
        activity_[v] += increment_;
        if (activity_[v] > largest_activity) rescale();
        if (place_[v] != absent) sift_up(place_[v]);
    }
    /// Multiplies the weight of earlier bumps by `factor`, relative to future bumps.
    void decay(double factor) { increment_ /= factor; }

    /// Number of variables in the heap.
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    [[nodiscard]] std::size_t bytes() const {
        return activity_.capacity() * sizeof(double) + (place_.capacity() + heap_.capacity()) * sizeof(std::uint32_t);
    }

private:
    static constexpr std::uint32_t absent = std::numeric_limits<std::uint32_t>::max();
    static constexpr double largest_activity = 1e100;

    [[nodiscard]] bool before(std::uint32_t a, std::uint32_t b) const {
        return activity_[a] != activity_[b] ? activity_[a] > activity_[b] : a < b;
    }
    void put(std::size_t place, std::uint32_t v) {
        heap_[place] = v;
        place_[v] = static_cast<std::uint32_t>(place);
    }
    void sift_up(std::size_t at) {
        const auto v = heap_[at];
        for (; at > 0 && before(v, heap_[(at - 1) / 2]); at = (at - 1) / 2)
            put(at, heap_[(at - 1) / 2]);
        put(at, v);
    }
    void sift_down(std::size_t at) {
        const auto v = heap_[at];
        for (auto child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
            if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
            if (!before(heap_[child], v)) break;
            put(at, heap_[child]);
            at = child;
        }
        put(at, v);
    }
    void rescale() {
        for (auto& a : activity_)
            a /= largest_activity;
        increment_ /= largest_activity;
    }

    std::vector<double> activity_;
    std::vector<std::uint32_t> place_;
    std::vector<std::uint32_t> heap_;
    double increment_ = 1.0;
};

} // namespace optpipe::learning
