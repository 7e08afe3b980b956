#pragma once

#include "optpipe/core/random.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe::exact {

/// Variables by how often they took part in conflicts lately (VSIDS), in a heap. Variable 0 is never handed out.
class activity_order {
public:
    activity_order(std::size_t variables, std::uint64_t seed) : activity_(variables), place_(variables, absent) {
        random_numbers random{seed};
        for (std::uint32_t v = 1; v < variables; ++v) {
            activity_[v] = 1e-9 * static_cast<double>(random.below(1000));
            put_back(v);
        }
    }

    void touch(std::uint32_t v) {
        activity_[v] += step_;
        if (activity_[v] > 1e100) rescale();
        if (place_[v] != absent) up(place_[v]);
    }
    void cool_down() { step_ *= 1.0 / 0.95; }
    void put_back(std::uint32_t v) {
        if (v == 0 || place_[v] != absent) return;
        place_[v] = heap_.size();
        heap_.push_back(v);
        up(place_[v]);
    }
    /// The most active variable, which is taken out; 0 if there is none left.
    std::uint32_t take() {
        if (heap_.empty()) return 0;
        const auto top = heap_.front();
        place_[top] = absent;
        const auto last = heap_.back();
        heap_.pop_back();
        if (last != top) {
            heap_[0] = last;
            place_[last] = 0;
            down(0);
        }
        return top;
    }

private:
    static constexpr std::size_t absent = static_cast<std::size_t>(-1);

    [[nodiscard]] bool above(std::uint32_t a, std::uint32_t b) const {
        return activity_[a] != activity_[b] ? activity_[a] > activity_[b] : a < b;
    }
    void set(std::size_t place, std::uint32_t v) {
        heap_[place] = v;
        place_[v] = place;
    }
    void up(std::size_t at) {
        const auto v = heap_[at];
        for (; at > 0 && above(v, heap_[(at - 1) / 2]); at = (at - 1) / 2)
            set(at, heap_[(at - 1) / 2]);
        set(at, v);
    }
    void down(std::size_t at) {
        const auto v = heap_[at];
        for (;;) {
            auto child = 2 * at + 1;
            if (child >= heap_.size()) break;
            if (child + 1 < heap_.size() && above(heap_[child + 1], heap_[child])) ++child;
            if (!above(heap_[child], v)) break;
            set(at, heap_[child]);
            at = child;
        }
        set(at, v);
    }
    void rescale() {
        for (auto& a : activity_)
            a *= 1e-100;
        step_ *= 1e-100;
    }

    std::vector<double> activity_;
    std::vector<std::size_t> place_;
    std::vector<std::uint32_t> heap_;
    double step_ = 1.0;
};

} // namespace optpipe::exact
