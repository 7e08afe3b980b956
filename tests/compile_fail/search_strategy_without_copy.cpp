// expect: search strategy: must be copyable
#include "archetypes/search_strategies.hpp"
#include "mutants/search_strategies.hpp"

#ifdef OPTPIPE_CONTROL
using strategy = optpipe::testing::archetype::strategy;
#else
using strategy = optpipe::testing::mutant::strategy_without_copy;
#endif
const auto any = optpipe::any_search_strategy{strategy{}};
