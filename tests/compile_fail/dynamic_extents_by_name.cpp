// expect: this type has no unit
// never: 18446744073709551615
#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

namespace placement = optpipe::placement;
using optpipe::dynamic;
using optpipe::graph;

#ifdef OPTPIPE_CONTROL
template <class> constexpr bool has_unit = true;
#else
template <class> constexpr bool has_unit = false;
#endif
template <class T> struct measured { static_assert(has_unit<T>, "this type has no unit"); };

const measured<optpipe::problem> problem;
const measured<optpipe::schedule> schedule;
const measured<optpipe::order> order;
const measured<optpipe::measures> measures;
const measured<graph<dynamic, 8>> ranks_open;
const measured<graph<4, dynamic, placement::loop<>>> microbatches_open;
const measured<optpipe::basic_schedule<graph<4, dynamic, placement::loop<>>>> open_schedule;
const measured<decltype(optpipe::basic_problem<graph<4, dynamic, placement::loop<>>>::costs)> costs;
const measured<decltype(optpipe::basic_schedule<graph<4, dynamic, placement::loop<>>>::operations)> operations;
const measured<decltype(optpipe::stages_by_rank(optpipe::any_graph{}))> stages;
const measured<optpipe::extent<dynamic>> extent;
const measured<optpipe::hop_times<>> hops;
const measured<optpipe::transfer_rules<>> rules;
const measured<optpipe::microbatch_paths<>> paths;
const measured<optpipe::memory_per_stage<>> memory;
const measured<optpipe::transformer<optpipe::listed_layers<>>> layers;
