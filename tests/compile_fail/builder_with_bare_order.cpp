// expect: schedule builder: needs .outcome<basic_order<Graph>> operator\(\)\(const basic_problem<Graph>&\) const
#include "mutants/builders.hpp"
#include "optpipe/schedule.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using builder = optpipe::testing::archetype::builder;
#else
using builder = optpipe::testing::mutant::builder_with_bare_order;
#endif
const auto problem = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{});
const auto schedule = build_schedule(problem, builder{});
