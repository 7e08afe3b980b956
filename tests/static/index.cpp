#include "optpipe/core/index.hpp"

#include "optpipe/core/container.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace {

using optpipe::index_range;
using optpipe::microbatch;
using optpipe::per_rank;
using optpipe::per_stage;
using optpipe::rank;
using optpipe::stage;

template <class A, class B> concept addable = requires(A a, B b) { a + b; };
template <class A, class B> concept subtractable = requires(A a, B b) { a - b; };
template <class A, class B> concept multipliable = requires(A a, B b) { (a * b); };
template <class A, class B> concept comparable = requires(A a, B b) { a == b; };
template <class A, class B> concept ordered = requires(A a, B b) { a < b; };
template <class V, class Index> concept subscriptable = requires(V v, Index i) { v[i]; };

// A rank is no stage, and no number.
static_assert(!std::is_constructible_v<stage, rank> && !std::is_constructible_v<rank, stage>);
static_assert(!std::is_constructible_v<microbatch, stage> && !std::is_constructible_v<stage, microbatch>);
static_assert(!std::is_assignable_v<stage&, rank> && !std::is_assignable_v<rank&, int>);
static_assert(!std::convertible_to<int, rank> && !std::convertible_to<std::size_t, stage>);
static_assert(!std::convertible_to<rank, int> && !std::is_constructible_v<std::size_t, rank>);
static_assert(std::is_constructible_v<rank, int> && std::is_constructible_v<rank, std::size_t>);
static_assert(!std::is_constructible_v<rank, double> && !std::is_constructible_v<rank, const char*>);

// Indices are positions: they can be compared with their like, and not be added.
static_assert(comparable<rank, rank> && ordered<rank, rank>);
static_assert(!comparable<rank, stage> && !ordered<rank, stage> && !comparable<rank, int> && !ordered<stage, int>);
static_assert(!addable<rank, rank> && !addable<rank, stage> && !addable<stage, int> && !addable<int, microbatch>);
static_assert(!subtractable<rank, rank> && !subtractable<rank, stage> && !subtractable<stage, int>);
static_assert(!multipliable<rank, int> && !multipliable<rank, stage>);

static_assert(rank{3}.value() == 3 && rank{3}.position() == 3 && rank{} == rank{0});
static_assert(stage{3}.next() == stage{4} && stage{3}.previous() == stage{2});
static_assert(stage{1} < stage{2} && stage{2} >= stage{2} && stage{1} != stage{2});
static_assert(++rank{6} == rank{7});

// Tables are subscripted by their own index and by nothing else, with static and with dynamic extents.
static_assert(subscriptable<per_rank<double>, rank> && subscriptable<per_rank<double, 4>, rank>);
static_assert(!subscriptable<per_rank<double>, stage> && !subscriptable<per_rank<double, 4>, stage>);
static_assert(!subscriptable<per_rank<double>, int> && !subscriptable<per_rank<double, 4>, std::size_t>);
static_assert(subscriptable<per_stage<double>, stage> && !subscriptable<per_stage<double>, rank>);
static_assert(subscriptable<const per_stage<double, 4>, stage> &&
              !subscriptable<const per_stage<double, 4>, microbatch>);
static_assert(!std::convertible_to<per_rank<double, 4>, per_stage<double, 4>>);
static_assert(!std::convertible_to<per_rank<double>, per_stage<double>>);

constexpr std::size_t sum_of_positions(std::size_t count) {
    std::size_t sum = 0;
    for (const stage s : index_range<stage>{count})
        sum += s.position();
    return sum;
}
static_assert(sum_of_positions(0) == 0 && sum_of_positions(1) == 0 && sum_of_positions(5) == 10);
static_assert(index_range<stage>{5}.size() == 5);

} // namespace
