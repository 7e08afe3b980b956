// Quality of plans, as a Markdown table with a row for every problem file of a folder: the objective of `adaptive` and
// of the best of all methods, the proven bound, and the best result of the authors' own published schedulers.
//
//     bench_plans [FOLDER [REFERENCE.csv]]
//
// By default the problems of the tests. In the last columns, values above 1 are worse than the reference.
#include "problem_files.hpp"
#include <optpipe/io/json.hpp>
#include <optpipe/schedule.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

/// Results of the methods within the memory: the best of all, and the constructive planner alone.
struct planned {
    std::string method{};
    duration best = duration::unlimited();
    duration adaptive = duration::unlimited();
    double seconds = 0.0;
};
planned plan_with_all(const problem& p) {
    planned result;
    const auto start = std::chrono::steady_clock::now();
    for_each_builder([&](const auto& build) {
        const auto built = build_schedule(p, build);
        if (!built) return;
        const auto objective = objective_of(p, *built);
        if (build.name == adaptive.name) result.adaptive = objective;
        if (objective < result.best) {
            result.best = objective;
            result.method = build.name;
        }
    });
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

void print_row(const problem& p, const bench::known_objective* published) {
    const auto found = plan_with_all(p);
    if (found.method.empty()) {
        std::printf("| %s | none | | | | | | |\n", p.name.c_str());
        return;
    }
    const auto bound = std::min(bounds_of(p).best(), found.best);
    std::printf("| %s | %s | %s %s | %s | %.1f %% | %.2f |", p.name.c_str(), format_number(found.adaptive).c_str(),
                found.method.c_str(), format_number(found.best).c_str(), format_number(bound).c_str(),
                100.0 * ((found.best - bound) / found.best), found.seconds);
    if (published)
        std::printf(" %s %s | %.3f |\n", published->method.c_str(), format_number(published->published).c_str(),
                    found.best.value() / published->published);
    else
        std::printf(" | |\n");
}

} // namespace

int main(int count, char** arguments) try {
    const auto files = bench::problem_files({count > 1 ? arguments[1] : std::string{bench::test_problems}});
    const auto references =
        bench::read_known_objectives(count > 2 ? arguments[2] : std::string{bench::known_objectives});
    std::puts("| problem | adaptive | best method | bound | gap | planning [s] | published elsewhere | ratio |");
    std::puts("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (const auto& file : files) {
        const auto p = read_problem(file.string());
        const auto found = references.find(p.name);
        print_row(p, found == references.end() ? nullptr : &found->second);
        std::fflush(stdout);
    }
} catch (const std::exception& e) {
    std::cerr << "bench_plans: " << e.what() << '\n';
    return 2;
}
