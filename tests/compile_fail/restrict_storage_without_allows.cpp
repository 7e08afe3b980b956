// expect: storage policy: needs `bool allows\(const storage_candidate&\) const`
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using policy = optpipe::testing::archetype::storage;
#else
using policy = optpipe::testing::mutant::storage_without_allows;
#endif
const auto problem = restrict_storage(make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}), policy{});
