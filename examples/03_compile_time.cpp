// Example 3: schedules as constants.
//
// With static extents a graph is a type, and all functions of the earlier examples work in constant expressions:
// builders, simulation, measures, bounds and validator. A static_assert can state the properties that you rely on, and
// every compilation of your code checks them. A schedule can be a constant of a program.

#include <optpipe/schedule.hpp>

#include <iostream>
#include <type_traits>

namespace {

using namespace optpipe;

using shape = graph<4, 8>; // 4 ranks, 8 microbatches, one stage per rank

// 1F1B stashes as many microbatches as there are ranks, GPipe all of them. Both numbers depend on the order alone, not
// on costs.
static_assert(peak_stash(one_forward_one_backward(shape{})) == 4);
static_assert(peak_stash(gpipe(shape{})) == 8);

// With costs, an order gets times. Everything takes 1 here and a stash takes 1: the unit problem of the papers.
constexpr auto unit = make_problem(shape{}, unit_memory{});
constexpr auto timed = *simulate(unit, one_forward_one_backward(shape{}));

static_assert(is_valid(unit, timed));
static_assert(timed.operations.size() == 4 * 8 * 2);

// The step takes M + R − 1 slots, each as long as a forward and a full backward.
constexpr auto measured = measure(unit, timed);
static_assert(measured.makespan == duration{(8 + 4 - 1) * 3.0});
static_assert(measured.peak_memory[rank{0}] == memory_size{4});

// No schedule can be shorter than this, so 1F1B is not the last word on this problem:
static_assert(bounds_of(unit).best() < measured.makespan);

// With room for three stashes, 1F1B doesn't fit, and the compiler reports why.
constexpr auto tight = make_problem(shape{}, unit_memory{}, memory_size{3});
constexpr auto refused = simulate(tight, one_forward_one_backward(shape{}));
static_assert(!refused && refused.why().reason == refusal_reason::over_memory);
static_assert(refused.why().rank == rank{0} && refused.why().needed == memory_size{4});

// Ranks, stages and microbatches can't be mixed up, and neither can times and sizes: the following doesn't compile.
template <class A, class B> concept addable = requires(A a, B b) { a + b; };
static_assert(!addable<duration, memory_size> && addable<duration, duration>);
static_assert(!std::is_convertible_v<rank, stage>);

} // namespace

int main() {
    std::cout << "1F1B on 4 ranks with 8 microbatches, computed by the compiler:\n";
    for (const rank r : unit.graph.all_ranks()) {
        std::cout << "rank " << r.value() << ": ";
        for (const auto& op : order_of(timed).operations)
            if (unit.rank_of(op.stage) == r) std::cout << ' ' << to_string(op);
        std::cout << '\n';
    }
    std::cout << "makespan " << measured.makespan.value() << ", lower bound " << bounds_of(unit).best().value() << '\n';
}
