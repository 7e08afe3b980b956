// Cost of running a program. `issue`: the interpreter alone, on an executor that does nothing. `chain`: the least
// processor time, over all threads, of one operation on one rank. `planned`: a step on threads, with links as slow as
// planned and operations of 1 ms, against the same step simulated.
#include <optpipe/execution.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/testing/paced_model.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace {

using namespace optpipe;
using namespace std::chrono_literals;

// An executor that does nothing, so that only the interpreter is measured.

struct null_lane {
    struct marker {};
    template <execution::small_work Work> void launch(const task_label& label, const Work& work) {
        benchmark::DoNotOptimize(&label);
        benchmark::DoNotOptimize(&work);
    }
    void record(marker& m) { benchmark::DoNotOptimize(&m); }
    void wait(const marker& m) { benchmark::DoNotOptimize(&m); }
};
struct null_slab {
    std::vector<std::byte> bytes;
    mutable std::vector<std::byte> view = bytes;
    std::span<std::byte> memory() const { return view; }
};
struct null_executor {
    using lane_type = null_lane;
    rank place{};
    std::size_t count = 1;

    rank self() const { return place; }
    std::size_t ranks() const { return count; }
    null_lane open_lane(lane_kind, std::size_t) { return {}; }
    null_lane::marker make_marker() { return {}; }
    null_executor& copies() { return *this; }
    null_executor& transport() { return *this; }
    null_executor& memory() { return *this; }
    void finish() {}
    void cancel(std::string_view, std::string_view) {}
    void copy(null_lane&, execution::copy_direction, const task_label& what, execution::copy_pieces) {
        benchmark::DoNotOptimize(&what);
    }
    void exchange(null_lane&, execution::message_ends messages) { benchmark::DoNotOptimize(messages.data()); }
    null_slab device(std::size_t bytes) { return {std::vector<std::byte>(bytes)}; }
    null_slab host(std::size_t bytes) { return {std::vector<std::byte>(bytes)}; }
};

/// Operations that take no time.
struct idle_model {
    template <class Lane> void forward(Lane&, const execution::forward_task&) {}
    template <class Lane> void backward_input(Lane&, const execution::backward_task&) {}
    template <class Lane> void backward_weight(Lane&, const execution::weight_task&) {}
};

/// Every operation takes 1, a message 0.1, a transfer 0.75; there is memory for half of the stashes of 1F1B.
problem make(std::size_t ranks, std::size_t microbatches, bool offloads) {
    const duration one{1};
    const stage_costs costs{one, one, one, memory_size{1}, memory_size{0.5}, transfer_times{0.75 * one, 0.75 * one}};
    auto p = to_problem(make_problem(graph<dynamic, dynamic>{ranks, microbatches}, uniform_memory{costs}));
    p.p2p = hop_times<>{0.1 * one};
    p.transfer.engines = 2;
    if (offloads)
        for (auto& limit : p.memory_limit)
            limit = memory_size{0.5 * static_cast<double>(ranks)};
    return p;
}
per_rank<rank_program> programs_of(const problem& p, const schedule& s) {
    return *lower(p, s, {.bytes_per_unit = 4096, .message_bytes = 1024});
}

void issue(benchmark::State& state) {
    const auto p = make(8, static_cast<std::size_t>(state.range(0)), true);
    const auto programs = programs_of(p, *build_schedule(p, adaptive));
    const auto& program = programs[rank{3}];
    null_executor on{rank{3}, 8};
    idle_model model;
    runner<null_executor, idle_model> runs{program, on, model};
    for (auto _ : state)
        runs.issue();
    const auto each = static_cast<double>(program.instructions.size());
    state.counters["per instruction"] =
        benchmark::Counter{each, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

void chain(benchmark::State& state) {
    const auto p = make(1, static_cast<std::size_t>(state.range(0)), false);
    const auto programs = programs_of(p, *build_schedule(p, gpipe));
    threads::cluster cluster{1};
    idle_model model;
    runner<threads::executor, idle_model> runs{programs[rank{0}], cluster[rank{0}], model};
    for (auto _ : state)
        runs.step();
    const auto each = static_cast<double>(programs[rank{0}].instructions.size());
    state.counters["per operation"] =
        benchmark::Counter{each, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert};
}

void planned(benchmark::State& state) {
    const auto p = make(static_cast<std::size_t>(state.range(0)), 4 * static_cast<std::size_t>(state.range(0)),
                        state.range(1) != 0);
    const auto s = *build_schedule(p, adaptive);
    const auto programs = programs_of(p, s);
    threads::options how;
    how.copies = threads::planned_copies(p, 1ms);
    how.messages = threads::planned_messages(p, 1ms);
    how.record_times = true;
    threads::cluster cluster{p.graph.ranks(), how};
    // Waking up takes the system too long; a kernel on a device ends on time.
    std::vector<testing::paced_model<idle_model>> models(p.graph.ranks(), {idle_model{}, p, 1ms, 100us});
    const auto expected = objective_of(p, s).value();
    double best = duration::unlimited().value();
    for (auto _ : state) {
        const auto times = threads::run(
            programs, cluster, [&](rank r) -> auto& { return models[r.position()]; });
        const auto measured = objective_of(p, measured_schedule(p.graph, times, 1ms));
        best = std::min(best, measured.value());
        state.SetIterationTime(measured.value() * 1e-3);
    }
    state.counters["simulated [ms]"] = expected;
    state.counters["over, best [%]"] = 100.0 * (best / expected - 1.0);
}

} // namespace

BENCHMARK(issue)->Arg(32)->Unit(benchmark::kMicrosecond);
// The least of several runs: if other programs use the processors, threads spin for longer.
BENCHMARK(chain)
    ->Arg(1024)
    ->MeasureProcessCPUTime()
    ->Unit(benchmark::kMicrosecond)
    ->Repetitions(9)
    ->DisplayAggregatesOnly()
    ->ComputeStatistics("least",
                        [](const std::vector<double>& all) { return *std::min_element(all.begin(), all.end()); });
BENCHMARK(planned)
    ->ArgNames({"R", "offloads"})
    ->Args({2, 0})
    ->Args({4, 0})
    ->Args({4, 1})
    ->Args({8, 1})
    ->UseManualTime()
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
