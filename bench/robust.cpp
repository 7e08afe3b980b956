// Cost and gain of planning for noise: each problem is planned without noise, then for a percentile of the step time,
// starting from that plan; both plans are run in random steps that weren't used in planning. A Markdown table on
// standard output.
//
//     bench_robust [--time SECONDS] [--threads N] [--seed N] [--noise SHARE] [--correlation SHARE] [--percentile P]
//                  [--steps N] [--only TEXT]... [FOLDER | PROBLEM.json]...
//
// By default the twelve problems below, 4 seconds and 2 threads for each plan, 10 % noise, the 95th percentile and 2000
// steps. Columns: the step time without noise of both plans, and the price; the percentile of both with noise, and the
// gain; the means.
#include "problem_files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/json.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/schedule/time/noise.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace optpipe;

struct settings {
    double seconds = 4.0;
    std::size_t threads = 2;
    std::uint64_t seed = 1;
    robust_options robust{};
    std::size_t steps = 2000;
    std::vector<std::string> only{};
    std::vector<std::string> places{};
};

/// Small and large problems, with and without transfers, chunks and shared links, and with storage options.
std::vector<std::string> usual_problems() {
    std::vector<std::string> paths;
    for (const auto* name :
         {"problems/offload-p2-m4-mem075-k050", "problems/offload-p3-m6-mem050-k100",
          "problems/offload-p4-m8-mem050-k050", "problems/offload-p4-m8-mem075-k100",
          "problems/offload-p6-m12-mem050-k050", "problems/offload-p8-m16-mem075-k050", "problems/skew-p4-m12-mem075",
          "problems/po-d4-v4-m16-k100-mem5", "problems/llama2-7b-4k-p4", "problems/gpt-10.5b-4k-p8",
          "storage/store-p4-m8-k150", "storage/store-llama2-7b-4k-p4"})
        paths.push_back(std::string{OPTPIPE_SOURCE_DIR "/tests/data/"} + name + ".json");
    return paths;
}

settings parse(int count, char** arguments) {
    settings s;
    s.places = bench::read_options(
        count, arguments, "robust",
        {
            {"--time", [&](const std::string& v) { s.seconds = std::stod(v); }},
            {"--threads", [&](const std::string& v) { s.threads = std::stoul(v); }},
            {"--seed", [&](const std::string& v) { s.seed = std::stoull(v); }},
            {"--noise", [&](const std::string& v) { s.robust.noise.spread = std::stod(v); }},
            {"--correlation", [&](const std::string& v) { s.robust.noise.rank_correlation = std::stod(v); }},
            {"--percentile", [&](const std::string& v) { s.robust.percentile = std::stod(v); }},
            {"--steps", [&](const std::string& v) { s.steps = std::stoul(v); }},
            {"--only", [&](const std::string& v) { s.only.push_back(v); }},
        });
    if (s.places.empty()) s.places = usual_problems();
    return s;
}

struct numbers {
    duration planned{};
    duration mean{};
    duration percentile{};
};

numbers numbers_of(const problem& p, const plan_result& made, const settings& s) {
    auto noise = s.robust.noise;
    noise.seed += 1'000'000; // not used by the planner
    const auto times = step_times(p, order_of(made.schedule), noise, s.steps);
    return {made.objective, mean_of(times), percentile_of(times, s.robust.percentile)};
}

std::string percent(double share) { return format_number(100.0 * share, 3) + " %"; }

/// The relative gain; empty if there is no plan.
std::vector<double> write_row(const std::string& path, const settings& s) {
    const auto p = read_problem(path);
    plan_options how;
    how.time_limit = std::chrono::duration<double>{s.seconds};
    how.threads = s.threads;
    how.seed = s.seed;
    const auto nominal = plan(p, how);
    if (!nominal) return {};
    how.robust = s.robust;
    how.start = nominal->schedule;
    const auto robust = plan(p, how);
    if (!robust) return {};
    const auto before = numbers_of(p, *nominal, s);
    const auto after = numbers_of(p, *robust, s);
    const double gain = 1.0 - after.percentile / before.percentile;
    std::cout << "| " << p.name;
    for (const auto& cell :
         {format_number(before.planned), format_number(after.planned), percent(after.planned / before.planned - 1.0),
          format_number(before.percentile), format_number(after.percentile), percent(gain), format_number(before.mean),
          format_number(after.mean)})
        std::cout << " | " << cell;
    std::cout << " |" << std::endl;
    return {gain};
}

} // namespace

int main(int count, char** arguments) {
    try {
        const auto s = parse(count, arguments);
        std::cout << "| problem | planned: nominal | robust | price | P" << format_number(s.robust.percentile)
                  << ": nominal | robust | gain | mean: nominal | robust |\n|---|---|---|---|---|---|---|---|---|\n";
        std::vector<double> gains;
        for (const auto& path : bench::problem_files(s.places, s.only))
            for (const double gain : write_row(path.string(), s))
                gains.push_back(gain);
        const auto below = std::count_if(gains.begin(), gains.end(), [](double g) { return g > 0.0; });
        const auto above = std::count_if(gains.begin(), gains.end(), [](double g) { return g < 0.0; });
        std::cout << "\nThe robust plan's percentile is below the nominal plan's on " << below << " of " << gains.size()
                  << " problems, above it on " << above << ".\n";
    } catch (const error& e) {
        std::cerr << "bench_robust: " << e.what() << '\n';
        return 2;
    }
    return 0;
}
