#include "optpipe/planner/bounds/memory_packing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

TEST_CASE("stashes in cells, and the most valuable of them that fit") {
    const optpipe::detail::memory_grid exact{{1.0, 0.55, 0.1}, 1.2, 1e-6};
    CHECK(exact.cells() == 24);
    CHECK(exact.cells_of(0.55) == 11);
    CHECK(exact.cells_of(1.3) == 25);
    // Stashes that fit also fit in cells.
    const optpipe::detail::memory_grid rough{{0.7071, 0.5774}, 3.0, 1e-6};
    CHECK(3 * rough.cells_of(0.7071) + rough.cells_of(0.5774) <= rough.cells());
    CHECK(5 * rough.cells_of(0.5774) <= rough.cells());
    CHECK(4 * rough.cells_of(0.7071) + 2 * rough.cells_of(0.5774) > rough.cells());

    optpipe::detail::memory_packing packing;
    const std::vector<optpipe::detail::memory_packing::item> items{{7, 5, 6.0}, {8, 3, 3.0}, {9, 4, 4.5}};
    packing.fill(items, 12);
    for (std::size_t cells = 0; cells <= 12; ++cells) {
        double best = 0.0;
        for (std::size_t a = 0; 5 * a <= cells; ++a)
            for (std::size_t b = 0; 5 * a + 3 * b <= cells; ++b)
                best = std::max(best, 6.0 * static_cast<double>(a) + 3.0 * static_cast<double>(b) +
                                          4.5 * static_cast<double>((cells - 5 * a - 3 * b) / 4));
        CHECK(packing.value(cells) == doctest::Approx(best));
        double packed = 0.0;
        packing.for_each_packed(cells, [&](std::size_t id) { packed += id == 7 ? 6.0 : id == 8 ? 3.0 : 4.5; });
        CHECK(packed == doctest::Approx(best));
    }
}
