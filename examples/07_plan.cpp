// Example 7: the best plan that can be found in the time you have, with a proof of how good it is.
//
// `plan` tries every published schedule, then searches: it changes the best schedule piece by piece, looks for
// repeating periods, branches on the order of operations, and solves the problem as a mixed-integer linear model, all
// side by side. Stop it whenever you like: it keeps the best schedule and the best bound.

#include <optpipe/optpipe.hpp>
#include <optpipe/planner.hpp>

#include <chrono>
#include <iostream>

using namespace optpipe::literals;
using namespace std::chrono_literals;

int main() {
    // Four devices whose memory holds two of the four stashes that 1F1B needs. A stash can be sent to the host.
    constexpr optpipe::graph<4, 8> shape;
    constexpr optpipe::transformer<> model{
        .layers = {.total = 32}, .hidden = 4096, .sequence = 4096, .compute_rate = 300.0, .host_link_rate = 20.0};
    const auto problem = optpipe::to_problem(make_problem(shape, model, 30_gb, optpipe::offload::solver_decides{}));

    optpipe::plan_options options{.time_limit = 3s};
    // Called at every better schedule and every better bound.
    options.progress = [](const optpipe::search_step& step) {
        std::cout << step.strategy << ": " << optpipe::format_number(step.objective) << ", no schedule takes less than "
                  << optpipe::format_number(step.bound) << '\n';
    };

    const auto plan = optpipe::plan(problem, options);
    // An outcome: which device lacks how much memory. Where not even one microbatch fits, `plan` throws an input_error,
    // as it does for all that `validate` objects to.
    if (!plan) {
        std::cerr << optpipe::describe(plan.why()) << '\n';
        return 1;
    }
    optpipe::write_grid(std::cout, problem, optpipe::report_of(problem, *plan));
    std::cout << "\nfound by " << plan->method << ", gap " << optpipe::format_number(100.0 * plan->gap, 3) << " %, "
              << optpipe::text_of(plan->why) << '\n';
    if (const auto* published = optpipe::best_published(*plan))
        std::cout << "the best published schedule, " << published->method << ", takes "
                  << optpipe::format_number(*published->objective / plan->objective, 3) << " times as long\n";
    return plan->bound <= plan->objective ? 0 : 1;
}
