#include "methods.hpp"

#include <optpipe/planner.hpp>
#include <optpipe/schedule.hpp>

#include <chrono>
#include <string>

namespace gpu_bench {
namespace {

using namespace optpipe;

template <class Builder> method method_of(const Builder& builder) {
    return {std::string{builder.name}, [builder](const problem& p) { return build_schedule(p, builder); }};
}
/// The builder with this storage option for all stages and microbatches.
template <class Builder> method uniform_method(const Builder& builder, const std::string& option) {
    return {std::string{builder.name} + ", " + option, [builder, option](const problem& p) {
                return build_uniform_schedule(p, builder, *find_common_option(p, option));
            }};
}
/// The builder with the best such option.
template <class Builder> method best_uniform_method(const Builder& builder) {
    return {std::string{builder.name} + ", best option",
            [builder](const problem& p) { return build_best_uniform_schedule(p, builder).result; }};
}

outcome<schedule> planned(const problem& p) {
    const auto found = plan(p, {.time_limit = std::chrono::seconds{5}});
    if (!found) return found.why();
    return found->schedule;
}

} // namespace

std::vector<method> methods(const problem& p) {
    std::vector<method> all;
    if (!is_described_by_costs(p)) {
        for (const auto& option : p.storage[stage{0}])
            if (!option.offloads()) // 1F1B doesn't offload
                all.push_back(uniform_method(one_forward_one_backward, std::string{option.name.view()}));
        for (const auto& each : {best_uniform_method(zero_bubble_h1), best_uniform_method(zero_bubble_auto),
                                 best_uniform_method(pipe_offload), method_of(adapipe), method_of(mario)})
            all.push_back(each);
    } else {
        for (const auto& each : {method_of(one_forward_one_backward), method_of(zero_bubble_h1),
                                 method_of(zero_bubble_auto), method_of(pipe_offload_half), method_of(pipe_offload)})
            all.push_back(each);
    }
    all.push_back(method_of(adaptive));
    all.push_back({"plan", planned});
    return all;
}

} // namespace gpu_bench
