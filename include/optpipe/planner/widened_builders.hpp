#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/builders_part.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/planner/run_log.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/offload_placement.hpp"
#include "optpipe/schedule/offload_search.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Published schedules for more memory than there is, and transfers that make them fit after all.
class widened_builders {
public:
    widened_builders(search_board& board, std::size_t effort)
        : board_{board}, p_{board.to_solve()}, effort_{effort},
          may_travel_(p_.graph.stages() * p_.graph.microbatches()) {
        for (const stage s : p_.graph.all_stages())
            if (p_.costs[s].can_offload())
                std::fill_n(may_travel_.begin() + static_cast<std::ptrdiff_t>(s.position() * p_.graph.microbatches()),
                            p_.graph.microbatches(), static_cast<unsigned char>(1));
    }

    void run() {
        for_each_builder([&](const auto& build) {
            if (!finished() && !offloads(build.name) && !is_too_late(build.name)) consider(build);
        });
        std::stable_sort(candidates_.begin(), candidates_.end(),
                         [](const candidate& a, const candidate& b) { return a.undelayed < b.undelayed; });
        for (const auto& one : candidates_)
            search_factor(one);
    }

private:
    static constexpr std::string_view name = "widened";
    static constexpr double first_factor = 1.5;

    /// A builder, and what it makes of more memory before any stash travels.
    struct candidate {
        std::string_view builder;
        std::function<outcome<schedule>(const problem&)> build;
        schedule made;
        duration undelayed;
    };

    /// They are made for the memory that there is.
    static bool offloads(std::string_view builder) { return builder == adaptive.name || builder.starts_with("po"); }
    [[nodiscard]] bool finished() const { return spent_ >= effort_ || board_.done(); }

    /// Builders can't be interrupted.
    [[nodiscard]] bool is_too_late(std::string_view builder) const {
        const std::chrono::duration<double> expected{builder_cost(builder) * unit_seconds_};
        return expected > board_.limits().deadline - std::chrono::steady_clock::now();
    }

    template <class Builder> void consider(Builder build) {
        std::size_t cost = 5 * may_travel_.size();
        if constexpr (requires { build.effort; }) {
            build.effort = std::min(build.effort, effort_ / 8);
            cost += build.effort;
        }
        const auto counted = [this, build, cost](const problem& wider) {
            spent_ += cost;
            return build_schedule(wider, build);
        };
        const stopwatch watch;
        auto built = counted(with_memory(first_factor));
        unit_seconds_ = std::max(unit_seconds_, watch.seconds() / builder_cost(build.name));
        if (built) {
            const auto undelayed = objective_of(p_, *built);
            candidates_.push_back({build.name, counted, *std::move(built), undelayed});
        }
    }
    [[nodiscard]] problem with_memory(double factor) const {
        auto wider = p_;
        for (auto& limit : wider.memory_limit)
            limit = factor * limit;
        for (auto& c : wider.costs)
            c.transfer.reset();
        return wider;
    }

    /// How much more memory: from a few factors on to those beside the best.
    void search_factor(const candidate& one) {
        double best_factor = first_factor;
        auto best = value_of(one.made);
        const auto attempt = [&](double factor) {
            if (finished() || is_too_late(one.builder)) return;
            const auto built = one.build(with_memory(factor));
            // Many builders make the same of different memory.
            if (!built || built->operations == one.made.operations) return;
            const auto value = value_of(*built);
            if (!(value < best)) return;
            best = value;
            best_factor = factor;
        };
        attempt(1.25);
        attempt(2.0);
        if (best.is_unlimited()) attempt(1.1);
        constexpr double finest = 0.01;
        for (double step = 0.125; step > finest && !best.is_unlimited(); step *= 0.5) {
            const double middle = best_factor;
            attempt(middle + step);
            attempt(middle - step);
        }
    }
    /// What comes of a schedule when stashes travel; unlimited if it doesn't fit or isn't worth a look.
    duration value_of(const schedule& made) {
        if (finished() || !(objective_of(p_, made) < board_.target())) return duration::unlimited();
        offload_search<any_graph> search{p_, may_travel_};
        search.run(order_of(made), [this] { return board_.done(); });
        spent_ += search.spent();
        const auto value = search.value();
        if (!value.is_unlimited()) board_.offer(std::move(search).take(), name);
        return value;
    }

    search_board& board_;
    const problem& p_;
    std::size_t effort_;
    std::size_t spent_ = 0;
    /// What the cheapest builder takes, at most, as far as it is known.
    double unit_seconds_ = 0.0;
    cell_flags may_travel_;
    std::vector<candidate> candidates_{};
};

} // namespace detail

/// Published builders for problems with offloading that know nothing of it: each plans for more memory than there is,
/// up to twice as much, and stashes travel until its schedule fits. As a part of the search; the effort counts
/// operations that are looked at.
struct widened_part {
    static constexpr std::string_view name = "widened";
    static constexpr double share = 0.5;
    [[nodiscard]] static bool suits(const problem& p) {
        for (const stage s : p.graph.all_stages())
            if (p.costs[s].can_offload() && !p.memory_limit[p.rank_of(s)].is_unlimited()) return true;
        return false;
    }
    [[nodiscard]] static std::size_t first_effort(const problem& p) {
        return 200 * p.graph.stages() * p.graph.microbatches();
    }
    void operator()(search_board& board, const part_options& options) const {
        detail::widened_builders{board, options.effort}.run();
    }
};
static_assert(check_search_part<widened_part>());

} // namespace optpipe
