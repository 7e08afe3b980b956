#pragma once

#include <cstddef>

namespace language_model {

/// c = alpha · op(a) · op(b) + beta · c, `count` times; the `…_stride`s are the distances between consecutive operands.
///
/// As in BLAS, matrices are column-major: op(a) is rows × inner, op(b) is inner × columns, and element (i, j) is stored
/// at i + j · leading. So a row-major matrix is its own transpose, with its width as the leading dimension.
struct product {
    bool transpose_a = false;
    bool transpose_b = false;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t inner = 0;
    float alpha = 1.0F;
    const float* a = nullptr;
    std::size_t a_leading = 0;
    std::size_t a_stride = 0;
    const float* b = nullptr;
    std::size_t b_leading = 0;
    std::size_t b_stride = 0;
    float beta = 0.0F;
    float* c = nullptr;
    std::size_t c_leading = 0;
    std::size_t c_stride = 0;
    std::size_t count = 1;
};

} // namespace language_model
