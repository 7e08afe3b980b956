#include "commands.hpp"
#include "files.hpp"
#include "plan_json.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/text_storage.hpp>
#include <optpipe/schedule/time/measure.hpp>
#include <optpipe/schedule/time/validate.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <vector>

namespace program {
namespace {

using nlohmann::ordered_json;

void print_violations(const std::vector<optpipe::violation>& violations) {
    constexpr std::size_t most_shown = 20;
    std::cout << "INVALID: " << violations.size() << (violations.size() == 1 ? " violation\n" : " violations\n");
    for (std::size_t i = 0; i < std::min(violations.size(), most_shown); ++i)
        std::cout << violations[i].text() << '\n';
    if (violations.size() > most_shown) std::cout << "and " << violations.size() - most_shown << " more\n";
}

void print_measures(const optpipe::problem& p, const optpipe::measures& m) {
    std::cout << "valid objective=" << optpipe::format_number(m.objective)
              << " bubble_rate=" << optpipe::format_number(m.bubble_rate, 4) << " offloads=" << m.offloads
              << " peak_memory=[";
    for (const auto r : p.graph.all_ranks())
        std::cout << (r.value() == 0 ? "" : ", ") << optpipe::format_number(m.peak_memory[r]);
    std::cout << "]";
    if (!is_described_by_costs(p)) std::cout << " recompute_rate=" << optpipe::format_number(m.recompute_rate, 4);
    std::cout << '\n';
}

ordered_json to_json(const optpipe::problem& p, const std::vector<optpipe::violation>& violations) {
    ordered_json result{{"format", "optpipe.check-result/1"},
                        {"problem", p.name},
                        {"valid", violations.empty()},
                        {"violations", ordered_json::array()}};
    for (const auto& v : violations)
        result["violations"].push_back({{"place", v.place}, {"reason", v.reason}});
    return result;
}

void add_measures(ordered_json& result, const optpipe::problem& p, const optpipe::measures& m) {
    result["time_unit"] = p.time_unit;
    result["memory_unit"] = p.memory_unit;
    result["objective"] = m.objective.value();
    result["bubble_rate"] = m.bubble_rate;
    result["offloads"] = m.offloads;
    if (!is_described_by_costs(p)) result["recompute_rate"] = m.recompute_rate;
    for (const auto peak : m.peak_memory)
        result["peak_memory"].push_back(peak.value());
}

} // namespace

int check(const check_options& options) {
    const outputs none{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}}, {}};
    const auto given = read_problem(options.problem);
    const auto document = read_schedule(options.schedule);
    const auto p = problem_for(given, document);
    if (document.problem_name != p.name)
        std::cerr << "optpipe: note: the schedule is for problem \"" << optpipe::printable(document.problem_name)
                  << "\", this one is \"" << optpipe::printable(p.name) << "\"\n";
    const auto violations = optpipe::document_violations(p, document);
    auto result = to_json(p, violations);
    if (violations.empty()) {
        const auto timed = optpipe::to_schedule(p, document);
        const auto m = optpipe::measure(p, timed);
        options.json ? add_measures(result, p, m) : print_measures(p, m);
        if (options.json)
            add_storage_uses(result, p, timed);
        else
            optpipe::write_storage_uses(std::cout, p, timed);
    } else if (!options.json) {
        print_violations(violations);
    }
    if (options.json) std::cout << json_text(result);
    return violations.empty() ? success : invalid_schedule;
}

} // namespace program
