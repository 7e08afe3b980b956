#define OPTPIPE_COMPILING OPTPIPE_UNIT_pipeline
#include <optpipe/pipeline/costs_by_size.hpp>
#include <optpipe/pipeline/edges.hpp>
#include <optpipe/pipeline/layer_costs.hpp>
#include <optpipe/pipeline/least_memory.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/pipeline/pipeline_builder.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/pipeline/validate_problem.hpp>

#include <cstddef>
#include <vector>

// The templates for dynamic problems, once.

namespace optpipe {

std::vector<violation> validate(const problem& p) { return validate<any_graph>(p); }
least_memory_result least_memory(const problem& p, rank r, std::size_t most_states) {
    return least_memory<any_graph>(p, r, most_states);
}

} // namespace optpipe
