#pragma once

#include "optpipe/milp/bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Which columns took part in recent conflicts: a heap by activity, where what is bumped counts more the later it
/// happens (Moskewicz et al., 2001).
class activity_order {
public:
    explicit activity_order(std::size_t columns) : activity_(columns, 0.0), place_(columns, absent) {}

    [[nodiscard]] double activity(std::size_t j) const { return activity_[j]; }
    void set_activity(std::size_t j, double value) {
        activity_[j] = value;
        if (place_[j] != absent) rise(place_[j]);
    }
    void insert(std::size_t j) {
        if (place_[j] != absent) return;
        place_[j] = static_cast<std::uint32_t>(heap_.size());
        heap_.push_back(static_cast<std::uint32_t>(j));
        rise(place_[j]);
    }
    [[nodiscard]] std::optional<std::size_t> pop() {
        if (heap_.empty()) return std::nullopt;
        const auto top = heap_.front();
        swap(0, heap_.size() - 1);
        heap_.pop_back();
        place_[top] = absent;
        if (!heap_.empty()) sink(0);
        return top;
    }
    void bump(std::size_t j) {
        constexpr double largest = 1e100;
        activity_[j] += increment_;
        if (activity_[j] > largest) {
            for (auto& a : activity_)
                a /= largest;
            increment_ /= largest;
        }
        if (place_[j] != absent) rise(place_[j]);
    }
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_of(activity_, place_, heap_); }
    void decay(double factor) { increment_ /= factor; }

private:
    static constexpr std::uint32_t absent = std::numeric_limits<std::uint32_t>::max();

    [[nodiscard]] bool before(std::size_t a, std::size_t b) const {
        const auto x = heap_[a], y = heap_[b];
        return activity_[x] != activity_[y] ? activity_[x] > activity_[y] : x < y;
    }
    void swap(std::size_t a, std::size_t b) {
        std::swap(heap_[a], heap_[b]);
        place_[heap_[a]] = static_cast<std::uint32_t>(a);
        place_[heap_[b]] = static_cast<std::uint32_t>(b);
    }
    void rise(std::size_t i) {
        while (i > 0 && before(i, (i - 1) / 2)) {
            swap(i, (i - 1) / 2);
            i = (i - 1) / 2;
        }
    }
    void sink(std::size_t i) {
        while (true) {
            auto best = i;
            for (const auto child : {2 * i + 1, 2 * i + 2})
                if (child < heap_.size() && before(child, best)) best = child;
            if (best == i) return;
            swap(i, best);
            i = best;
        }
    }

    std::vector<double> activity_;
    std::vector<std::uint32_t> place_;
    std::vector<std::uint32_t> heap_;
    double increment_ = 1.0;
};

} // namespace optpipe::milp::search
