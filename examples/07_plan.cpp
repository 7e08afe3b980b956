// Example 7: the best plan that can be found in a given time, with a proof of its quality.
//
// `plan` tries every published schedule, then searches: it changes the best schedule piece by piece, looks for
// repeating periods, branches on the order of operations, and solves the problem as a mixed-integer linear model, all
// at the same time. You can stop it at any time: it returns the best schedule and the best bound found until then.

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
    // Called for every better schedule and every better bound.
    options.progress = [](const optpipe::search_step& step) {
        std::cout << step.strategy << ": " << optpipe::format_number(step.objective) << ", no schedule takes less than "
                  << optpipe::format_number(step.bound) << '\n';
    };

    const auto plan = optpipe::plan(problem, options);
    // A failure is an outcome: it names the device, and the memory that it lacks. `plan` throws `input_error` if the
    // problem is invalid, for example if not even one microbatch fits.
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
