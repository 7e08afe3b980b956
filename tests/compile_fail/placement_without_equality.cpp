// expect: placement: must be default constructible, copyable and equality comparable
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using policy = optpipe::testing::archetype::placement;
#else
using policy = optpipe::testing::mutant::placement_without_equality;
#endif
constexpr std::size_t stages = optpipe::graph<2, 2, policy>::stage_extent;
