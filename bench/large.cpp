// Large problems on one thread: the cost of the bound and of the builders, the result of modulo scheduling for many
// microbatches, and its cost for M = 1024, which is hardly more than for M = 64.
//
//     bench_large [RANKS [SECONDS]]
//
// Equal stages with unit passes, or unequal stages with the passes of a GPT on A100s, at 1, 0.75 and 0.5 times the
// memory of 1F1B, without and with offloading (a round trip takes half as long as the passes).
#include "large_problem.hpp"
#include <optpipe/planner/local_search/local_search.hpp>
#include <optpipe/planner/modulo/modulo_search.hpp>
#include <optpipe/schedule.hpp>

#include <sys/resource.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

using namespace optpipe;
/// Processor time of this process, because other programs may be running.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void run(const bench::large_setting& how, std::size_t ranks, std::size_t microbatches, double seconds) {
    const auto p = bench::make_large(how, ranks, microbatches);
    search_state state{
        p, {.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds{static_cast<int>(1e3 * seconds)}}};
    auto start = cpu_seconds();
    const auto bound = bounds_of(p).best();
    state.raise_bound(bound, "structure");
    const double bounding = cpu_seconds() - start;
    start = cpu_seconds();
    std::string best_method = "none";
    for_each_builder([&](const auto& build) {
        if (build.name == adaptive.name) return;
        const auto before = state.objective();
        if (const auto built = build(p); built && state.offer(*built, build.name) < before) best_method = build.name;
    });
    const double building = cpu_seconds() - start;
    const auto built = state.objective();
    start = cpu_seconds();
    modulo_search(state, {.effort = 2'000'000,
                          .improve = [&](search_state& reduced) { local_search(reduced, {.moves = 200'000}); }});
    const double planning = cpu_seconds() - start;
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto gap = 100.0 * relative_gap(state.objective(), bound);
    std::printf("| %s | %.2f | %s | %zu | %.1f (%.2f s) | %s %.1f (%.2f s) | %.1f | %.2f | %.2f %% | %s | %ld |\n",
                how.unit ? "unit" : "real", how.memory, how.offloads ? "yes" : "no", microbatches, bound.value(),
                bounding, best_method.c_str(), built.value(), building, state.objective().value(), planning, gap,
                state.incumbent() && is_valid(p, *state.incumbent()) ? "valid" : "none", used.ru_maxrss / 1024);
    std::fflush(stdout);
}

} // namespace

int main(int count, char** arguments) {
    const auto ranks = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 64UL;
    const double seconds = count > 2 ? std::strtod(arguments[2], nullptr) : 60.0;
    std::puts(
        "| costs | memory | offloading | M | bound | best builder | with the core | seconds | gap | | peak MiB |");
    std::puts("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (const auto& how : bench::large_settings())
        for (const std::size_t microbatches : {4 * ranks, 16 * ranks})
            run(how, ranks, microbatches, seconds);
}
