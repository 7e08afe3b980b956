// expect: placement: needs `std::size_t stages\(std::size_t ranks\) const`
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using policy = optpipe::testing::archetype::placement;
#else
using policy = optpipe::testing::mutant::placement_without_stages;
#endif
constexpr std::size_t stages = optpipe::graph<2, 2, policy>::stage_extent;
