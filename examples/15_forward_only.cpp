// Example 15: evaluation and inference.
//
// The stages that train a model can also evaluate it, with forwards alone, one microbatch after the other. A schedule
// without backwards is lowered like any other, to programs without stashes, and runs on every executor. Here the ranks
// are threads, and two stages on each rank add to the numbers that pass through.

#include <optpipe/execution.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/schedule/construct/forward_plan.hpp>

#include <cstddef>
#include <cstring>
#include <iostream>
#include <span>
#include <thread>
#include <vector>

namespace {

using namespace optpipe;
using namespace optpipe::literals;

constexpr std::size_t microbatches = 6;

/// A rank's stages. It declares that it only has forwards, so it needs no backwards.
struct evaluator {
    static constexpr bool forward_only = true;
    std::vector<double> results = std::vector<double>(microbatches);

    template <class Lane> void forward(Lane&, const execution::forward_task& t) {
        double value = t.microbatch.value();
        if (!t.input.empty()) std::memcpy(&value, t.input.data(), sizeof value);
        value += 10.0 * (t.stage.value() + 1);
        if (t.output.empty()) // the last stage
            results[t.microbatch.position()] = value;
        else
            std::memcpy(t.output.data(), &value, sizeof value);
    }
};
static_assert(execution::check_stage_model<evaluator, threads::lane>());

} // namespace

int main() {
    // Six stages on three ranks, back and forth. Costs other than those of the forwards don't matter.
    stage_costs costs{2_ms, 2_ms, 2_ms, memory_size{1}};
    auto p = to_problem(make_problem(graph<3, microbatches, placement::v>{}, uniform_memory{costs}));
    p.p2p = hop_times<>{0.5_ms};

    const auto plan = *plan_forwards(p);
    const auto programs = lower(p, plan.schedule, {.message_bytes = sizeof(double), .forward_only = true});
    if (!programs) return std::cout << describe(programs.why()) << '\n', 1;

    threads::cluster cluster{3};
    std::vector<evaluator> models(3);
    {
        std::vector<std::jthread> ranks;
        for (const auto& program : *programs)
            ranks.emplace_back([&] { run(program, cluster[program.self], models[program.self.position()]); });
    }
    const rank end = p.rank_of(stage{5});
    for (std::size_t m = 0; m < microbatches; ++m)
        if (const auto is = models[end.position()].results[m]; is != 210.0 + static_cast<double>(m))
            return std::cout << "microbatch " << m << " became " << is << '\n', 1;
    std::cout << plan.schedule.operations.size() << " forwards in " << plan.measures.objective.value()
              << " ms by the plan, " << plan.bound->value() << " ms at least, no byte of stashes, "
              << programs->begin()->message_bytes << " bytes of messages on rank 0\n";
}
