// Cost of planning: each step on the same problem in the same run, per operation and as a multiple of `simulate`.
#include <optpipe/schedule.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace {

using namespace optpipe;

/// Unit passes on R ranks, a v placement, and half of the memory of a zero bubble, optionally with offloading.
problem make(std::size_t ranks, std::size_t microbatches, bool offloading) {
    auto p = to_problem(make_problem(graph<dynamic, dynamic, placement::v>{ranks, microbatches}, unit_memory{1.0}));
    for (auto& limit : p.memory_limit)
        limit = memory_size{static_cast<double>(ranks)};
    if (offloading) p.change_stages([&](auto& c) { c.transfer = transfer_times{duration{0.75}, duration{0.75}}; });
    return p;
}

template <class Work> double seconds_of(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Work> void measure_against_simulate(benchmark::State& state, Work work) {
    const auto p =
        make(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)), state.range(2) != 0);
    const auto built = *adaptive_builder<>{.effort = 1}(p);
    const auto timed = *simulate(p, built);
    double own = 0.0;
    double reference = 0.0;
    for (auto _ : state) {
        const double seconds = seconds_of([&] { work(p, built, timed); });
        own += seconds;
        reference += seconds_of([&] { benchmark::DoNotOptimize(simulate(p, built)); });
        state.SetIterationTime(seconds);
    }
    state.counters["operations"] = static_cast<double>(timed.operations.size());
    state.counters["ns/operation"] =
        1e9 * own / static_cast<double>(state.iterations()) / static_cast<double>(timed.operations.size());
    state.counters["x simulate"] = own / reference;
}

void sizes(benchmark::internal::Benchmark* b) {
    for (const int offloading : {0, 1})
        for (const auto& [ranks, microbatches] : {std::pair{4, 16}, {8, 32}, {16, 64}, {32, 128}, {32, 256}})
            b->Args({ranks, microbatches, offloading});
    b->ArgNames({"R", "M", "offload"})->UseManualTime()->Unit(benchmark::kMicrosecond);
}

void bench_simulate(benchmark::State& s) {
    measure_against_simulate(
        s, [](const problem& p, const order& o, const schedule&) { benchmark::DoNotOptimize(simulate(p, o)); });
}
void bench_validate(benchmark::State& s) {
    measure_against_simulate(
        s, [](const problem& p, const order&, const schedule& t) { benchmark::DoNotOptimize(is_valid(p, t)); });
}
void bench_measure(benchmark::State& s) {
    measure_against_simulate(
        s, [](const problem& p, const order&, const schedule& t) { benchmark::DoNotOptimize(measure(p, t)); });
}
void bench_bounds(benchmark::State& s) {
    measure_against_simulate(
        s, [](const problem& p, const order&, const schedule&) { benchmark::DoNotOptimize(bounds_of(p)); });
}
void bench_gpipe(benchmark::State& s) {
    measure_against_simulate(
        s, [](const problem& p, const order&, const schedule&) { benchmark::DoNotOptimize(gpipe(p)); });
}
void bench_dispatch(benchmark::State& s) {
    measure_against_simulate(s, [](const problem& p, const order&, const schedule&) {
        const auto facts = make_dispatch_facts(p, offload::solver_decides{});
        benchmark::DoNotOptimize(dispatcher<any_graph>{p, facts, {}, dispatch_hints<any_graph>{p.graph}}.run());
    });
}
void bench_adaptive(benchmark::State& s) {
    measure_against_simulate(
        s, [](const problem& p, const order&, const schedule&) { benchmark::DoNotOptimize(adaptive(p)); });
}

BENCHMARK(bench_simulate)->Apply(sizes);
BENCHMARK(bench_validate)->Apply(sizes);
BENCHMARK(bench_measure)->Apply(sizes);
BENCHMARK(bench_bounds)->Apply(sizes);
BENCHMARK(bench_gpipe)->Apply(sizes);
BENCHMARK(bench_dispatch)->Apply(sizes);
BENCHMARK(bench_adaptive)->Apply(sizes)->Iterations(1);

} // namespace

BENCHMARK_MAIN();
