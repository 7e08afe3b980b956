// expect: schedule builder: must be copyable
#include "mutants/builders.hpp"
#include "optpipe/schedule.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using builder = optpipe::testing::archetype::builder;
#else
using builder = optpipe::testing::mutant::builder_without_copy;
#endif
const auto problem = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{});
const auto schedule = build_schedule(problem, builder{});
