// How good plans are: for every problem file of a folder, each builder's objective, the proven bound, and the best that
// published schedulers reach, as a Markdown table.
//
//     bench_plans [FOLDER [REFERENCE.csv]]
//
// By default the problems of the tests. In the last columns, what is above 1 is worse than the reference.
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

struct reference {
    std::string method;
    double objective = 0.0;
};

/// problem,busy,published_method,published,best_known
std::map<std::string, reference> read_references(const std::string& path) {
    std::map<std::string, reference> references;
    std::ifstream file{path};
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
        std::istringstream fields{line};
        std::string name, busy, method, objective;
        std::getline(fields, name, ',');
        std::getline(fields, busy, ',');
        std::getline(fields, method, ',');
        std::getline(fields, objective, ',');
        references[name] = {method, std::stod(objective)};
    }
    return references;
}

template <class Builder> std::string objective_text(const problem& p, const Builder& builder) {
    const auto built = build_schedule(p, builder);
    return built                                                  ? format_number(objective_of(p, *built))
           : built.why().reason == refusal_reason::does_not_apply ? ""
                                                                  : "memory";
}

void print_row(const problem& p, const reference* published) {
    const auto start = std::chrono::steady_clock::now();
    const auto planned = build_schedule(p, adaptive);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("| %s | %s | %s |", p.name.c_str(), objective_text(p, gpipe).c_str(),
                objective_text(p, one_forward_one_backward).c_str());
    if (!planned) {
        std::printf(" %s | | | | | |\n", describe(planned.why()).c_str());
        return;
    }
    const auto objective = objective_of(p, *planned);
    const auto bound = std::min(bounds_of(p).best(), objective);
    std::printf(" %s | %s | %.1f %% | %.2f |", format_number(objective).c_str(), format_number(bound).c_str(),
                100.0 * ((objective - bound) / objective), took.count());
    if (published)
        std::printf(" %s %s | %.3f |\n", published->method.c_str(), format_number(published->objective).c_str(),
                    objective.value() / published->objective);
    else
        std::printf(" | |\n");
}

} // namespace

int main(int count, char** arguments) try {
    const std::string folder = count > 1 ? arguments[1] : OPTPIPE_SOURCE_DIR "/tests/data/problems";
    const auto references =
        read_references(count > 2 ? arguments[2] : OPTPIPE_SOURCE_DIR "/tests/data/reference_objectives.csv");
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator{folder})
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::puts(
        "| problem | gpipe | 1f1b | adaptive | bound | gap | planning [s] | best published | adaptive / published |");
    std::puts("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
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
