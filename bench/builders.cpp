// Cost of each builder against the size of the problem: unit passes on R ranks in the builder's placement, with half of
// the memory of 1F1B if the builder accepts that. `x simulate` is the ratio to simulating its schedule, in the same
// run.
#include <optpipe/schedule.hpp>

#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>

namespace {

using namespace optpipe;

template <class Placement> problem make(std::size_t ranks, std::size_t microbatches, Placement placement) {
    auto p =
        to_problem(make_problem(graph<dynamic, dynamic, Placement>{ranks, microbatches, placement}, unit_memory{}));
    p.change_stages([&](auto& c) { c.transfer = transfer_times{duration{0.75}, duration{0.75}}; });
    p.objective = objective_kind::span;
    return p;
}
void limit(problem& p, double stashes) {
    for (auto& each : p.memory_limit)
        each = memory_size{stashes};
}

/// The first of three problems to which the builder applies.
template <class Builder> problem problem_for(const Builder& build, std::size_t ranks, std::size_t microbatches) {
    const auto all = static_cast<double>(ranks);
    auto v = make(ranks, microbatches, placement::v{});
    limit(v, 2 * all);
    auto loop = make(ranks, microbatches, placement::loop<>{2});
    auto linear = make(ranks, microbatches, placement::linear{});
    limit(linear, all);
    // Whether it applies doesn't depend on the number of microbatches.
    for (const auto& candidate : std::array{linear, loop, v}) {
        auto small = candidate;
        small.graph = any_graph{ranks, 1, small.graph.placement()};
        if (build(small)) return candidate;
    }
    return linear;
}

template <class Builder> void bench_builder(benchmark::State& state, const Builder& build) {
    using clock = std::chrono::steady_clock;
    const auto seconds_since = [](clock::time_point start) {
        return std::chrono::duration<double>(clock::now() - start).count();
    };
    const auto p =
        problem_for(build, static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)));
    double own = 0.0;
    double reference = 0.0;
    std::size_t operations = 0;
    for (auto _ : state) {
        auto start = clock::now();
        const auto built = build(p);
        const auto seconds = seconds_since(start);
        if (!built) {
            state.SkipWithError(describe(built.why()).c_str());
            return;
        }
        auto roomy = p;
        limit(roomy, 1e9);
        start = clock::now();
        benchmark::DoNotOptimize(simulate(roomy, *built));
        reference += seconds_since(start);
        own += seconds;
        operations = built->operations.size();
        state.SetIterationTime(seconds);
    }
    state.counters["operations"] = static_cast<double>(operations);
    state.counters["x simulate"] = own / reference;
}

} // namespace

int main(int count, char** arguments) {
    for_each_builder([](const auto& build) {
        auto* b = benchmark::RegisterBenchmark(std::string{build.name}.c_str(),
                                               [=](benchmark::State& state) { bench_builder(state, build); });
        for (const auto& [ranks, microbatches] : {std::pair{4, 16}, {8, 32}, {16, 64}, {32, 128}, {64, 512}})
            b->Args({ranks, microbatches});
        b->ArgNames({"R", "M"})->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
    });
    benchmark::Initialize(&count, arguments);
    benchmark::RunSpecifiedBenchmarks();
}
