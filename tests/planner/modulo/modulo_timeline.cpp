#include "optpipe/planner/modulo/modulo_timeline.hpp"

#include "optpipe/core/random.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using namespace optpipe;

namespace {

/// The same timeline, cell by cell.
class cells {
public:
    explicit cells(std::size_t count) : taken_(count, 0) {}
    bool is_free(long start, long length) const {
        if (length > size()) return false;
        for (long i = 0; i < length; ++i)
            if (taken_[cell(start + i)] != 0) return false;
        return true;
    }
    void take(long start, long length) {
        for (long i = 0; i < length; ++i)
            taken_[cell(start + i)] = 1;
    }
    long size() const { return static_cast<long>(taken_.size()); }

private:
    std::size_t cell(long at) const { return static_cast<std::size_t>(((at % size()) + size()) % size()); }
    std::vector<unsigned char> taken_;
};

} // namespace

TEST_CASE("free intervals modulo the period are the nearest ones") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto count = random.between(4, 24);
        detail::modulo_timeline timeline{static_cast<double>(count), 1e-9};
        cells grid{count};
        for (int interval = 0; interval < 6; ++interval) {
            const auto from = static_cast<long>(random.below(3 * count)) - static_cast<long>(count);
            const auto length = static_cast<long>(random.between(1, 5));
            long first = from;
            while (first < from + 2 * grid.size() && !grid.is_free(first, length))
                ++first;
            long last = from;
            while (last > from - 2 * grid.size() && !grid.is_free(last, length))
                --last;
            const bool possible = grid.is_free(first, length);
            const auto found_first = timeline.first_free(static_cast<double>(from), static_cast<double>(length));
            const auto found_last = timeline.last_free(static_cast<double>(from), static_cast<double>(length));
            CHECK(found_first == (possible ? static_cast<double>(first) : detail::modulo_timeline::never));
            CHECK(found_last == (possible ? static_cast<double>(last) : -detail::modulo_timeline::never));
            CHECK(timeline.is_free(static_cast<double>(from), static_cast<double>(length)) ==
                  grid.is_free(from, length));
            if (!possible) continue;
            const auto flush = timeline.push_right(found_first, static_cast<double>(length));
            CHECK(flush >= found_first);
            CHECK(grid.is_free(static_cast<long>(flush), length));
            if (!timeline.intervals().empty()) CHECK_FALSE(grid.is_free(static_cast<long>(flush) + 1, length));
            const auto back = timeline.push_left(found_last);
            CHECK(back <= found_last);
            CHECK(grid.is_free(static_cast<long>(back), length));
            if (!timeline.intervals().empty()) CHECK_FALSE(grid.is_free(static_cast<long>(back) - 1, length));
            const auto at = random.chance(50) ? found_first : found_last;
            timeline.take(at, static_cast<double>(length));
            grid.take(static_cast<long>(at), length);
            double free = 0.0;
            for (const auto gap : timeline.gaps())
                free += gap;
            double expected = 0.0;
            for (long i = 0; i < grid.size(); ++i)
                expected += grid.is_free(i, 1) ? 1.0 : 0.0;
            CHECK(free == doctest::Approx(expected));
        }
    }
}

TEST_CASE("the last reservations can be undone") {
    detail::modulo_timeline timeline{10.0, 1e-9};
    timeline.take(2.0, 3.0);
    const auto mark = timeline.mark();
    timeline.take(-4.0, 3.0);
    CHECK_FALSE(timeline.is_free(7.0, 1.0));
    timeline.undo(mark);
    CHECK(timeline.is_free(7.0, 1.0));
    CHECK_FALSE(timeline.is_free(13.0, 1.0));
}
