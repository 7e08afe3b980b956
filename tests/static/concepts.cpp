// Tests every concept with models, the archetype, and one mutant per requirement, and every template with archetypes
// alone.
#include "mutants/concepts.hpp"

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/testing.hpp"

#include <concepts>
#include <cstddef>

namespace {

namespace archetype = optpipe::testing::archetype;
namespace mutant = optpipe::testing::mutant;

using optpipe::layer_split;
using optpipe::memory_model;
using optpipe::placement_policy;
using optpipe::storage_policy;

static_assert(placement_policy<archetype::placement> && optpipe::check_placement<archetype::placement>());
static_assert(!placement_policy<mutant::placement_without_default_constructor>);
static_assert(!placement_policy<mutant::placement_without_copy>);
static_assert(!placement_policy<mutant::placement_without_equality>);
static_assert(!placement_policy<mutant::placement_without_stage_extent>);
static_assert(!placement_policy<mutant::placement_with_runtime_stage_extent>);
static_assert(!placement_policy<mutant::placement_without_stages>);
static_assert(!placement_policy<mutant::placement_with_mutable_stages>);
static_assert(!placement_policy<mutant::placement_without_rank_of>);
static_assert(!placement_policy<mutant::placement_with_mutable_rank_of>);
static_assert(!placement_policy<mutant::placement_with_untyped_rank_of>);
static_assert(!placement_policy<int> && !placement_policy<archetype::memory>);

static_assert(memory_model<archetype::memory> && optpipe::check_memory_model<archetype::memory>());
static_assert(!memory_model<mutant::memory_without_copy>);
static_assert(!memory_model<mutant::memory_without_costs>);
static_assert(!memory_model<mutant::memory_with_mutable_costs>);
static_assert(!memory_model<mutant::memory_with_single_cost>);
static_assert(!memory_model<int> && !memory_model<archetype::storage>);

static_assert(storage_policy<archetype::storage> && optpipe::check_storage_policy<archetype::storage>());
static_assert(!storage_policy<mutant::storage_without_copy> && optpipe::has_allows<mutant::storage_without_copy>);
static_assert(!storage_policy<mutant::storage_without_allows> && std::copyable<mutant::storage_without_allows>);
static_assert(!storage_policy<mutant::storage_with_mutable_allows>);
static_assert(!storage_policy<mutant::storage_with_decision>);
static_assert(!storage_policy<int> && !storage_policy<archetype::placement>);
static_assert(optpipe::has_storage<optpipe::transformer<>> && !optpipe::has_storage<archetype::memory>);

// A mutant lacks one piece and has the others.
using optpipe::has_rank_of;
using optpipe::has_stage_extent;
using optpipe::has_stages;
template <class P> constexpr int pieces = std::regular<P> + has_stage_extent<P> + has_stages<P> + has_rank_of<P>;
static_assert(pieces<archetype::placement> == 4);
static_assert(pieces<mutant::placement_without_default_constructor> == 3 &&
              pieces<mutant::placement_without_copy> == 3);
static_assert(pieces<mutant::placement_without_equality> == 3 && pieces<mutant::placement_without_stage_extent> == 3);
static_assert(pieces<mutant::placement_with_runtime_stage_extent> == 3 &&
              pieces<mutant::placement_without_stages> == 3);
static_assert(pieces<mutant::placement_with_mutable_stages> == 3 && pieces<mutant::placement_without_rank_of> == 3);
static_assert(pieces<mutant::placement_with_mutable_rank_of> == 3 &&
              pieces<mutant::placement_with_untyped_rank_of> == 3);
static_assert(optpipe::has_costs<mutant::memory_without_copy> && std::copyable<mutant::memory_without_costs>);

// The layer split of `transformer` is a concept of one piece.
struct by_hand {
    static constexpr std::size_t layers_of(optpipe::stage s, std::size_t) { return 1 + s.position(); }
};
struct by_hand_untyped {
    static constexpr int layers_of(optpipe::stage, std::size_t) { return 1; }
};
static_assert(layer_split<by_hand> && !layer_split<by_hand_untyped> && !layer_split<int>);
static_assert(memory_model<optpipe::transformer<by_hand>>);

// Templates ask for no more than the concept says.
constexpr optpipe::graph<2, 3, archetype::placement> shape;
constexpr auto problem = make_problem(shape, archetype::memory{}, optpipe::memory_size{2}, archetype::storage{});
static_assert(problem.storage_options(optpipe::stage{1}) == 2);
static_assert(least_memory(problem, optpipe::rank{0}).needed == optpipe::memory_size{1});
static_assert(least_memory(problem, optpipe::rank{1}).needed == optpipe::memory_size{0});
static_assert(paths_of(problem).lifespan[optpipe::stage{0}] == optpipe::duration{4});
static_assert(to_any_graph(shape).stages() == 2 && stages_by_rank(shape)[optpipe::rank{0}].size() == 2);

} // namespace
