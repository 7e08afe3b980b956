// The value of each search strategy: every problem is planned with all of them, and with each one left out.
#pragma once

#include <optpipe/core/format.hpp>
#include <optpipe/planner.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bench {

using namespace optpipe;

/// The plans of one problem with some strategies, one for each seed.
struct seeded_plans {
    std::vector<double> objectives{};
    std::vector<double> bounds{};
    std::size_t proofs = 0;

    [[nodiscard]] double best() const { return *std::min_element(objectives.begin(), objectives.end()); }
    [[nodiscard]] double worst() const { return *std::max_element(objectives.begin(), objectives.end()); }
    [[nodiscard]] double mean() const { return mean_of(objectives); }
    [[nodiscard]] double mean_bound() const { return mean_of(bounds); }

private:
    static double mean_of(const std::vector<double>& values) {
        double sum = 0.0;
        for (const double v : values)
            sum += v;
        return sum / static_cast<double>(values.size());
    }
};

struct without_each_options {
    /// None: the deterministic second of work that `plan` does without a limit, independent of other load on the
    /// machine.
    std::optional<double> seconds{};
    std::size_t threads = 2;
    std::uint64_t first_seed = 1;
    std::size_t seeds = 3;
};

/// Prints one line for each strategy: the numbers of problems on which the plan got worse, or better, by more than all
/// seeds with all strategies differ; the mean and greatest loss; the loss of the bound; and lost proofs.
class without_each {
public:
    explicit without_each(const without_each_options& with) : with_{with} {
        for (const auto& each : standard_strategies())
            results_.push_back({std::string{each.name()}});
    }

    void add(const problem& p) {
        const auto full = plans(p, {});
        if (!full) return;
        ++problems_;
        proofs_ += full->proofs;
        for (auto& each : results_)
            if (const auto others = plans(p, each.name)) each.add(p.name, *full, *others);
    }
    void print() const {
        const auto effort = with_.seconds ? format_number(*with_.seconds) + " s" : "1 s of deterministic work";
        std::printf("\n%zu problems, %zu seeds, %s each; %zu of %zu plans proven with all strategies\n\n", problems_,
                    with_.seeds, effort.c_str(), proofs_, problems_ * with_.seeds);
        std::puts("| without | worse | better | mean loss | greatest loss | loss of the bound | proofs lost |");
        std::puts("| --- | --- | --- | --- | --- | --- | --- |");
        for (const auto& each : results_)
            each.print(problems_);
    }

private:
    struct result {
        std::string name;
        std::size_t worse = 0, better = 0;
        double loss = 0.0, bound_loss = 0.0, greatest_loss = 0.0;
        std::string greatest_of{};
        std::ptrdiff_t proofs_lost = 0;

        void add(const std::string& problem, const seeded_plans& full, const seeded_plans& others) {
            const double noise = tolerance{}.relative * full.worst();
            if (others.best() > full.worst() + noise) ++worse;
            if (others.worst() < full.best() - noise) ++better;
            const double lost = others.mean() / full.mean() - 1.0;
            loss += lost;
            if (lost > greatest_loss) {
                greatest_loss = lost;
                greatest_of = problem;
            }
            bound_loss += 1.0 - others.mean_bound() / full.mean_bound();
            proofs_lost += static_cast<std::ptrdiff_t>(full.proofs) - static_cast<std::ptrdiff_t>(others.proofs);
        }
        void print(std::size_t problems) const {
            const auto share = [&](double sum) { return 100.0 * sum / static_cast<double>(problems); };
            std::printf("| %s | %zu | %zu | %.3f %% | %.2f %%%s | %.3f %% | %td |\n", name.c_str(), worse, better,
                        share(loss), 100.0 * greatest_loss,
                        greatest_of.empty() ? "" : (" (" + greatest_of + ")").c_str(), share(bound_loss), proofs_lost);
        }
    };

    /// Empty if there is no schedule.
    [[nodiscard]] std::optional<seeded_plans> plans(const problem& p, const std::string& left_out) const {
        seeded_plans found;
        for (std::size_t i = 0; i < with_.seeds; ++i) {
            plan_options options{.threads = with_.threads, .seed = with_.first_seed + i};
            if (with_.seconds) options.time_limit = std::chrono::duration<double>{*with_.seconds};
            if (!left_out.empty()) options.without.push_back(left_out);
            const auto planned = plan(p, options);
            if (!planned) return std::nullopt;
            found.objectives.push_back(planned->objective.value());
            found.bounds.push_back(planned->bound.value());
            found.proofs += planned->why == plan_end::optimal;
        }
        return found;
    }

    without_each_options with_;
    std::vector<result> results_{};
    std::size_t problems_ = 0;
    std::size_t proofs_ = 0;
};

} // namespace bench
