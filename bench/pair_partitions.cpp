// Drawn layers of mixtures of experts, divided for pairs: the plan of `plan_partition` beside the plans of two
// divisions, each with the same time limit: the one that is most even one operation after the other, and the one that
// is most even in pairs. A ratio is the objective of the other plan over ours.
//
//     bench_pair_partitions [draws] [seconds of our plan]
#include "expert_layers.hpp"
#include <optpipe/planner.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace {

using namespace expert_layers;

/// The geometric mean and the extremes of some ratios.
class ratios {
public:
    void add(double ratio) {
        logarithms_ += std::log(ratio);
        ++count_;
        least_ = std::min(least_, ratio);
        most_ = std::max(most_, ratio);
    }
    friend std::ostream& operator<<(std::ostream& out, const ratios& r) {
        return out << std::exp(r.logarithms_ / static_cast<double>(r.count_)) << " (" << r.least_ << " to " << r.most_
                   << ")";
    }

private:
    double logarithms_ = 0.0;
    std::size_t count_ = 0;
    double least_ = 1e9;
    double most_ = 0.0;
};

constexpr std::size_t layers = 16;
constexpr std::size_t ranks = 4;
constexpr std::size_t microbatches = 16;

} // namespace

int main(int count, char** given) {
    const auto draws = count > 1 ? std::strtoull(given[1], nullptr, 10) : 6;
    const std::chrono::duration<double> limit{count > 2 ? std::strtod(given[2], nullptr) : 10.0};
    ratios load, successive, paired;
    for (std::uint64_t seed = 1; seed <= draws; ++seed) {
        const auto p = drawn(seed, layers, ranks, microbatches);
        const auto in_succession = most_even(p, false);
        const auto in_pairs = most_even(p, true);
        const plan_options how{.time_limit = 0.5 * limit};
        const auto ours = plan_partition(p, {.time_limit = limit}).value().planned.objective;
        const auto of = [&](const counts& each) {
            return plan_layout(p, 0, each, how).value().planned.objective / ours;
        };
        load.add(bottleneck(p, in_succession) / bottleneck(p, in_pairs));
        const auto with_succession = of(in_succession);
        const auto with_pairs = of(in_pairs);
        successive.add(with_succession);
        paired.add(with_pairs);
        std::cout << "seed " << seed << ": even in succession " << with_succession << ", even in pairs " << with_pairs
                  << std::endl;
    }
    std::cout << "longest load in pairs, of the division that is even in succession over the one in pairs: " << load
              << "\nplan of the division that is even in succession, over ours: " << successive
              << "\nplan of the division that is even in pairs, over ours: " << paired << std::endl;
}
