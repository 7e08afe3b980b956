#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "plan_json.hpp"
#include "plan_output.hpp"
#include "replan.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/deadline.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/core/stop_check.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/planner/bounds/storage_mix.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/rules/transfer_resources.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace program {
namespace {

/// What one change of the problem brings; without what there was no time for.
struct gain {
    variant change;
    /// The quick bound with the change.
    std::optional<optpipe::duration> bound{};
    /// The step with the change, if it shrinks as the quick bound does.
    std::optional<optpipe::duration> estimate{};
    std::optional<replanned> plan{};
};

/// The problem with more of one resource at a time.
class enlargements {
public:
    enlargements(const optpipe::problem& p, const whatif_options& options) : p_{&p}, by_{options} {
        add_memory();
        add_devices();
        if (has_transfers(p)) add_links();
        if (has_hops(p))
            add("messages: " + times(by_.bandwidth), [&](optpipe::problem& q) {
                std::vector<optpipe::duration> faster;
                for (const auto a : q.graph.all_ranks())
                    for (const auto b : q.graph.all_ranks())
                        faster.push_back((1.0 / by_.bandwidth) * q.p2p(a, b));
                q.p2p = optpipe::hop_times<>{q.graph.ranks(), faster};
            });
    }
    [[nodiscard]] std::vector<variant> take() { return std::move(found_); }

private:
    using change = std::function<void(optpipe::problem&)>;
    using choice = std::function<bool(optpipe::rank)>;

    void add(std::string what, const change& made) {
        found_.push_back({std::move(what), *p_});
        made(found_.back().changed);
    }
    [[nodiscard]] static std::string times(double factor) {
        return optpipe::format_number(factor, 3) + " times as fast";
    }

    void add_memory() {
        const auto unit = p_->memory_unit.empty() ? "" : " " + optpipe::printable(p_->memory_unit, 20);
        const auto more = optpipe::format_number(by_.memory) + unit + " more ";
        const auto raise = [&](auto limits, const choice& chosen) {
            return [&, limits, chosen](optpipe::problem& q) {
                for (const auto r : q.graph.all_ranks())
                    if (chosen(r)) (q.*limits)[r] += optpipe::memory_size{by_.memory};
            };
        };
        const auto all = [](optpipe::rank) { return true; };
        if (is_limited(p_->memory_limit)) add(more + "on every rank", raise(&optpipe::problem::memory_limit, all));
        for (const auto r : p_->graph.all_ranks())
            if (p_->graph.ranks() > 1 && !p_->memory_limit[r].is_unlimited())
                add(more + "on rank " + std::to_string(r.value()),
                    raise(&optpipe::problem::memory_limit, [r](optpipe::rank other) { return other == r; }));
        if (is_limited(p_->host_memory_limit) && has_transfers(*p_))
            add(more + "on every host", raise(&optpipe::problem::host_memory_limit, all));
    }

    void add_devices() {
        for (const auto r : p_->graph.all_ranks())
            add("rank " + std::to_string(r.value()) + ": " + times(by_.speed), [&, r](optpipe::problem& q) {
                for (const auto s : q.graph.all_stages())
                    if (q.rank_of(s) == r) compute_faster(q, s);
                q.overlaps = {};
                for (auto pair : p_->overlaps) {
                    if (q.rank_of(pair.forward) == r) pair.duration = (1.0 / by_.speed) * pair.duration;
                    q.overlaps.add(pair);
                }
            });
    }
    void compute_faster(optpipe::problem& q, optpipe::stage s) const {
        const double share = 1.0 / by_.speed;
        auto costs = q.costs[s];
        costs.forward = share * costs.forward;
        costs.backward_input = share * costs.backward_input;
        costs.backward_weight = share * costs.backward_weight;
        auto options = q.storage[s];
        for (auto& each : options) {
            each.recompute = share * each.recompute;
            each.backward_extra = share * each.backward_extra;
        }
        q.set_stage(s, costs, options);
    }

