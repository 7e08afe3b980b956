// expect: memory model: needs `stage_costs costs\(stage, std::size_t stages\) const`
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using model = optpipe::testing::archetype::memory;
#else
using model = optpipe::testing::mutant::memory_without_costs;
#endif
const auto problem = make_problem(optpipe::graph<2, 2>{}, model{});
