// The builder concept, and the published builders as constant expressions.
#include "archetypes/builders.hpp"

#include "mutants/builders.hpp"
#include "optpipe/schedule.hpp"

namespace {

namespace archetype = optpipe::testing::archetype;
namespace mutant = optpipe::testing::mutant;
using namespace optpipe;

static_assert(schedule_builder<archetype::builder> && check_schedule_builder<archetype::builder>());
static_assert(!schedule_builder<mutant::builder_without_copy>);
static_assert(!schedule_builder<mutant::builder_without_name>);
static_assert(!schedule_builder<mutant::builder_with_numbered_name>);
static_assert(!schedule_builder<mutant::builder_without_call>);
static_assert(!schedule_builder<mutant::builder_with_mutable_call>);
static_assert(!schedule_builder<mutant::builder_with_bare_order>);
static_assert(!schedule_builder<int>);

// Peak of a rank in stashes: for 1F1B the number of ranks, for GPipe one per microbatch and stage of the rank.
static_assert(peak_stash(one_forward_one_backward(graph<4, 8>{})) == 4);
static_assert(peak_stash(one_forward_one_backward(graph<4, 2>{})) == 2);
static_assert(peak_stash(gpipe(graph<4, 8>{})) == 8);
static_assert(peak_stash(gpipe(graph<4, 8, placement::v>{})) == 16);

// Time: (M + P − 1)(F + I + W) for both, with unit passes.
constexpr auto unit = make_problem(graph<4, 8>{}, unit_memory{});
constexpr auto built = *build_schedule(unit, one_forward_one_backward);
static_assert(measure(unit, built).makespan == duration{33});
static_assert(measure(unit, built).peak_memory[rank{0}] == memory_size{4});
static_assert(measure(unit, built).peak_memory[rank{3}] == memory_size{1});
static_assert(measure(unit, *build_schedule(unit, gpipe)).makespan == duration{33});
static_assert(is_valid(unit, built));

// Two stages on each rank.
constexpr auto tiny = make_problem(graph<2, 2, placement::v>{}, unit_memory{});
constexpr auto tiny_half = *build_schedule(tiny, v_half);
static_assert(is_valid(tiny, tiny_half));
constexpr auto tiny_dual = *build_schedule(tiny, dual_pipe_v);
static_assert(is_valid(tiny, tiny_dual));

// A schedule that doesn't fit is refused with the memory that it would need.
constexpr auto tight = make_problem(graph<4, 8>{}, unit_memory{}, memory_size{3});
static_assert(!build_schedule(tight, one_forward_one_backward));
static_assert(build_schedule(tight, one_forward_one_backward).why().reason == refusal_reason::over_memory);
static_assert(build_schedule(tight, one_forward_one_backward).why().needed == memory_size{4});
static_assert(!is_valid(tight, built));

// The planner also works in constant expressions: here with an effort that compilers' default limits allow.
constexpr auto small = make_problem(graph<2, 2>{}, unit_memory{}, memory_size{1});
constexpr auto planned = *build_schedule(small, adaptive_builder<>{.effort = 1});
static_assert(is_valid(small, planned));
static_assert(measure(small, planned).makespan <= duration{12});

// So do conditions to stop.
constexpr stop_when at_once{[] { return true; }};
static_assert(adaptive(small, at_once));
static_assert(bounds_of(unit, at_once).best() <= bounds_of(unit).best());

// Bounds: 4×8 unit passes take (M + P − 1) F + (M + P − 1) I + W …, and no schedule is shorter than 27.
static_assert(bounds_of(unit).best() == duration{27});

} // namespace
