#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "methods.hpp"
#include "plan_json.hpp"
#include "plan_output.hpp"
#include "replan.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/core/stop_check.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/text_idle.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/time/idle.hpp>
#include <optpipe/schedule/time/measure.hpp>
#include <optpipe/schedule/time/report.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace program {
namespace {

/// Everything that `why` says about a schedule.
struct diagnosis {
    std::string method;
    optpipe::measures measures;
    optpipe::per_rank<optpipe::idle_sums> idle_by_rank;
    optpipe::idle_sums idle{};
    optpipe::memory_size peak{};
};

diagnosis diagnose(const optpipe::problem& p, const std::string& method, const optpipe::schedule& s) {
    diagnosis found{method, optpipe::measure(p, s), optpipe::sum_by_cause(p.graph.ranks(), optpipe::idle_times(p, s))};
    for (const auto& own : found.idle_by_rank)
        for (const auto cause : optpipe::all_idle_causes)
            found.idle[cause] += own[cause];
    for (const auto peak : found.measures.peak_memory)
        found.peak = std::max(found.peak, peak);
    return found;
}

/// The diagnosis of the best schedule of a published method, if there is one.
std::optional<diagnosis> best_published_of(const optpipe::problem& p, const interruption& interrupted) {
    std::optional<diagnosis> best;
    method_options how;
    how.stop = interrupted.token();
    for (const auto& a : run_methods(
             p, [](std::string_view name) { return !is_constructive(name); }, how)) {
        if (!a.result) continue;
        auto own = diagnose(p, a.method, *a.result);
        if (!best || own.measures.objective < best->measures.objective) best = std::move(own);
    }
    return best;
}

void lift(optpipe::per_rank<optpipe::memory_size>& limits) {
    for (auto& limit : limits)
        limit = optpipe::memory_size::unlimited();
}

void make_transfers_instant(optpipe::problem& p) {
    const optpipe::transfer_times none{optpipe::duration{}, optpipe::duration{}};
    for (auto& options : p.storage)
        for (auto& option : options)
            if (option.transfer) option.transfer = none;
}

/// Whether some rank has so much more work than the mean of all ranks that level work is worth a search.
bool has_uneven_work(const optpipe::problem& p, optpipe::duration mean) {
    constexpr double least_imbalance = 1.001; // measured costs tell no less than 0.1 %
    optpipe::duration most{};
    for (const auto r : p.graph.all_ranks())
        most = std::max(most, p.load(r));
    return most > least_imbalance * mean;
}

/// Scales the times of each rank's stages so that every rank has this work.
void level_work(optpipe::problem& p, optpipe::duration mean) {
    const auto given = p;
    for (const auto s : p.graph.all_stages()) {
        const auto load = given.load(p.rank_of(s));
        if (load <= optpipe::duration{}) continue;
        const double factor = mean / load;
        auto costs = p.costs[s];
        costs.forward = factor * costs.forward;
        costs.backward_input = factor * costs.backward_input;
        costs.backward_weight = factor * costs.backward_weight;
        auto options = p.storage[s];
        for (auto& each : options) {
            each.recompute = factor * each.recompute;
            each.backward_extra = factor * each.backward_extra;
        }
        p.set_stage(s, costs, options);
    }
}

/// The problem as it is, with each of its limits lifted, and with the same work on every rank.
std::vector<variant> remedies_of(const optpipe::problem& p) {
    std::vector<variant> tries{{"as it is", p}};
    const auto add = [&](bool applies, std::string what, const std::function<void(optpipe::problem&)>& change) {
        if (!applies) return;
        tries.push_back({std::move(what), p});
        change(tries.back().changed);
    };
    add(is_limited(p.memory_limit), "no memory limit", [](optpipe::problem& q) { lift(q.memory_limit); });
    add(is_limited(p.host_memory_limit) && has_transfers(p), "no host memory limit",
        [](optpipe::problem& q) { lift(q.host_memory_limit); });
    add(has_transfers(p), "transfers that take no time", make_transfers_instant);
    add(has_hops(p), "messages that take no time",
        [](optpipe::problem& q) { q.p2p = optpipe::hop_times<>{optpipe::duration{}}; });
    optpipe::duration mean{};
    for (const auto r : p.graph.all_ranks())
        mean += p.load(r) / static_cast<double>(p.graph.ranks());
    add(p.overlaps.empty() && has_uneven_work(p, mean), "the same work on every rank",
        [&](optpipe::problem& q) { level_work(q, mean); });
    return tries;
}

/// A line on a remedy for a step that takes `now`: the new length and its change, or a sentence.
optpipe::table_row line_of(const replanned& tried, optpipe::duration now, bool is_changed) {
    constexpr double rounding = 1e-6;
    if (!tried.has_plan()) return {tried.what, "no plan: " + optpipe::printable(tried.reason, 400)};
    if (tried.objective < (1.0 - rounding) * now)
        return {tried.what, optpipe::format_number(tried.objective),
                optpipe::format_number(100.0 * (tried.objective / now - 1.0), 3) + " %"};
    if (tried.bound >= (1.0 - rounding) * now)
        return {tried.what, is_changed ? "no shorter: something else binds" : "no schedule is shorter"};
    return {tried.what, "no shorter plan found; no schedule is below " + optpipe::format_number(tried.bound)};
}

void print_remedies(std::ostream& out, const std::vector<replanned>& remedies, optpipe::duration now, double seconds) {
    if (remedies.empty()) return;
    std::vector<optpipe::table_row> lines{
        {"planned again, " + optpipe::format_number(seconds, 3) + " s each", "step", "change"}};
    for (const auto& tried : remedies)
        lines.push_back(line_of(tried, now, &tried != &remedies.front()));
    out << '\n';
    optpipe::write_table(out, lines);
}

optpipe::table_row row_of(const std::string& what, const std::optional<diagnosis>& other, const diagnosis& own,
                          const std::function<std::string(const diagnosis&)>& cell) {
    optpipe::table_row line{what, cell(own)};
    if (other) line.push_back(cell(*other));
    return line;
}

/// Compares the schedule with the best published one, measure by measure.
void print_beside(std::ostream& out, const diagnosis& own, const std::optional<diagnosis>& other, bool is_stopped) {
    const auto number = [](auto value) { return optpipe::format_number(value); };
    std::vector<optpipe::table_row> lines{{"beside the best published", "this schedule"}};
    if (other) lines.front().push_back(other->method);
    const auto add = [&](const std::string& what, const std::function<std::string(const diagnosis&)>& cell) {
        lines.push_back(row_of(what, other, own, cell));
    };
    add("step", [&](const diagnosis& d) { return number(d.measures.objective); });
    for (const auto cause : optpipe::all_idle_causes)
        if (own.idle[cause] > optpipe::duration{} || (other && other->idle[cause] > optpipe::duration{}))
            add(std::string{"idle, "} + name_of(cause), [&](const diagnosis& d) { return number(d.idle[cause]); });
    add("offloads", [](const diagnosis& d) { return std::to_string(d.measures.offloads); });
    add("recomputations", [](const diagnosis& d) { return std::to_string(d.measures.recomputes); });
    add("peak memory", [&](const diagnosis& d) { return number(d.peak); });
    out << '\n';
    optpipe::write_table(out, lines);
    if (!other)
        out << (is_stopped ? "stopped before a published schedule was found\n"
                           : "no published schedule is for this problem and fits its memory\n");
}

nlohmann::ordered_json to_json(const optpipe::idle_sums& idle) {
    nlohmann::ordered_json causes;
    for (const auto cause : optpipe::all_idle_causes)
        causes[name_of(cause)] = idle[cause].value();
    return causes;
}

nlohmann::ordered_json to_json(const diagnosis& d) {
    return {{"method", d.method},
            {"objective", d.measures.objective.value()},
            {"idle", to_json(d.idle)},
            {"offloads", d.measures.offloads},
            {"recomputes", d.measures.recomputes},
            {"peak_memory", d.peak.value()}};
}

nlohmann::ordered_json ranks_to_json(const optpipe::problem& p, const diagnosis& own) {
    auto ranks = nlohmann::ordered_json::array();
    for (const auto r : p.graph.all_ranks())
        ranks.push_back({{"rank", r.value()},
                         {"computes", own.measures.busy[r].value()},
                         {"idle", own.idle_by_rank[r].total().value()},
                         {"by_cause", to_json(own.idle_by_rank[r])}});
    return ranks;
}

} // namespace

