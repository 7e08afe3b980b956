// Results of each search strategy together with the published builders, over time: every problem is planned without
// strategies, with each one alone, and with all.
#pragma once

#include <optpipe/core/format.hpp>
#include <optpipe/planner.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using namespace optpipe;

struct each_alone_options {
    double seconds = 5.0;
    std::size_t threads = 2;
    std::uint64_t seed = 1;
};

/// Prints one line for each choice of strategies: the mean excess of its schedules over the best of all choices, after
/// a tenth, a third and all of the time; the number of schedules as good as that best; and the number of proofs.
class each_alone {
public:
    explicit each_alone(const each_alone_options& with) : with_{with} {
        std::vector<std::string> names;
        for (const auto& strategy : standard_strategies())
            names.emplace_back(strategy.name());
        choices_.push_back({"no strategy", names});
        for (const auto& name : names) {
            auto others = names;
            std::erase(others, name);
            choices_.push_back({name, std::move(others)});
        }
        choices_.push_back({"all", {}});
    }

    /// Problems that no choice can plan aren't counted.
    void add(const problem& p) {
        std::vector<std::optional<plan_result>> all;
        double best = std::numeric_limits<double>::infinity();
        for (const auto& choice : choices_) {
            plan_options options{.threads = with_.threads, .seed = with_.seed, .without = choice.without};
            options.time_limit = std::chrono::duration<double>{with_.seconds};
            auto planned = plan(p, options);
            all.emplace_back();
            if (!planned) continue;
            best = std::min(best, planned->objective.value());
            all.back() = *std::move(planned);
        }
        if (best == std::numeric_limits<double>::infinity()) return;
        ++problems_;
        for (std::size_t i = 0; i < choices_.size(); ++i)
            choices_[i].add(all[i], best, with_.seconds);
    }
    void print() const {
        std::printf("%zu problems, %g s, %zu threads. Objectives above the best that any line found, mean:\n\n",
                    problems_, with_.seconds, with_.threads);
        std::printf("| builders and |");
        for (const double share : shares)
            std::printf(" %s s |", format_number(share * with_.seconds, 2).c_str());
        std::puts(" as good as the best | proven |\n| --- | --- | --- | --- | --- | --- |");
        for (const auto& choice : choices_)
            choice.print(problems_);
    }

private:
    /// Shares of a plan's time at which the objective is read.
    static constexpr double shares[] = {0.1, 1.0 / 3.0, 1.0};
    /// The excess that counts for a problem without a schedule.
    static constexpr double nothing_yet = 1.0;

    struct result {
        std::string name;
        std::vector<std::string> without;
        double above[std::size(shares)]{};
        std::size_t best = 0, proven = 0;

        void add(const std::optional<plan_result>& planned, double best_of_all, double seconds) {
            for (std::size_t i = 0; i < std::size(shares); ++i)
                above[i] += planned ? excess(*planned, best_of_all, shares[i] * seconds) : nothing_yet;
            if (!planned) return;
            best += planned->objective.value() <= best_of_all * (1.0 + tolerance{}.relative);
            proven += planned->why == plan_end::optimal;
        }
        void print(std::size_t problems) const {
            std::printf("| %s |", name.c_str());
            for (const double sum : above)
                std::printf(" %.2f %% |", 100.0 * sum / static_cast<double>(std::max<std::size_t>(problems, 1)));
            std::printf(" %zu | %zu |\n", best, proven);
        }
    };

    /// At most `nothing_yet`, so that one start without enough memory doesn't decide the mean.
    static double excess(const plan_result& planned, double best, double seconds) {
        double objective = std::numeric_limits<double>::infinity();
        for (const auto& step : planned.history)
            if (step.seconds <= seconds && !step.objective.is_unlimited())
                objective = std::min(objective, step.objective.value());
        return std::min(objective / best - 1.0, nothing_yet);
    }

    each_alone_options with_;
    std::vector<result> choices_{};
    std::size_t problems_ = 0;
};

} // namespace bench
