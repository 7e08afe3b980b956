#include "archetypes/search_strategies.hpp"

#include "mutants/search_strategies.hpp"
#include "optpipe/planner/portfolio/search_strategy.hpp"

namespace {

namespace archetype = optpipe::testing::archetype;
namespace mutant = optpipe::testing::mutant;
using namespace optpipe;

static_assert(search_strategy<archetype::strategy>);
static_assert(!search_strategy<mutant::strategy_without_copy>);
static_assert(!search_strategy<mutant::strategy_without_name>);
static_assert(!search_strategy<mutant::strategy_with_numbered_name>);
static_assert(!search_strategy<mutant::strategy_without_call>);
static_assert(!search_strategy<mutant::strategy_with_mutable_call>);
static_assert(!search_strategy<mutant::strategy_with_result>);

static_assert(!search_strategy<mutant::strategy_with_void_traits>);
static_assert(!search_strategy<mutant::strategy_with_constant_traits>);

} // namespace
