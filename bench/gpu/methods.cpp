#include "methods.hpp"

#if OPTPIPE_HAS_MILP
#include <optpipe/planner.hpp>
#endif
#include <optpipe/schedule.hpp>

#include <chrono>

namespace gpu_bench {
namespace {

using namespace optpipe;

template <class Builder> method method_of(const Builder& builder) {
    return {std::string{builder.name}, [builder](const problem& p) { return build_schedule(p, builder); }};
}

} // namespace

std::vector<method> methods() {
    std::vector<method> all{method_of(one_forward_one_backward), method_of(zero_bubble_h1), method_of(zero_bubble_auto),
                            method_of(pipe_offload_half),        method_of(pipe_offload),   method_of(adaptive)};
#if OPTPIPE_HAS_MILP
    all.push_back({"plan", [](const problem& p) -> outcome<schedule> {
                       const auto planned = plan(p, {.time_limit = std::chrono::seconds{5}});
                       if (!planned) return planned.why();
                       return planned->schedule;
                   }});
#else
    all.push_back({"plan", [](const problem&) -> outcome<schedule> {
                       refusal why;
                       why.sentence = "the planner isn't built: it needs Eigen and oneTBB";
                       return why;
                   }});
#endif
    return all;
}

} // namespace gpu_bench