    void add_links() {
        add_transfers("transfers of all ranks: ", [](optpipe::rank) { return true; });
        for (const auto& ranks : ranks_by_link(p_->transfer)) {
            if (ranks.empty() || ranks.size() == p_->graph.ranks()) continue;
            std::string names;
            for (const auto r : ranks)
                names += (names.empty() ? "" : ", ") + std::to_string(r.value());
            add_transfers("transfers of rank" + std::string{ranks.size() > 1 ? "s " : " "} + names + ": ",
                          [ranks](optpipe::rank r) { return std::find(ranks.begin(), ranks.end(), r) != ranks.end(); });
        }
    }
    void add_transfers(const std::string& which, const choice& chosen) {
        add(which + times(by_.bandwidth), [&](optpipe::problem& q) {
            for (const auto s : q.graph.all_stages())
                for (auto& option : q.storage[s])
                    if (option.transfer && chosen(q.rank_of(s)))
                        option.transfer = optpipe::transfer_times{(1.0 / by_.bandwidth) * option.transfer->offload,
                                                                  (1.0 / by_.bandwidth) * option.transfer->reload};
        });
    }

    const optpipe::problem* p_;
    whatif_options by_;
    std::vector<variant> found_{};
};

/// The bounds that take at most tenths of a second each; empty if they aren't done before `late`.
std::optional<optpipe::duration> quick_bound(const optpipe::problem& p, const optpipe::stop_condition& late) {
    auto bound = optpipe::bounds_of(p, late).best();
    if (optpipe::is_plain(p)) bound = optpipe::storage_mix_bound(p, bound, late);
    if (late.holds()) return std::nullopt;
    return bound;
}

/// The changes with their estimates, the best first, and those without an estimate last. Together, estimates take at
/// most a second, or as long as planning one change or all of them again if that is more.
std::vector<gain> estimate(const optpipe::problem& p, optpipe::duration now, const whatif_options& options,
                           const interruption& interrupted) {
    constexpr double shortest = 1.0;
    const auto seconds = std::max(shortest, options.time_limit * std::max(1.0, static_cast<double>(options.most)));
    const auto until =
        optpipe::deadline_after(std::chrono::steady_clock::now(), std::chrono::duration<double>{seconds});
    const optpipe::stop_when late{
        [&] { return interrupted.is_requested() || std::chrono::steady_clock::now() >= until; }};
    const auto before = quick_bound(p, late);
    std::vector<gain> gains;
    for (auto& change : enlargements{p, options}.take()) {
        gains.push_back({std::move(change)});
        auto& own = gains.back();
        if (!before || *before <= optpipe::duration{}) continue;
        own.bound = quick_bound(own.change.changed, late);
        // More of a resource never makes the step longer; a bound may still rise by rounding.
        if (own.bound) own.bound = std::min(*own.bound, *before);
        if (own.bound) own.estimate = (*own.bound / *before) * now;
    }
    constexpr auto last = optpipe::duration::unlimited();
    std::stable_sort(gains.begin(), gains.end(), [&](const gain& a, const gain& b) {
        return a.estimate.value_or(last) < b.estimate.value_or(last);
    });
    return gains;
}

/// Plans the best changes again, and before them the problem as it is.
std::vector<replanned> plan_best(std::vector<gain>& gains, const optpipe::problem& p, const optpipe::schedule& start,
                                 const whatif_options& options, const interruption& interrupted) {
    std::vector<variant> tries{{"as it is", p}};
    for (std::size_t i = 0; i < std::min(options.most, gains.size()); ++i)
        tries.push_back(gains[i].change);
    auto plans = plan_again(tries, start, {options.time_limit, options.threads, options.json}, interrupted);
    for (const auto& plan : plans)
        for (auto& own : gains)
            if (own.change.what == plan.what) own.plan = plan;
    return plans;
}

std::string change_of(optpipe::duration after, optpipe::duration before) {
    return optpipe::format_number(100.0 * (after / before - 1.0), 3) + " %";
}

void print_gains(std::ostream& out, const std::vector<gain>& gains, optpipe::duration now, optpipe::duration again) {
    constexpr double rounding = 1e-6;
    std::vector<optpipe::table_row> lines{{"with", "estimate", "change", "planned again", "change"}};
    std::size_t without = 0;
    std::size_t unknown = 0;
    for (const auto& own : gains) {
        const bool gains_anything = own.estimate && *own.estimate < (1.0 - rounding) * now;
        if (!gains_anything && !own.plan) {
            ++(own.estimate ? without : unknown);
            continue;
        }
        optpipe::table_row line{own.change.what, "-", "-", "-", "-"};
        if (own.estimate) {
            line[1] = optpipe::format_number(*own.estimate);
            line[2] = change_of(*own.estimate, now);
        }
        if (own.plan && !own.plan->has_plan()) line[3] = "no plan: " + optpipe::printable(own.plan->reason, 400);
        if (own.plan && own.plan->has_plan()) {
            line[3] = optpipe::format_number(own.plan->objective);
            line[4] = change_of(own.plan->objective, again);
        }
        lines.push_back(std::move(line));
    }
    optpipe::write_table(out, lines);
    if (without > 0)
        out << without << (without == 1 ? " other change leaves" : " other changes leave")
            << " the bound as it is, and " << (without == 1 ? "wasn't" : "weren't") << " planned again\n";
    if (unknown > 0)
        out << "there was no time to estimate " << unknown << (unknown == 1 ? " other change\n" : " other changes\n");
}

nlohmann::ordered_json number_or_null(const std::optional<optpipe::duration>& value) {
    return value ? nlohmann::ordered_json(value->value()) : nlohmann::ordered_json(nullptr);
}

std::optional<optpipe::duration> planned_objective(const std::optional<replanned>& plan) {
    if (!plan || !plan->has_plan()) return std::nullopt;
    return plan->objective;
}

/// The result of planning the problem as it is, or why there is none.
std::string text_of(const std::optional<replanned>& again, const std::string& unit) {
    if (!again) return "stopped before";
    return again->has_plan() ? optpipe::format_number(again->objective) + unit
                             : "no plan: " + optpipe::printable(again->reason, 400);
}

nlohmann::ordered_json to_json(const std::vector<gain>& gains) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& own : gains)
        list.push_back({{"with", own.change.what},
                        {"bound", number_or_null(own.bound)},
                        {"estimate", number_or_null(own.estimate)},
                        {"objective", number_or_null(planned_objective(own.plan))}});
    return list;
}

} // namespace

