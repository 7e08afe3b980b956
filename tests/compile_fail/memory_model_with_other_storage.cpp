// expect: memory model: its storage must be `storage_list<false> storage\(stage, std::size_t stages\) const`
#include "optpipe/pipeline/make_problem.hpp"

#include <vector>

struct model {
    optpipe::stage_costs costs(optpipe::stage, std::size_t) const { return {}; }
#ifdef OPTPIPE_CONTROL
    optpipe::storage_list<false> storage(optpipe::stage, std::size_t) const { return {}; }
#else
    std::vector<optpipe::storage_option> storage(optpipe::stage, std::size_t) const { return {}; }
#endif
};
const auto problem = make_problem(optpipe::graph<2, 2>{}, model{});
