// Cost of a move of the local search: drawing, checking, propagating and rolling back an edit, compared with placing
// the same order by `simulate` in the same run. "x simulate" is the number of moves in the time of one simulation.
#include <optpipe/planner/local_search/local_search.hpp>
#include <optpipe/schedule.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace {

using namespace optpipe;

/// R ranks in a line, three quarters of the memory of 1F1B, optionally with offloading over own links.
problem make(std::size_t ranks, std::size_t microbatches, bool offloading) {
    stage_costs costs;
    costs.forward = duration{18.5};
    costs.backward_input = duration{18.1};
    costs.backward_weight = duration{9.3};
    costs.activation = memory_size{1.0};
    costs.weight_stash = memory_size{0.5};
    if (offloading) costs.transfer = transfer_times{duration{22.95}, duration{22.95}};
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks, costs)};
    p.p2p = hop_times<>{duration{0.6}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{0.75 * static_cast<double>(ranks)};
    return p;
}

template <class Work> double seconds_of(Work work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void bench_local_search(benchmark::State& state) {
    constexpr std::size_t moves = 20'000;
    constexpr std::size_t simulations = 20;
    const auto p =
        make(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)), state.range(2) != 0);
    const auto built = *adaptive_builder<>{.effort = 1}(p);
    double own = 0.0;
    double reference = 0.0;
    std::uint64_t seed = 0;
    for (auto _ : state) {
        search_state shared{p};
        shared.offer(built, "adaptive");
        const double seconds = seconds_of([&] { local_search(shared, {.seed = ++seed, .moves = moves}); });
        own += seconds / static_cast<double>(moves);
        reference += seconds_of([&] {
                         for (std::size_t i = 0; i < simulations; ++i)
                             benchmark::DoNotOptimize(simulate(p, built));
                     }) /
                     static_cast<double>(simulations);
        state.SetIterationTime(seconds);
    }
    state.counters["operations"] = static_cast<double>(built.operations.size());
    state.counters["moves/s"] = static_cast<double>(state.iterations()) / own;
    state.counters["x simulate"] = reference / own;
}

BENCHMARK(bench_local_search)->Apply([](benchmark::internal::Benchmark* b) {
    for (const int offloading : {0, 1})
        for (const auto& [ranks, microbatches] : {std::pair{4, 8}, {8, 16}, {8, 32}, {16, 64}, {32, 128}})
            b->Args({ranks, microbatches, offloading});
    b->ArgNames({"R", "M", "offload"})->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(3);
});

} // namespace

BENCHMARK_MAIN();