int whatif(const whatif_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}}, {}, options.json};
    const auto p = read_problem(options.problem);
    const auto file = require_valid(p, read_schedule_for(p, options.schedule), options.schedule);
    const auto now = optpipe::objective_of(p, file.schedule);
    const interruption interrupted{!options.json};
    auto gains = estimate(p, now, options, interrupted);
    const auto plans = plan_best(gains, p, file.schedule, options, interrupted);
    const auto again = plans.empty() ? std::nullopt : std::optional{plans.front()};
    const auto objective = planned_objective(again);
    const int status = interrupted.is_requested() ? stopped_by_signal : again && !objective ? no_schedule : success;
    if (options.json) {
        std::cout << json_text(nlohmann::ordered_json{{"format", "optpipe.whatif-result/1"},
                                                      {"problem", p.name},
                                                      {"time_unit", p.time_unit},
                                                      {"objective", now.value()},
                                                      {"planned_again", number_or_null(objective)},
                                                      {"changes", to_json(gains)}});
        return status;
    }
    auto& out = files.text();
    out << "step " << optpipe::format_number(now) << unit_of(p) << "; planned again as it is, "
        << optpipe::format_number(options.time_limit, 3) << " s: " << text_of(again, unit_of(p)) << "\n\n";
    print_gains(out, gains, now, objective.value_or(now));
    return status;
}

} // namespace program
