// Example 14: training that plans again while it goes on.
//
// Four ranks start with 1F1B, which needs no costs. Every second step is measured. Rank 0 plans with the measured
// times, on a thread of its own, and all ranks switch to a better plan between the same two steps. After a while one
// rank becomes slower; this is detected, and planned for.

#include <optpipe/execution.hpp>
#include <optpipe/online.hpp>
#include <optpipe/pipeline.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/testing/executor_model.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <thread>

namespace {

using namespace optpipe;
using namespace optpipe::literals;
using namespace std::chrono_literals;

/// A model that only takes time; from `slow_from` on, rank 2 takes twice as long.
struct busy_stage {
    testing::tracing_model model{4};
    std::size_t step = 0;

    static constexpr std::size_t slow_from = 60;
    template <class Task> void spend(const Task& t, std::chrono::microseconds time) const {
        const bool slow = t.stage == stage{2} && step >= slow_from;
        std::this_thread::sleep_for(slow ? 2 * time : time);
    }
    template <class Lane> void forward(Lane& on, const execution::forward_task& t) {
        spend(t, 1000us);
        model.forward(on, t);
    }
    template <class Lane> void backward_input(Lane& on, const execution::backward_task& t) {
        spend(t, 1100us);
        model.backward_input(on, t);
    }
    template <class Lane> void backward_weight(Lane& on, const execution::weight_task& t) {
        spend(t, 900us);
        model.backward_weight(on, t);
    }
};

} // namespace

int main() {
    // The knowledge before the first step: a guess. There is memory for the stashes that 1F1B holds.
    const stage_costs guess{1_ms, 1_ms, 1_ms, memory_size{1}, memory_size{0.5}, transfer_times{1_ms, 1_ms}};
    auto p = to_problem(make_problem(graph<4, 8>{}, uniform_memory{guess}, memory_size{4}));
    p.time_unit = "ms";
    const auto first = build_schedule(p, one_forward_one_backward);
    if (!first) return std::cout << describe(first.why()) << '\n', 1;

    const online_setting setting{{.bytes_per_unit = 1024, .message_bytes = sizeof(double)}, 1ms};
    online_options options;
    options.planning.how.time_limit = 2s;
    threads::cluster cluster{4, {.record_times = true}};
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        busy_stage model;
        online_run run{p, *first, here, model, cluster.control(here.self()), setting, options};
        for (; model.step < 140; ++model.step)
            run.step();
        if (!run.controller()) return;
        for (const auto& event : run.controller()->log())
            std::cout << "step " << event.step << ", " << spelling(event.kind) << ": " << event.text << '\n';
    });
}
