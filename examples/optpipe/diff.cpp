#include "commands.hpp"
#include "files.hpp"
#include "plan_json.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text_storage.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/schedule/operation.hpp>
#include <optpipe/schedule/schedule.hpp>
#include <optpipe/schedule/time/measure.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace program {
namespace {

using optpipe::operation;
using optpipe::rank;

/// The lanes of a rank, which run side by side: computations, offloads and reloads.
enum class lane_kind { computations, offloads, reloads };
constexpr std::array lane_names{"computation", "offload", "reload"};
using rank_lanes = std::array<std::vector<operation>, lane_names.size()>;

lane_kind lane_of(optpipe::operation_kind kind) {
    if (kind == optpipe::operation_kind::offload) return lane_kind::offloads;
    return kind == optpipe::operation_kind::reload ? lane_kind::reloads : lane_kind::computations;
}

/// One of the two schedules.
struct side {
    std::string name;
    optpipe::schedule schedule;
    optpipe::measures measures;
    optpipe::per_rank<rank_lanes> lanes;
    std::vector<optpipe::storage_use> storage;
};

side read_side(const optpipe::problem& given, optpipe::schedule_document document, const std::string& path) {
    const auto p = problem_for(given, document);
    auto file = require_valid(p, check_schedule_for(p, std::move(document), path), path);
    side read{name_of(path), std::move(file.schedule), {}, optpipe::per_rank<rank_lanes>(p.graph.ranks()), {}};
    read.measures = optpipe::measure(p, read.schedule);
    read.storage = optpipe::storage_uses(p, read.schedule);
    const auto own = optpipe::operations_by_rank(read.schedule);
    for (const rank r : p.graph.all_ranks())
        for (const auto& timed : own[r])
            read.lanes[r][static_cast<std::size_t>(lane_of(timed.op.kind))].push_back(timed.op);
    return read;
}

/// The first place where a lane of the two schedules differs; a lane that is shorter has no operation there.
struct lane_difference {
    const char* lane = "";
    std::size_t position = 0;
    std::optional<operation> a{};
    std::optional<operation> b{};
};

std::optional<lane_difference> first_difference(const rank_lanes& a, const rank_lanes& b) {
    const auto operation_at = [](const std::vector<operation>& lane, std::size_t i) {
        return i < lane.size() ? std::optional{lane[i]} : std::nullopt;
    };
    for (std::size_t kind = 0; kind < lane_names.size(); ++kind) {
        const auto [one, other] = std::mismatch(a[kind].begin(), a[kind].end(), b[kind].begin(), b[kind].end(),
                                                [](const auto& x, const auto& y) { return is_same_work(x, y); });
        if (one == a[kind].end() && other == b[kind].end()) continue;
        const auto i = static_cast<std::size_t>(one - a[kind].begin());
        return lane_difference{lane_names[kind], i, operation_at(a[kind], i), operation_at(b[kind], i)};
    }
    return std::nullopt;
}

/// For example "3. offload: 0OFFLOAD2, 0OFFLOAD3".
std::string text_of(const lane_difference& differs) {
    const auto text = [](const std::optional<operation>& op) { return op ? to_string(*op) : std::string{"none"}; };
    return std::to_string(differs.position + 1) + ". " + differs.lane + ": " + text(differs.a) + ", " + text(differs.b);
}

/// The number of forwards with another storage option in the other schedule.
std::size_t other_storage(const side& a, const side& b) {
    std::map<std::pair<optpipe::stage, optpipe::microbatch>, optpipe::storage_index> options;
    for (const auto& timed : a.schedule.operations)
        if (timed.op.kind == optpipe::operation_kind::forward)
            options[{timed.op.stage, timed.op.microbatch}] = timed.op.storage;
    std::size_t others = 0;
    for (const auto& timed : b.schedule.operations)
        if (timed.op.kind == optpipe::operation_kind::forward) {
            const auto at = options.find({timed.op.stage, timed.op.microbatch});
            if (at != options.end() && at->second != timed.op.storage) ++others;
        }
    return others;
}

/// The largest difference between the starts of an operation in the two schedules.
optpipe::duration largest_shift(const side& a, const side& b) {
    const auto key = [](const operation& op) { return std::tuple{op.stage, op.kind, op.microbatch}; };
    std::map<decltype(key(operation{})), optpipe::duration> starts;
    for (const auto& timed : a.schedule.operations)
        starts[key(timed.op)] = timed.start;
    optpipe::duration most{};
    for (const auto& timed : b.schedule.operations)
        if (const auto at = starts.find(key(timed.op)); at != starts.end())
            most = std::max({most, timed.start - at->second, at->second - timed.start});
    return most;
}

std::size_t uses_of(const side& s, const std::string& option) {
    for (const auto& use : s.storage)
        if (use.name == option) return use.count;
    return 0;
}

void print_measures(std::ostream& out, const side& a, const side& b) {
    std::vector<optpipe::table_row> lines{{"", "A", "B"}};
    const auto add = [&](const std::string& what, const std::function<std::string(const side&)>& cell) {
        lines.push_back({what, cell(a), cell(b)});
    };
    const auto number = [](auto value) { return optpipe::format_number(value); };
    add("step", [&](const side& s) { return number(s.measures.objective); });
    add("bubble", [](const side& s) { return optpipe::format_number(s.measures.bubble_rate, 4); });
    add("offloads", [](const side& s) { return std::to_string(s.measures.offloads); });
    add("recomputations", [](const side& s) { return std::to_string(s.measures.recomputes); });
    std::vector<std::string> options;
    for (const auto* each : {&a, &b})
        for (const auto& use : each->storage)
            if (std::find(options.begin(), options.end(), use.name) == options.end()) options.push_back(use.name);
    for (const auto& option : options)
        add("storage " + optpipe::printable(option, 40),
            [&](const side& s) { return std::to_string(uses_of(s, option)); });
    optpipe::write_table(out, lines);
}

void print_ranks(std::ostream& out, const optpipe::problem& p, const side& a, const side& b) {
    const auto number = [](auto value) { return optpipe::format_number(value); };
    std::vector<optpipe::table_row> lines{
        {"rank", "peak of A", "peak of B", "host, A", "host, B", "first difference in order"}};
    for (const rank r : p.graph.all_ranks()) {
        const auto differs = first_difference(a.lanes[r], b.lanes[r]);
        lines.push_back({std::to_string(r.value()), number(a.measures.peak_memory[r]),
                         number(b.measures.peak_memory[r]), number(a.measures.peak_host_memory[r]),
                         number(b.measures.peak_host_memory[r]), differs ? text_of(*differs) : "none"});
    }
    out << '\n';
    optpipe::write_table(out, lines);
}

bool have_same_order(const optpipe::problem& p, const side& a, const side& b) {
    for (const rank r : p.graph.all_ranks())
        if (first_difference(a.lanes[r], b.lanes[r])) return false;
    return true;
}

using nlohmann::ordered_json;

ordered_json to_json(const side& s) {
    const auto& m = s.measures;
    ordered_json entry{{"name", s.name},
                       {"objective", m.objective.value()},
                       {"bubble_rate", m.bubble_rate},
                       {"offloads", m.offloads},
                       {"recomputes", m.recomputes},
                       {"storage", ordered_json::object()},
                       {"peak_memory", ordered_json::array()},
                       {"peak_host_memory", ordered_json::array()}};
    for (const auto& use : s.storage)
        entry["storage"][use.name] = use.count;
    for (const auto peak : m.peak_memory)
        entry["peak_memory"].push_back(peak.value());
    for (const auto peak : m.peak_host_memory)
        entry["peak_host_memory"].push_back(peak.value());
    return entry;
}

/// Null if there is no difference.
ordered_json to_json(const std::optional<lane_difference>& differs) {
    if (!differs) return nullptr;
    const auto spelled = [](const std::optional<operation>& op) {
        return op ? ordered_json(to_string(*op)) : ordered_json(nullptr);
    };
    return {{"lane", differs->lane},
            {"position", differs->position},
            {"a", spelled(differs->a)},
            {"b", spelled(differs->b)}};
}

/// How two schedules differ.
struct difference {
    bool is_same = false;
    bool has_same_order = false;
    std::size_t other_storage = 0;
    optpipe::duration largest_shift{};
};

void print_json(const optpipe::problem& p, const side& a, const side& b, const difference& found) {
    ordered_json result{{"format", "optpipe.diff-result/1"},
                        {"problem", p.name},
                        {"same", found.is_same},
                        {"a", to_json(a)},
                        {"b", to_json(b)},
                        {"first_differences", ordered_json::array()},
                        {"stored_otherwise", found.other_storage},
                        {"largest_shift", found.largest_shift.value()}};
    for (const rank r : p.graph.all_ranks())
        result["first_differences"].push_back(to_json(first_difference(a.lanes[r], b.lanes[r])));
    std::cout << json_text(result);
}

void print_text(const optpipe::problem& p, const side& a, const side& b, const difference& found) {
    if (found.is_same) {
        std::cout << "the same: every rank does the same at the same times\n";
        return;
    }
    std::cout << "A is " << a.name << ", B is " << b.name << "\n\n";
    print_measures(std::cout, a, b);
    print_ranks(std::cout, p, a, b);
    const auto storage = found.other_storage;
    std::cout << '\n' << (found.has_same_order ? "the same order on every rank; " : "");
    if (storage > 0) std::cout << storage << (storage == 1 ? " stash is" : " stashes are") << " stored otherwise; ";
    std::cout << "starts differ by up to " << optpipe::format_number(found.largest_shift) << '\n';
}

} // namespace

int diff(const diff_options& options) {
    const outputs none{{{"PROBLEM", options.problem.path}, {"A", options.a}, {"B", options.b}}, {}};
    const auto p = read_problem(options.problem);
    auto one = read_schedule(options.a);
    auto other = read_schedule(options.b);
    if (one.forward_only != other.forward_only)
        throw optpipe::error{name_of(one.forward_only ? options.a : options.b) + ": has forwards alone, " +
                             name_of(one.forward_only ? options.b : options.a) + " a training step"};
    const auto a = read_side(p, std::move(one), options.a);
    const auto b = read_side(p, std::move(other), options.b);
    difference found{false, have_same_order(p, a, b), other_storage(a, b), largest_shift(a, b)};
    const bool same_times = found.largest_shift <= optpipe::time_slack(p, a.schedule);
    found.is_same = found.has_same_order && same_times && found.other_storage == 0;
    if (options.json)
        print_json(p, a, b, found);
    else
        print_text(p, a, b, found);
    return found.is_same ? success : different;
}

} // namespace program
