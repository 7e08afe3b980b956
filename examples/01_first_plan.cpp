// Example 1: describe a pipeline, plan it, and look at the plan.
//
// A problem is made of three descriptions: the shape of the pipeline, the costs of one microbatch on each stage, and
// the device memory for activations. A builder turns a problem into an order of operations; a simulation gives the
// order its times.

#include <optpipe/optpipe.hpp>

#include <iostream>
#include <string>
#include <vector>

using namespace optpipe::literals;

int main() {
    // Four devices, eight microbatches, one stage per device in model order. The numbers are part of the type, so that
    // constant expressions can use them (example 3); graph<dynamic, dynamic>{4, 8} is the same at run time.
    using shape = optpipe::graph<4, 8>;

    // Costs computed for a transformer with the sizes of Llama-2-7B. Measured costs are better: example 13 plans with
    // some, and example 5 reads a problem from a file.
    constexpr optpipe::transformer<> model{.layers = {.total = 32},
                                           .hidden = 4096,
                                           .sequence = 4096,
                                           .compute_rate = 300.0,  // TFLOP/s
                                           .host_link_rate = 20.0, // GB/s, to offload activations to the host
                                           .rank_link_rate = 100.0};

    // 6 GB per device are left for activations. 1F1B holds four stashes on the first device:
    auto typed = optpipe::make_problem(shape{}, model, 6_gb);
    typed.name = "first plan";
    std::cout << "one microbatch stashes " << optpipe::format_number(typed.costs[optpipe::stage{0}].activation)
              << " GB on the first device, and there are 6 GB\n\n";

    // Output functions take problems with extents at run time, so the problem is converted.
    const auto problem = optpipe::to_problem(typed);

    // `adaptive` plans any problem: it finds a valid schedule whenever one microbatch at a time fits.
    const auto schedule = optpipe::build_schedule(problem, optpipe::adaptive);
    if (!schedule) { // an outcome, not an exception; it says which memory is missing on which device
        std::cerr << optpipe::describe(schedule.why()) << '\n';
        return 1;
    }

    // The bound is proven: no schedule of this problem is shorter.
    const auto bound = optpipe::bounds_of(problem).best();
    const auto report = optpipe::make_report(problem, "adaptive", *schedule, bound);

    // The results of the published schedules, for comparison.
    std::vector<optpipe::baseline> others;
    const auto compare = [&](const auto& builder) {
        const auto other = optpipe::build_schedule(problem, builder);
        const std::string name{builder.name};
        const auto row = other ? optpipe::make_comparison_row(optpipe::make_report(problem, name, *other))
                               : optpipe::make_comparison_row(problem, name, other.why());
        others.push_back(optpipe::make_baseline(row, report.measures.objective));
    };
    compare(optpipe::gpipe);
    compare(optpipe::one_forward_one_backward);

    optpipe::write_grid(std::cout, problem, report);
    std::cout << '\n' << optpipe::verdict(problem, report, others) << '\n';
}