int why(const why_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}}, {}, options.json};
    const auto p = read_problem(options.problem);
    const auto file = require_valid(p, read_schedule_for(p, options.schedule), options.schedule);
    const interruption interrupted{!options.json};
    const optpipe::stop_when late{[&] { return interrupted.is_requested(); }};
    const auto bounds = optpipe::bounds_of(p, late);
    const auto& binding = optpipe::best_bound(bounds);
    const auto own = diagnose(p, file.document.method, file.schedule);
    const auto published = best_published_of(p, interrupted);
    const auto remedies =
        plan_again(remedies_of(p), file.schedule, {options.time_limit, options.threads, options.json}, interrupted);
    const bool is_stopped = interrupted.is_requested();
    if (options.json) {
        nlohmann::ordered_json result{{"format", "optpipe.why-result/1"},
                                      {"problem", p.name},
                                      {"time_unit", p.time_unit},
                                      {"schedule", to_json(own)},
                                      {"bound", (bounds.*binding.value).value()},
                                      {"bound_by", binding.name},
                                      {"ranks", ranks_to_json(p, own)},
                                      {"planned_again", nlohmann::ordered_json::array()},
                                      {"published", published ? to_json(*published) : nlohmann::ordered_json(nullptr)}};
        for (const auto& tried : remedies)
            if (tried.has_plan())
                result["planned_again"].push_back(
                    {{"with", tried.what}, {"objective", tried.objective.value()}, {"bound", tried.bound.value()}});
        std::cout << json_text(result);
        return is_stopped ? stopped_by_signal : success;
    }
    auto& out = files.text();
    out << "step " << optpipe::format_number(own.measures.objective) << unit_of(p) << "; structural bound "
        << optpipe::format_number(bounds.*binding.value) << unit_of(p) << " by " << binding.name << "\n\n";
    optpipe::write_idle(out, p, own.measures, own.idle_by_rank);
    print_remedies(out, remedies, own.measures.objective, options.time_limit);
    print_beside(out, own, published, is_stopped);
    return is_stopped ? stopped_by_signal : success;
}

} // namespace program
