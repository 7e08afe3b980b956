#include "optpipe/core/quantity.hpp"

#include "optpipe/core/tolerance.hpp"

#include <concepts>
#include <type_traits>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::tolerance;
using namespace optpipe::literals;

template <class A, class B> concept addable = requires(A a, B b) { a + b; };
template <class A, class B> concept subtractable = requires(A a, B b) { a - b; };
template <class A, class B> concept multipliable = requires(A a, B b) { (a * b); };
template <class A, class B> concept dividable = requires(A a, B b) { a / b; };
template <class A, class B> concept ordered = requires(A a, B b) { a < b; };
template <class A, class B> concept accumulable = requires(A& a, B b) { a += b; };

// Only equal quantities have sums and differences.
static_assert(addable<duration, duration> && subtractable<memory_size, memory_size>);
static_assert(!addable<duration, memory_size> && !subtractable<duration, memory_size>);
static_assert(!addable<duration, double> && !addable<int, memory_size> && !subtractable<duration, double>);
static_assert(accumulable<duration, duration> && !accumulable<duration, memory_size> && !accumulable<duration, double>);

// Quantities have multiples, but no products; ratios of equal quantities are plain numbers.
static_assert(multipliable<double, duration> && multipliable<duration, double> && multipliable<int, duration>);
static_assert(!multipliable<duration, duration> && !multipliable<duration, memory_size>);
static_assert(dividable<duration, double> && dividable<duration, duration>);
static_assert(!dividable<duration, memory_size> && !dividable<double, duration>);
static_assert(std::same_as<decltype(1_ms / 1_ms), double> && std::same_as<decltype(1_ms / 2.0), duration>);
static_assert(std::same_as<decltype(2.0 * 1_gb), memory_size>);

// Conversions to and from quantities are explicit.
static_assert(!std::convertible_to<double, duration> && !std::convertible_to<duration, double>);
static_assert(!std::is_constructible_v<duration, memory_size> && !std::is_assignable_v<duration&, double>);
static_assert(std::is_constructible_v<duration, double>);
static_assert(ordered<duration, duration> && !ordered<duration, memory_size> && !ordered<duration, double>);

static_assert(2_ms + 3_ms == 5_ms && 2_ms - 3_ms == -1_ms && -(2_ms) == duration{-2});
static_assert(2.0 * 3_ms == 6_ms && 3_ms * 2.0 == 6_ms && 3_ms / 2.0 == 1.5_ms && 3_ms / 2_ms == 1.5);
static_assert(1_ms < 2_ms && 2_gb >= 2_gb && 1_gb != 2_gb);
static_assert(1500_us == 1.5_ms && 1500_mb == 1.5_gb && 1.5_us == 0.0015_ms && 1.5_mb == 0.0015_gb);

constexpr duration accumulated() {
    duration sum = 1_ms;
    sum += 2_ms;
    sum -= 4_ms;
    return sum;
}
static_assert(accumulated() == -1_ms);

static_assert(memory_size::unlimited().is_unlimited() && !(1_gb).is_unlimited() &&
              !(-memory_size::unlimited()).is_unlimited());
static_assert(memory_size::unlimited() > memory_size{1e300} && memory_size{} == 0_gb);

static_assert(tolerance{}.at(2.0) == 2e-6 && tolerance{0.5}.at(4_gb) == 2_gb);
static_assert(std::same_as<decltype(tolerance{}.at(1_ms)), duration>);

} // namespace
