#include "partition_table.hpp"

#include "plan_output.hpp"
#include "plan_table.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/core/index.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/layout.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/io/timeline.hpp>
#include <optpipe/pipeline/transformer.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <ostream>
#include <utility>

namespace program {
namespace {

/// Share of the time limit for the plan of each other layout. With one or two other layouts, `plan_partition` spends 0.49
/// or 0.28 of the time limit on its most promising partition, so the plans are comparable. Not tuned.
constexpr double share_of_other = 0.3;

std::vector<std::size_t> uniform_counts(std::size_t layers, std::size_t stages) {
    const optpipe::even_layers even{.total = layers};
    std::vector<std::size_t> counts;
    for (std::size_t s = 0; s < stages; ++s)
        counts.push_back(even.layers_of(optpipe::stage{s}, stages));
    return counts;
}

/// A layout that has a plan, and the measures of this plan.
struct shown_layout {
    std::string name;
    const optpipe::partition_plan* plan;
    optpipe::measures measures;

    shown_layout(std::string called, const optpipe::partition_plan& with)
        : name{std::move(called)}, plan{&with}, measures{optpipe::measure(with.pipeline, with.planned.schedule)} {}
};

std::vector<shown_layout> shown_layouts(const compared_layouts& compared) {
    std::vector<shown_layout> shown;
    for (const auto& each : compared.others)
        if (each.result) shown.emplace_back(each.name, *each.result);
    shown.emplace_back("plan", *compared.chosen);
    return shown;
}

/// The share of the step in which a rank doesn't compute, in the mean over the ranks. The bubble rate is that of the
/// busiest rank, so it says little about layouts with unequal work.
double mean_bubble(const optpipe::measures& m) {
    optpipe::duration busy{};
    for (const auto each : m.busy)
        busy += each;
    const auto all = static_cast<double>(m.busy.size()) * m.objective;
    return all > optpipe::duration{} ? (all - busy) / all : 0.0;
}

std::string excess_text(const shown_layout& each, const optpipe::partition_plan& best) {
    if (each.plan == &best) return "";
    const auto least = best.planned.objective;
    return least > optpipe::duration{} ? "+" + percent_text((each.plan->planned.objective - least) / least) : "";
}

std::string counts_text(const std::vector<std::size_t>& counts) {
    std::string text;
    for (const auto count : counts)
        text += (text.empty() ? "" : ", ") + std::to_string(count);
    return text;
}

std::vector<optpipe::table_row> layout_rows(const optpipe::problem& p, const compared_layouts& compared,
                                            const std::vector<shown_layout>& shown) {
    const auto unit = optpipe::detail::in_brackets(optpipe::printable(p.time_unit, 20));
    std::vector<optpipe::table_row> lines{
        {"layout", "step" + unit, "above the plan", "mean bubble", "bound" + unit, "layers of each stage"}};
    for (const auto& each : shown)
        lines.push_back({each.name, optpipe::format_number(each.plan->planned.objective),
                         excess_text(each, *compared.chosen), percent_text(mean_bubble(each.measures)),
                         optpipe::format_number(each.plan->planned.bound), counts_text(each.plan->layers)});
    for (const auto& each : compared.others)
        if (!each.result) lines.push_back({each.name, optpipe::reason_text(p, each.result.why())});
    return lines;
}

/// A row for each of `count` stages or ranks, with a cell for each layout by `cell(layout, index)`.
template <class Cell>
std::vector<optpipe::table_row> rows_by_index(const std::string& what, std::size_t count,
                                              const std::vector<shown_layout>& shown, const Cell& cell) {
    std::vector<optpipe::table_row> lines{{what}};
    for (const auto& each : shown)
        lines.front().push_back(each.name);
    for (std::size_t i = 0; i < count; ++i) {
        lines.push_back({std::to_string(i)});
        for (const auto& each : shown)
            lines.back().push_back(cell(each, i));
    }
    return lines;
}

/// For example "rank 0, layers 0-3: 163.2".
std::string stage_cell(const shown_layout& each, std::size_t s) {
    const auto& p = each.plan->pipeline;
    if (s >= p.graph.stages()) return "";
    const optpipe::stage at{s};
    return "rank " + std::to_string(p.rank_of(at).value()) + (each.plan->layers[s] == 1 ? ", layer " : ", layers ") +
           stage_layers_text(*each.plan, at) + ": " + optpipe::format_number(p.costs[at].work());
}

std::string rank_cell(const shown_layout& each, std::size_t r) {
    constexpr int digits = 4;
    const optpipe::rank at{r};
    const auto limit = each.plan->pipeline.memory_limit[at];
    const auto peak = optpipe::format_number(each.measures.peak_memory[at], digits);
    return limit.is_unlimited() ? peak : peak + " of " + optpipe::format_number(limit, digits);
}

} // namespace

compared_layouts compare_layouts(const optpipe::partition_problem& p, const std::string& layout,
                                 const optpipe::plan_options& how) {
    std::optional<optpipe::stage_layout> own;
    if (!layout.empty()) own = optpipe::parse_layout(layout, "--layout", p.layers.size());
    auto placed = p;
    const auto first = own ? optpipe::pipeline_for(p, *own, "--layout") : p.pipelines.front();
    placed.pipelines.insert(placed.pipelines.begin(), first);
    auto of_other = how;
    auto rest = how;
    if (how.time_limit) {
        of_other.time_limit = share_of_other * *how.time_limit;
        rest.time_limit = (1.0 - share_of_other * (own ? 2.0 : 1.0)) * *how.time_limit;
    }
    compared_layouts found;
    const auto uniform = uniform_counts(p.layers.size(), placed.pipelines.front().graph.stages());
    found.others.push_back({"uniform", optpipe::plan_layout(placed, 0, uniform, of_other)});
    if (own) found.others.push_back({"yours", optpipe::plan_layout(placed, 0, own->layers, of_other)});
    found.chosen = optpipe::plan_partition(p, rest);
    for (const auto& each : found.others) {
        if (!each.result || (found.chosen && found.chosen->planned.objective <= each.result->planned.objective))
            continue;
        auto better = *each.result;
        if (found.chosen) better.bound = std::min(found.chosen->bound, better.planned.objective);
        found.chosen = std::move(better);
    }
    return found;
}

std::string stage_layers_text(const optpipe::partition_plan& chosen, optpipe::stage s) {
    const auto& stage_of = chosen.stage_of;
    std::string text;
    for (std::size_t first = 0; first < stage_of.size(); ++first) {
        if (stage_of[first] != s) continue;
        auto last = first;
        while (last + 1 < stage_of.size() && stage_of[last + 1] == s)
            ++last;
        text += (text.empty() ? "" : ", ") + std::to_string(first);
        if (last > first) text += "-" + std::to_string(last);
        first = last;
    }
    return text;
}

void write_layouts(std::ostream& out, const optpipe::partition_problem& p, const compared_layouts& compared) {
    const auto& first = p.pipelines.front();
    const auto shown = shown_layouts(compared);
    std::size_t stages = 0;
    for (const auto& each : shown)
        stages = std::max(stages, each.plan->layers.size());
    const auto name = optpipe::printable(first.name.empty() ? "layers" : first.name);
    out << "**" << optpipe::markdown_escaped(name) << "** (" << p.layers.size() << " layers on " << first.graph.ranks()
        << " ranks, " << first.graph.microbatches() << " microbatches): no schedule of any "
        << "partition is shorter than " << optpipe::format_number(compared.chosen->bound) << unit_of(first) << "\n\n";
    optpipe::write_markdown_table(out, layout_rows(first, compared, shown));
    out << "\nTime of a microbatch on each stage"
        << optpipe::detail::in_brackets(optpipe::printable(first.time_unit, 20)) << "\n\n";
    optpipe::write_markdown_table(out, rows_by_index("stage", stages, shown, stage_cell));
    out << "\nPeak of the stashes of each rank"
        << optpipe::detail::in_brackets(optpipe::printable(first.memory_unit, 20)) << "\n\n";
    optpipe::write_markdown_table(out, rows_by_index("rank", first.graph.ranks(), shown, rank_cell));
}

} // namespace program
