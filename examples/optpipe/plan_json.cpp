#include "plan_json.hpp"

#include <optpipe/io/text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace program {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* plan_result_format = "optpipe.plan-result/1";

template <class Value> json known(const std::optional<Value>& value) {
    return value ? json(value->value()) : json(nullptr);
}

json base_of(const optpipe::problem& p, std::string_view status, const optpipe::schedule_report& report) {
    const auto& m = report.measures;
    const auto gap = report.gap();
    json result{{"format", plan_result_format},
                {"problem", p.name},
                {"status", status},
                {"method", report.method},
                {"time_unit", p.time_unit},
                {"memory_unit", p.memory_unit},
                {"objective", m.objective.value()},
                {"bound", known(report.bound)},
                {"gap", gap ? json(*gap) : json(nullptr)},
                {"bubble_rate", m.bubble_rate},
                {"offloads", m.offloads},
                {"peak_memory", json::array()}};
    for (const auto peak : m.peak_memory)
        result["peak_memory"].push_back(peak.value());
    if (!is_described_by_costs(p)) result["recompute_rate"] = m.recompute_rate;
    add_storage_uses(result, p, report.schedule);
    return result;
}

json method_entry(const optpipe::comparison_row& row) {
    json entry{{"method", row.method}};
    if (row.result)
        entry["objective"] = row.result->objective.value();
    else
        entry["reason"] = row.reason;
    entry["seconds"] = row.planning_seconds.value_or(0.0);
    return entry;
}

#if defined(OPTPIPE_HAS_MILP)
json searched(const optpipe::problem& p, const optpipe::schedule_report& report, const optpipe::plan_result& planned) {
    auto result = base_of(p, optpipe::text_of(planned.why), report);
    result["seconds"] = planned.seconds;
    result["from_cache"] = is_from_cache(planned);
    if (const auto& robust = planned.robust)
        result["robust"] = {{"percentile", robust->percentile.value()},
                            {"mean", robust->mean.value()},
                            {"nominal_objective", robust->nominal_objective.value()},
                            {"nominal_percentile", robust->nominal_percentile.value()},
                            {"nominal_mean", robust->nominal_mean.value()}};
    result["search"] = json::array();
    for (const auto& by : planned.contributions) {
        json entry{{"name", by.name}, {"seconds", by.seconds}, {"schedules", by.schedules}};
        if (by.schedules > 0) entry["objective"] = by.objective.value();
        entry["bounds"] = by.bounds;
        if (by.bounds > 0) entry["bound"] = by.bound.value();
        result["search"].push_back(entry);
    }
    result["methods"] = json::array();
    for (const auto& b : planned.builders) {
        json entry{{"method", b.method}};
        if (b.objective)
            entry["objective"] = b.objective->value();
        else
            entry["reason"] = optpipe::reason_text(p, b.why);
        entry["seconds"] = b.seconds;
        result["methods"].push_back(entry);
    }
    return result;
}

/// A number of microbatches, and what became of it.
json alternative_entry(const optpipe::problem& p, const optpipe::planned_alternative& tried) {
    json entry{{"microbatches", p.graph.microbatches()}};
    if (!tried.refused) entry["bound"] = tried.bound.value();
    if (tried.planned)
        entry["objective"] = tried.planned->objective.value();
    else
        entry["reason"] = tried.refused ? optpipe::reason_text(p, *tried.refused)
                                        : "dropped: the bound is no better than the best plan";
    return entry;
}

#endif

} // namespace

std::string json_text(const json& document) {
    return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void add_storage_uses(nlohmann::ordered_json& result, const optpipe::problem& p, const optpipe::schedule& s) {
    for (const auto& use : optpipe::storage_uses(p, s))
        result["storage"][use.name] = use.count;
}

std::string json_of_refusal(const optpipe::problem& p, const std::string& reason) {
    return json_text(
        {{"format", plan_result_format}, {"problem", p.name}, {"status", "no schedule"}, {"reason", reason}});
}

std::string json_of(const optpipe::problem& p, const optpipe::schedule_report& report,
                    const std::vector<attempt>& attempts) {
    auto result = base_of(p, "built", report);
    result["methods"] = json::array();
    for (const auto& a : attempts)
        result["methods"].push_back(method_entry(row_of(p, a)));
    return json_text(result);
}

#if defined(OPTPIPE_HAS_MILP)

bool is_from_cache(const optpipe::plan_result& planned) {
    return planned.cached == optpipe::cache_use::exact &&
           std::any_of(planned.contributions.begin(), planned.contributions.end(),
                       [&](const optpipe::contribution& by) {
                           return by.name == "cache" && by.objective <= planned.objective;
                       });
}

std::string json_of(const optpipe::problem& p, const optpipe::schedule_report& report,
                    const optpipe::plan_result& planned) {
    return json_text(searched(p, report, planned));
}

std::string json_of(const optpipe::schedule_report& report, const optpipe::partition_plan& chosen) {
    const auto& p = chosen.pipeline;
    auto result = searched(p, report, chosen.planned);
    result["layers"] = chosen.layers;
    result["ranks"] = json::array();
    for (const optpipe::stage s : p.graph.all_stages())
        result["ranks"].push_back(p.rank_of(s).value());
    result["stage_of"] = json::array();
    for (const optpipe::stage s : chosen.stage_of)
        result["stage_of"].push_back(s.value());
    result["partitions"] = chosen.tried;
    result["seconds"] = chosen.seconds;
    result["bound_of_partitions"] = chosen.bound.value();
    return json_text(result);
}

std::string json_of(const std::vector<optpipe::problem>& problems, const optpipe::schedule_report& report,
                    const optpipe::alternatives_plan& found) {
    const auto& p = problems[found.chosen];
    auto result = searched(p, report, found.best());
    result["microbatches"] = p.graph.microbatches();
    result["alternatives"] = json::array();
    for (std::size_t i = 0; i < problems.size(); ++i)
        result["alternatives"].push_back(alternative_entry(problems[i], found.all[i]));
    result["seconds"] = found.seconds;
    result["bound_of_alternatives"] = found.bound.value();
    return json_text(result);
}

#endif

} // namespace program
