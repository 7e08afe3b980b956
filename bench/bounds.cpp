// Quality of proven bounds, as a Markdown table with a row for every problem file of a folder: the best objective of
// all builders or the reference, whichever is better; the bounds that cost next to nothing; all bounds; the best of
// them and its cost. Without builders (a third argument) only references are compared.
//
//     bench_bounds [FOLDER [REFERENCE.csv [none]]]
#include "problem_files.hpp"
#include <optpipe/io/json.hpp>
#include <optpipe/planner/bounds/storage_mix.hpp>
#include <optpipe/schedule.hpp>
#include <optpipe/schedule/bounds/lone_rank.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

template <class Work> double cpu_seconds(Work work) {
    const auto start = std::clock();
    work();
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// Whether the bounds prove the known objective.
bool print_row(const problem& p, double known, bool with_builders) {
    if (with_builders)
        for_each_builder([&](const auto& build) {
            if (const auto built = build_schedule(p, build)) known = std::min(known, objective_of(p, *built).value());
        });
    structural_bounds cheap;
    structural_bounds strong;
    const double cheap_seconds = cpu_seconds([&] { cheap = bounds_of(p); });
    duration mixed{};
    duration best{};
    const double strong_seconds = cpu_seconds([&] {
        strong = strong_bounds_of(p);
        mixed = is_plain(p) ? storage_mix_bound(p, strong.best()) : strong.best();
        best = is_plain(p) ? lone_rank_bound(p, mixed) : mixed;
    });
    const auto* name = best > mixed ? "lone rank" : mixed > strong.best() ? "storage mix" : best_bound(strong).name;
    const auto gap = [&](duration bound) { return 100.0 * (1.0 - bound.value() / known); };
    std::printf("| %s | %s | %s %s | %.2f %% | %.3f | %s %s | %.2f %% | %.3f |\n", p.name.c_str(),
                format_number(known).c_str(), best_bound(cheap).name, format_number(cheap.best()).c_str(),
                gap(cheap.best()), cheap_seconds, name, format_number(best).c_str(), gap(best), strong_seconds);
    std::fflush(stdout);
    return tolerance{}.at(known) >= known - best.value();
}

} // namespace

int main(int count, char** arguments) try {
    const auto files = bench::problem_files({count > 1 ? arguments[1] : std::string{bench::test_problems}});
    const auto references =
        bench::read_known_objectives(count > 2 ? arguments[2] : std::string{bench::known_objectives});
    std::puts("| problem | best known | bounds_of | gap | CPU s | strong_bounds_of | gap | CPU s |");
    std::puts("| --- | --- | --- | --- | --- | --- | --- | --- |");
    int proven = 0;
    for (const auto& file : files) {
        const auto p = read_problem(file.string());
        const auto found = references.find(p.name);
        double known = duration::unlimited().value();
        if (found != references.end()) known = std::min(found->second.published, found->second.best.value_or(known));
        proven += print_row(p, known, count <= 3) ? 1 : 0;
    }
    std::printf("\n%d of %zu proven\n", proven, files.size());
} catch (const std::exception& e) {
    std::cerr << "bench_bounds: " << e.what() << '\n';
    return 2;
}
