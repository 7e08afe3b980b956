#include "../../examples/language_model/cuda/comparison.hpp"
#include "../../examples/language_model/cuda/loop_device.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <vector>

using namespace language_model;

TEST_CASE("a stage on a device computes what a stage on the host does") {
    loop_device device;
    constexpr std::array shapes{shape{.hidden = 8, .heads = 2, .sequence = 6, .sequences = 2, .vocabulary = 40},
                                shape{.hidden = 12, .heads = 3, .sequence = 5, .sequences = 3, .vocabulary = 17},
                                shape{.hidden = 16, .heads = 1, .sequence = 9, .sequences = 1, .vocabulary = 70}};
    constexpr std::array places{stage_place{2, true, false}, stage_place{1, false, false}, stage_place{2, false, true},
                                stage_place{1, true, true}};
    std::size_t compared = 0;
    for (const auto& s : shapes)
        for (const auto& place : places)
            for (const auto& each : stage_comparison<loop_device>{device, s, place, s.hidden}.run()) {
                CAPTURE(s.hidden);
                CAPTURE(place.first);
                CAPTURE(place.last);
                INFO(each.what);
                CHECK(each.relative < 2e-5);
                ++compared;
            }
    CHECK(compared == 3 * 4 * 12);
}

TEST_CASE("a product is BLAS's") {
    // Column-major: a is 2 × 3 in a 3-high array, b 3 × 2, c 2 × 2 in a 4-high array.
    const std::vector<float> a{1, 4, -1, 2, 5, -1, 3, 6, -1};
    const std::vector<float> b{7, 9, 11, 8, 10, 12};
    std::vector<float> c{1, 1, -7, -7, 1, 1, -7, -7};
    loop_device::multiply({.rows = 2,
                           .columns = 2,
                           .inner = 3,
                           .alpha = 2.0F,
                           .a = a.data(),
                           .a_leading = 3,
                           .b = b.data(),
                           .b_leading = 3,
                           .beta = 3.0F,
                           .c = c.data(),
                           .c_leading = 4});
    CHECK(c == std::vector<float>{2 * 58 + 3, 2 * 139 + 3, -7, -7, 2 * 64 + 3, 2 * 154 + 3, -7, -7});
    // The same product from matrices that are transposed already.
    const std::vector<float> a_transposed{1, 2, 3, 4, 5, 6};
    const std::vector<float> b_transposed{7, 8, 9, 10, 11, 12};
    std::vector<float> d(4, 99.0F);
    loop_device::multiply({.transpose_a = true,
                           .transpose_b = true,
                           .rows = 2,
                           .columns = 2,
                           .inner = 3,
                           .a = a_transposed.data(),
                           .a_leading = 3,
                           .b = b_transposed.data(),
                           .b_leading = 2,
                           .c = d.data(),
                           .c_leading = 2});
    CHECK(d == std::vector<float>{58, 139, 64, 154});
}

TEST_CASE("a difference is seen wherever it is") {
    std::vector<double> expected(100, 1.0);
    std::vector<float> same(100, 1.0F);
    CHECK(relative_difference(expected, same, 10) == 0.0);
    same[55] = 1.1F;
    CHECK(relative_difference(expected, same, 10) > 0.03);
    same[55] = std::nanf("");
    CHECK(std::isnan(relative_difference(expected, same, 10)));
    CHECK(std::isnan(relative_difference(expected, {}, 10)));
}
