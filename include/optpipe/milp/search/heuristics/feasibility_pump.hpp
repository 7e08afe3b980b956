#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/search/tree/tree_worker.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace optpipe::milp::search {

/// The feasibility pump (Fischetti, Glover and Lodi, 2005). The pump alternates between rounding a point and finding
/// the nearest point of the relaxation. If a rounded point repeats, it is perturbed randomly. Only integer variables
/// rounded to a bound count in the distance.
class feasibility_pump {
public:
    feasibility_pump(const context& c, tree_worker& worker, random_numbers& random)
        : context_{c}, worker_{worker}, random_{random} {}

    /// Runs the pump. The pump ends once the relaxations have taken `most_iterations`.
    void run(const node& n, std::size_t most_iterations) {
        const auto last = worker_.lp().solver().iterations() + most_iterations;
        if (!worker_.enter(n)) return;
        double bound = n.bound;
        bool has_point = false;
        if (worker_.relax(bound, has_point) != tree_worker::verdict::open || !has_point) return;
        auto& lp = worker_.lp();
        auto target = rounded(lp.point());
        bool hit = false;
        for (std::size_t round = 0; round < most_rounds && !hit && !context_.limits->over(); ++round) {
            if (lp.solver().iterations() > last) break;
            aim(target);
            if (lp.solve(*context_.limits, infinity) != lp_status::optimal) break;
            auto next = rounded(lp.point());
            hit = fractional_columns(context_, lp.point()).empty();
            if (next == target && !hit) shake(next);
            target = std::move(next);
        }
        for (std::size_t j = 0; j < context_.instance->columns(); ++j)
            lp.solver().set_cost(j, context_.instance->cost[j]);
        if (hit) static_cast<void>(worker_.complete(target));
    }

private:
    static constexpr std::size_t most_rounds = 30;
    static constexpr std::size_t shaken_percent = 15;

    [[nodiscard]] std::vector<double> rounded(std::span<const double> point) const {
        std::vector<double> values(point.begin(), point.end());
        for (std::size_t j = 0; j < values.size(); ++j)
            values[j] = context_.instance->is_integer(j) ? std::round(values[j]) : 0.0;
        return values;
    }
    void aim(const std::vector<double>& target) {
        const auto& d = worker_.engine().bounds();
        for (std::size_t j = 0; j < target.size(); ++j) {
            double cost = 0.0;
            if (context_.instance->is_integer(j) && target[j] <= d.lower(j)) cost = 1.0;
            if (context_.instance->is_integer(j) && target[j] >= d.upper(j)) cost = -1.0;
            worker_.lp().solver().set_cost(j, cost);
        }
    }
    void shake(std::vector<double>& target) {
        const auto& d = worker_.engine().bounds();
        for (std::size_t j = 0; j < target.size(); ++j)
            if (context_.instance->is_integer(j) && std::isfinite(d.width(j)) && random_.chance(shaken_percent))
                target[j] = target[j] > d.lower(j) ? target[j] - 1.0 : std::min(target[j] + 1.0, d.upper(j));
    }

    const context& context_;
    tree_worker& worker_;
    random_numbers& random_;
};

} // namespace optpipe::milp::search
