// expect: offload policy: needs `offload_decision decide\(const offload_candidate&\) const`
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using policy = optpipe::testing::archetype::offload;
#else
using policy = optpipe::testing::mutant::offload_without_decide;
#endif
const auto problem = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}, optpipe::memory_size{1}, policy{});
