// Microbatches that differ from step to step: plans within 100 ms, from a cached plan of another draw of the same
// distribution, beside the plans that 10 s reach, in the same run. A ratio is the objective after 100 ms over that
// after 10 s; `carried` is the plan of the other draw before any search.
//
//     bench_step_plans [draws] [seconds of the long search]
#include <optpipe/core/random.hpp>
#include <optpipe/planner.hpp>
#include <optpipe/schedule.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace optpipe;
using seconds = std::chrono::duration<double>;

constexpr std::size_t ranks = 8;
constexpr std::size_t microbatches = 32;
constexpr std::size_t threads = 2;
constexpr seconds short_limit{0.1};

enum class lengths { lognormal, uniform, packed };

/// Memory per rank, in stashes of a microbatch of mean length on one stage.
struct setting {
    std::string_view name;
    bool is_v;
    double memory;
    lengths distribution;
};
constexpr setting settings[] = {
    {"linear, lognormal, tight", false, 6.0, lengths::lognormal},
    {"linear, lognormal, loose", false, 12.0, lengths::lognormal},
    {"linear, uniform, tight", false, 5.0, lengths::uniform},
    {"linear, packed, tight", false, 5.0, lengths::packed},
    {"linear, packed, loose", false, 9.0, lengths::packed},
    {"v, lognormal, tight", true, 12.0, lengths::lognormal},
    {"v, lognormal, loose", true, 24.0, lengths::lognormal},
    {"v, uniform, loose", true, 18.0, lengths::uniform},
    {"v, packed, tight", true, 9.0, lengths::packed},
    {"v, packed, loose", true, 16.0, lengths::packed},
};

double normal(random_numbers& random) {
    constexpr double two_pi = 6.283185307179586;
    return std::sqrt(-2.0 * std::log(1.0 - random.share())) * std::cos(two_pi * random.share());
}

/// The sum of the lengths of a microbatch, and of their squares: attention grows with the square of each document.
struct documents {
    double sum = 1.0;
    double squares = 1.0;
};
documents draw(random_numbers& random, lengths distribution) {
    constexpr double spread = 0.5;
    switch (distribution) {
    case lengths::uniform: {
        const double length = 0.4 + 1.2 * random.share();
        return {length, length * length};
    }
    case lengths::lognormal: {
        const double length = std::clamp(std::exp(spread * normal(random)), 0.2, 3.0);
        return {length, length * length};
    }
    case lengths::packed: break;
    }
    documents packed{1.0, 0.0};
    for (double left = 1.0; left > 0.0;) {
        const double length = std::min(left, std::max(0.02, 0.25 * std::exp(normal(random))));
        packed.squares += length * length;
        left -= length;
    }
    packed.squares *= 2.0; // about the mean of the squares
    return packed;
}

problem draw(random_numbers& random, const setting& with) {
    const stage_costs cost{duration{10.0}, duration{12.0}, duration{8.0}, memory_size{1.0}, memory_size{0.5}};
    const memory_size limit{with.memory};
    auto p = with.is_v
                 ? to_problem(make_problem(graph<dynamic, dynamic, placement::v>{ranks, microbatches},
                                           uniform_memory{cost}, limit))
                 : to_problem(make_problem(graph<dynamic, dynamic>{ranks, microbatches}, uniform_memory{cost}, limit));
    p.p2p = hop_times<>{duration{0.5}};
    constexpr double attention = 0.3; // of the forward of a microbatch of mean length
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < microbatches; ++m) {
        const auto [sum, squares] = draw(random, with.distribution);
        const double time = (1.0 - attention) * sum + attention * squares;
        factors.push_back({time, time, sum, sum, sum});
    }
    p.microbatches.set_factors(factors);
    return p;
}

plan_result planned(const problem& p, seconds limit, const std::string& cache) {
    return plan(p, {.time_limit = limit, .threads = threads, .cache = cache}).value();
}

struct comparison {
    double carried = 0.0;
    double ratio = 0.0;
    double taken = 0.0;
};

/// One draw: the short search from the cache, the long one without.
comparison compare(const problem& next, const schedule& other, seconds long_limit, const std::string& cache) {
    const auto carried = carry_over(next, other);
    const auto start = std::chrono::steady_clock::now();
    const auto quick = planned(next, short_limit, cache);
    const seconds taken = std::chrono::steady_clock::now() - start;
    const auto slow = planned(next, long_limit, "");
    const double before = carried ? objective_of(next, *carried) / slow.objective : 0.0;
    return {before, quick.objective / slow.objective, taken.count()};
}

void compare(const setting& with, std::size_t draws, seconds long_limit) {
    const auto cache = std::filesystem::temp_directory_path() / ("bench_step_plans." + std::string{with.name});
    std::filesystem::remove_all(cache);
    random_numbers random{1};
    const auto first = planned(draw(random, with), long_limit, cache.string());
    double worst = 0.0;
    double sum = 0.0;
    double carried = 0.0;
    double longest = 0.0;
    for (std::size_t i = 0; i < draws; ++i) {
        const auto found = compare(draw(random, with), first.schedule, long_limit, cache.string());
        worst = std::max(worst, found.ratio);
        sum += found.ratio;
        carried += found.carried;
        longest = std::max(longest, found.taken);
    }
    std::filesystem::remove_all(cache);
    const auto count = static_cast<double>(draws);
    std::cout << with.name << ": carried " << carried / count << ", after 100 ms " << sum / count << ", at most "
              << worst << "; returned after " << 1e3 * longest << " ms at most" << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    const std::size_t draws = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 5;
    const seconds long_limit{argc > 2 ? std::strtod(argv[2], nullptr) : 10.0};
    for (const auto& each : settings)
        compare(each, std::max<std::size_t>(1, draws), long_limit);
}
