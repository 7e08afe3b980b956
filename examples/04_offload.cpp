// Example 4: activations that are offloaded.
//
// A stash can move to the host's memory after the forward, and come back before its gradient needs it. An offload
// policy says for each stage whether its stashes must, may, or must not be offloaded. The planner decides the rest:
// which microbatch is offloaded, when, and which transfer goes first if several devices share a link.

#include <optpipe/optpipe.hpp>

#include <iostream>
#include <string>

namespace {

using namespace optpipe;

/// Two devices with four stages each, in a loop, so that the lifespans of stashes differ within a device.
constexpr graph<2, 8, placement::loop<4>> shape{};

/// Your own policy is a type with `allows`. This one permits offloading for stages with long lifespans.
struct if_offloaded_for_long {
    double round_trips = 4.0;
    constexpr bool allows(const storage_candidate& c) const {
        return keeps_all(c.option) || c.lifespan > round_trips * c.option.extra_time();
    }
};
static_assert(check_storage_policy<if_offloaded_for_long>());

template <class Policy> comparison_row plan(const problem& p, const std::string& name, const Policy& policy) {
    // The planner needs the policy, too, because only the policy can tell "must" from "may".
    const auto schedule = build_schedule(p, adaptive_builder<Policy>{policy});
    if (!schedule) return make_comparison_row(p, name, schedule.why());
    return make_comparison_row(make_report(p, name, *schedule));
}

problem with_memory(double limit) {
    // F, I and W take 1 on every stage, a transfer of a stash of 1 takes 0.75 each way, and both devices share one host
    // link.
    stage_costs costs{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}, {}};
    costs.transfer = transfer_times{duration{0.75}, duration{0.75}};
    auto p = to_problem(make_problem(shape, uniform_memory{costs}, memory_size{limit}));
    p.transfer.share_link(rank{0}, rank{1});
    p.name = "8 stages on 2 devices";
    return p;
}

} // namespace

int main() {
    for (const double limit : {12.0, 6.0, 3.0}) {
        const auto p = with_memory(limit);
        std::cout << "room for " << limit << " stashes per device; nothing can be faster than "
                  << bounds_of(p).best().value() << '\n';
        write_comparison(std::cout, p,
                         {plan(p, "never", offload::never{}),
                          plan(p, "longest lifespan first, half", offload::longest_lifespan_first{0.5}),
                          plan(p, "always", offload::always{}),
                          plan(p, "if offloaded for long", if_offloaded_for_long{}),
                          plan(p, "solver decides", offload::solver_decides{})});
        std::cout << '\n';
    }
}
