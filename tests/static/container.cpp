#include "optpipe/core/container.hpp"

#include "optpipe/core/extent.hpp"

#include <cstddef>
#include <type_traits>

namespace {

using optpipe::bounded_vector;
using optpipe::dynamic;
using optpipe::extent;
using optpipe::extent_product;
using optpipe::per_rank;
using optpipe::rank;

// A static extent takes no memory.
static_assert(std::is_empty_v<extent<4>> && !std::is_empty_v<extent<dynamic>>);
static_assert(extent<4>::size() == 4 && extent<dynamic>{7}.size() == 7);

static_assert(extent_product() == 1 && extent_product(std::size_t{2}, std::size_t{3}, std::size_t{4}) == 24);
static_assert(extent_product(dynamic, std::size_t{2}) == dynamic && extent_product(std::size_t{2}, dynamic) == dynamic);
static_assert(extent_product(dynamic, dynamic) == dynamic);

template <std::size_t Capacity> constexpr bounded_vector<int, Capacity> first_squares(int count) {
    bounded_vector<int, Capacity> squares;
    squares.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i)
        squares.push_back(i * i);
    return squares;
}
static_assert(first_squares<8>(4).size() == 4 && first_squares<8>(4)[3] == 9 && first_squares<8>(4).back() == 9);
static_assert(first_squares<dynamic>(4).size() == 4 && first_squares<dynamic>(4).back() == 9);
static_assert(first_squares<4>(4) == first_squares<4>(4) && first_squares<4>(4) != first_squares<4>(3));
static_assert(first_squares<4>(0).empty() && bounded_vector<int, 0>{}.empty());

// Elements beyond the size don't count, and are zero after growing again.
constexpr bool grows_with_zeros() {
    auto squares = first_squares<4>(4);
    squares.resize(1);
    auto shorter = squares == first_squares<4>(1);
    squares.resize(3);
    return shorter && squares[2] == 0 && squares.size() == 3;
}
static_assert(grows_with_zeros());

// A static vector and a static table can be constants.
constexpr auto squares = first_squares<4>(3);
static_assert(squares.end() - squares.begin() == 3);
constexpr per_rank<int, 3> sevens(3, 7);
static_assert(sevens[rank{2}] == 7 && sevens.size() == 3 && sevens.indices().size() == 3);
static_assert(sevens == per_rank<int, 3>(3, 7) && sevens != per_rank<int, 3>(3, 8));
static_assert(per_rank<int>(3, 7).size() == 3 && per_rank<int>(3, 7) == per_rank<int>(3, 7));
static_assert(per_rank<int>(3, 7) != per_rank<int>(2, 7) && per_rank<int>{}.size() == 0);

// A count converts to a table only explicitly.
static_assert(!std::is_convertible_v<std::size_t, per_rank<int>> &&
              !std::is_convertible_v<std::size_t, per_rank<int, 3>>);

} // namespace
