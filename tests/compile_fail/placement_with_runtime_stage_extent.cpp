// expect: placement: needs `static constexpr std::size_t stage_extent\(std::size_t ranks\)`
#include "mutants/concepts.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/testing.hpp"

#ifdef OPTPIPE_CONTROL
using policy = optpipe::testing::archetype::placement;
#else
using policy = optpipe::testing::mutant::placement_with_runtime_stage_extent;
#endif
constexpr std::size_t stages = optpipe::graph<2, 2, policy>::stage_extent;
