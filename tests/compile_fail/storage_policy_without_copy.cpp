// expect: storage policy: must be copyable
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using policy = optpipe::testing::archetype::storage;
#else
using policy = optpipe::testing::mutant::storage_without_copy;
#endif
const auto problem = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}, optpipe::memory_size{1}, policy{});
