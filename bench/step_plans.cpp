// Microbatches that differ from step to step: plans within 100 ms, from a cached plan of another draw of the same
// distribution, beside the plans that 10 s reach, in the same run. All pairs of draws are compared. A ratio is the
// objective after 100 ms over that after 10 s; `carried` is the plan of the other draw before any search.
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
#include <ctime>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
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
    {"linear, uniform, loose", false, 10.0, lengths::uniform},
    {"linear, packed, tight", false, 5.0, lengths::packed},
    {"linear, packed, loose", false, 9.0, lengths::packed},
    {"v, lognormal, tight", true, 12.0, lengths::lognormal},
    {"v, lognormal, loose", true, 24.0, lengths::lognormal},
    {"v, uniform, tight", true, 10.0, lengths::uniform},
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
    // Shares of a microbatch of mean length; attention takes a larger part of I than of F.
    constexpr double attention = 0.3;
    constexpr double attention_backward = 0.4;
    std::vector<cost_factors> factors;
    for (std::size_t m = 0; m < microbatches; ++m) {
        const auto [sum, squares] = draw(random, with.distribution);
        const auto time = [&](double share) { return (1.0 - share) * sum + share * squares; };
        factors.push_back({time(attention), time(attention_backward), sum, sum, sum});
    }
    p.microbatches.set_factors(factors);
    return p;
}

plan_result planned(const problem& p, seconds limit, const std::string& cache) {
    return plan(p, {.time_limit = limit, .threads = threads, .cache = cache}).value();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// A draw and its plan by the long search, without a cache.
struct known_draw {
    problem p;
    plan_result plan;
};

/// Sums over comparisons, and extremes.
struct comparisons {
    std::size_t count = 0;
    std::size_t above = 0; ///< short searches that are more than 3 % behind
    double carried = 0.0;
    double ratio = 0.0;
    double worst = 0.0;
    double processor = 0.0;
    double longest = 0.0;

    /// The short search from a cache that has the plan of another draw only.
    void add(const known_draw& from, const known_draw& to, const std::string& cache) {
        std::filesystem::remove_all(cache);
        constexpr double budget = 10.0;
        plan_cache{cache}.store(make_cache_entry(from.p, from.plan.schedule, from.plan.objective, from.plan.bound,
                                                 budget, from.plan.method));
        const auto busy = processor_seconds();
        const auto start = std::chrono::steady_clock::now();
        const double reached = planned(to.p, short_limit, cache).objective / to.plan.objective;
        longest = std::max(longest, seconds{std::chrono::steady_clock::now() - start}.count());
        processor += processor_seconds() - busy;
        if (const auto start_from = carry_over(to.p, from.plan.schedule))
            carried += objective_of(to.p, *start_from) / to.plan.objective;
        constexpr double most = 1.03;
        above += reached > most ? 1 : 0;
        ratio += reached;
        worst = std::max(worst, reached);
        ++count;
    }
};

void compare(const setting& with, std::size_t draws, seconds long_limit) {
    const auto cache = std::filesystem::temp_directory_path() / ("bench_step_plans." + std::string{with.name});
    random_numbers random{1};
    std::vector<known_draw> all;
    const auto busy = processor_seconds();
    for (std::size_t i = 0; i < draws; ++i) {
        auto p = draw(random, with);
        auto plan = planned(p, long_limit, "");
        all.push_back({std::move(p), std::move(plan)});
    }
    const double long_processor = (processor_seconds() - busy) / static_cast<double>(draws);
    comparisons found;
    for (std::size_t i = 0; i < draws; ++i)
        for (std::size_t k = 0; k < draws; ++k)
            if (i != k) found.add(all[i], all[k], cache.string());
    std::filesystem::remove_all(cache);
    const auto count = static_cast<double>(found.count);
    std::cout << with.name << ": carried " << found.carried / count << ", after 100 ms " << found.ratio / count
              << ", at most " << found.worst << ", " << found.above << " of " << found.count
              << " above 1.03; processor time " << 1e3 * found.processor / count << " ms and " << long_processor
              << " s; returned after " << 1e3 * found.longest << " ms at most" << std::endl;
}

} // namespace

int main(int argc, char** argv) {
    const std::size_t draws = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 3;
    const seconds long_limit{argc > 2 ? std::strtod(argv[2], nullptr) : 10.0};
    for (const auto& each : settings)
        compare(each, std::max<std::size_t>(2, draws), long_limit);
}
