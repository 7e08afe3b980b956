#include "commands.hpp"
#include "files.hpp"
#include "interruption.hpp"
#include "run_online.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/execution.hpp>
#include <optpipe/io/chrome_trace.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/schedule/time/differences.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/validate.hpp>
#include <optpipe/testing/executor_model.hpp>
#include <optpipe/testing/paced_model.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace program {
namespace {

using optpipe::memory_arena;
using optpipe::memory_size;
using optpipe::rank;

/// Scales of a simulated run: the length of the problem's unit of time, and the bytes of its unit of memory.
struct scales {
    optpipe::clock_time time_unit{};
    double bytes_per_unit = 1.0;

    [[nodiscard]] memory_size memory(std::size_t bytes) const {
        return memory_size{static_cast<double>(bytes) / bytes_per_unit};
    }
};

/// The measurements of one step.
struct step {
    std::vector<optpipe::rank_times> times;
    optpipe::schedule_report report;
};

optpipe::clock_time time_unit_for(const run_options& options, const optpipe::schedule_report& plan) {
    using seconds = std::chrono::duration<double>;
    // Long enough that waking threads and passing messages doesn't keep a machine with few cores busy.
    constexpr seconds per_operation{5e-4};
    const auto usual = std::max(seconds{0.5}, static_cast<double>(plan.schedule.operations.size()) * per_operation);
    constexpr seconds least{1e-6};
    constexpr seconds most{24.0 * 3600.0};
    const auto end = last_end(plan.schedule).value();
    const seconds unit = options.scale ? seconds{*options.scale} : usual / end;
    if (!(unit * end >= least && unit * end <= most))
        throw optpipe::error{"--scale: a step would take " + optpipe::format_number((unit * end).count()) +
                             " s; it must be a microsecond to a day"};
    return unit;
}

/// Large enough that sizes rounded to bytes are accurate to four digits, and small enough that filling and checking
/// them takes hardly any time.
double bytes_per_unit_for(const optpipe::problem& p, const optpipe::schedule_report& plan) {
    constexpr double most_bytes = 262144.0;
    memory_size peak{};
    for (const auto each : plan.measures.peak_memory)
        peak = std::max(peak, each);
    // The measured peak doesn't include stashes held for less than the tolerance of times.
    for (const auto& costs : p.costs)
        peak = std::max(peak, costs.activation);
    return peak > memory_size{} ? most_bytes / peak.value() : 1.0;
}

/// Ranks with planned links, and exactly the memory that the programs need.
optpipe::threads::options threads_for(const optpipe::problem& p,
                                      const optpipe::per_rank<optpipe::rank_program>& programs, const scales& scale,
                                      optpipe::duration end) {
    optpipe::threads::options how;
    how.copies = optpipe::threads::planned_copies(p, scale.time_unit);
    how.messages = optpipe::threads::planned_messages(p, scale.time_unit);
    how.transfer = p.transfer;
    how.record_times = true;
    how.patience = std::max(how.patience, 2 * optpipe::on_clock(end, scale.time_unit));
    how.device_memory = how.host_memory = optpipe::per_rank<std::size_t>(programs.size());
    for (const auto& each : programs) {
        how.device_memory[each.self] = each.device_bytes + each.message_bytes;
        how.host_memory[each.self] = each.host_bytes;
    }
    return how;
}

/// Prints a line such as "step 3 of 10: 153.2 ms".
void tell(const optpipe::problem& p, const run_options& options, const std::vector<step>& steps) {
    std::cerr << "step " << steps.size() << " of " << options.steps << ": "
              << optpipe::format_number(steps.back().report.measures.objective)
              << (p.time_unit.empty() ? "" : " " + optpipe::printable(p.time_unit)) << std::endl;
}

/// Runs the steps one after the other, each with its own start. Every operation takes its planned time, and checks the
/// data that earlier operations left.
///
/// A signal ends the run after the current step, but not before the first step, as there would be no results.
std::vector<step> run_steps(const run_options& options, const optpipe::problem& p, const optpipe::schedule_report& plan,
                            const optpipe::per_rank<optpipe::rank_program>& programs, const scales& scale,
                            const interruption& interrupted) {
    using optpipe::testing::tracing_model;
    using model = optpipe::testing::paced_model<tracing_model>;
    std::vector<model> models(p.graph.ranks(), model{tracing_model{p.graph.stages()}, p, scale.time_unit});
    optpipe::threads::cluster ranks{p.graph.ranks(), threads_for(p, programs, scale, last_end(plan.schedule))};
    std::vector<step> steps;
    while (steps.size() < options.steps && (steps.empty() || !interrupted.is_requested())) {
        auto times = optpipe::threads::run(programs, ranks, [&](rank r) -> model& { return models[r.position()]; });
        auto measured = optpipe::measured_schedule(p.graph, times, scale.time_unit);
        const auto method = plan.method + (plan.method.empty() ? "" : ", ") + "measured on threads";
        steps.push_back({std::move(times), optpipe::make_report(p, method, std::move(measured))});
        steps.back().report.forward_only = plan.forward_only;
        if (options.progress) tell(p, options, steps);
    }
    return steps;
}

/// The step with the median step time; of two, the shorter one.
const step& median_of(std::vector<step>& steps) {
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>((steps.size() - 1) / 2);
    std::nth_element(steps.begin(), middle, steps.end(), [](const step& a, const step& b) {
        return a.report.measures.objective < b.report.measures.objective;
    });
    return *middle;
}

void print_step(std::ostream& out, const optpipe::problem& p, const optpipe::schedule_report& plan,
                const std::vector<step>& steps, const step& shown, const scales& scale) {
    const auto planned = plan.measures.objective;
    const auto measured = shown.report.measures.objective;
    const auto unit = p.time_unit.empty() ? "" : " " + optpipe::printable(p.time_unit);
    out << optpipe::printable(p.name.empty() ? "problem" : p.name) << ": planned " << optpipe::format_number(planned)
        << unit << ", measured " << optpipe::format_number(measured) << unit << ", ratio "
        << optpipe::format_number(measured / planned, 4);
    if (steps.size() > 1) out << " (median of " << steps.size() << " steps)";
    out << "; one" << (unit.empty() ? " unit" : unit) << " of the plan took "
        << optpipe::format_number(scale.time_unit.count() * 1e-3, 4) << " us\n\n";
}

void print_memory(std::ostream& out, const optpipe::problem& p, const optpipe::schedule_report& plan, const step& shown,
                  const scales& scale) {
    constexpr int digits = 4;
    const auto cell = [&](memory_size size) {
        return size.is_unlimited() ? std::string{"-"} : optpipe::format_number(size, digits);
    };
    const auto unit = p.memory_unit.empty() ? "" : " [" + optpipe::printable(p.memory_unit, 20) + "]";
    std::vector<optpipe::table_row> rows{
        {"memory" + unit, "planned peak", "high-water mark", "limit", "host: planned peak", "host: high-water mark"}};
    for (const auto& each : shown.times) {
        const rank r = each.program->self;
        rows.push_back({"rank " + std::to_string(r.value()), cell(plan.measures.peak_memory[r]),
                        cell(scale.memory(optpipe::high_water(each, memory_arena::device))), cell(p.memory_limit[r]),
                        cell(plan.measures.peak_host_memory[r]),
                        cell(scale.memory(optpipe::high_water(each, memory_arena::host)))});
    }
    out << '\n';
    optpipe::write_table(out, rows);
}

/// The file of a step. If there are several steps, each has its own file, such as "step-07.json" for "step.json"; the
/// names sort like the steps.
std::string file_of_step(const run_options& options, std::size_t step) {
    if (options.out.empty() || options.steps == 1) return options.out;
    if (options.out == "-") throw optpipe::error{"--out: only one step fits on standard output; name a file"};
    const auto digits = std::to_string(options.steps).size();
    const auto number = std::to_string(step + 1);
    const std::filesystem::path path{options.out};
    const auto name = path.stem().string() + "-" + std::string(digits - number.size(), '0') + number;
    return (path.parent_path() / (name + path.extension().string())).string();
}

void write_steps(outputs& files, const run_options& options, const optpipe::problem& p,
                 const std::vector<step>& steps) {
    if (options.out.empty()) return;
    files.write("--out", [&] { return optpipe::schedule_to_json(p, steps.front().report); });
    for (std::size_t i = 1; i < steps.size(); ++i)
        files.write_further({"--out", file_of_step(options, i)},
                            [&] { return optpipe::schedule_to_json(p, steps[i].report); });
}

void write_pictures(outputs& files, const optpipe::problem& p, const optpipe::schedule_report& plan,
                    const optpipe::schedule_report& measured) {
    files.write("--svg", [&] { return optpipe::overlay_to_svg(p, plan, measured); });
    files.write("--trace", [&] { return optpipe::overlay_to_chrome_trace(p, plan, measured); });
}

} // namespace

int run(const run_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}},
                  {{"--out", file_of_step(options, 0)}, {"--svg", options.svg}, {"--trace", options.trace}}};
    const auto given = read_problem(options.problem);
    auto document = read_schedule(options.schedule);
    const auto p = problem_for(given, document);
    const auto plan = valid_plan(p, std::move(document), options.schedule);
    if (options.online && plan.forward_only)
        throw optpipe::error{"--online: plans training steps again, and " + name_of(options.schedule) +
                             " has forwards alone"};
    constexpr std::size_t most_ranks = 256; // each uses up to eight threads
    if (p.graph.ranks() > most_ranks)
        throw optpipe::error{name_of(options.problem.path) + ": has " + std::to_string(p.graph.ranks()) +
                             " ranks; as threads of one machine run at most " + std::to_string(most_ranks)};
    const scales scale{time_unit_for(options, plan), bytes_per_unit_for(p, plan)};
    const auto programs = optpipe::lower(p, plan.schedule,
                                         {.bytes_per_unit = scale.bytes_per_unit,
                                          .alignment = 1,
                                          .message_bytes = 64,
                                          .forward_only = plan.forward_only});
    if (!programs) {
        std::cerr << "optpipe: " << name_of(options.schedule) << ": " << optpipe::describe(programs.why()) << '\n';
        return no_schedule;
    }
    const interruption interrupted{!options.quiet};
#if defined(OPTPIPE_HAS_MILP)
    if (options.online) return run_online(options, p, plan, scale.time_unit, scale.bytes_per_unit, files, interrupted);
#endif
    std::vector<step> steps;
    try {
        steps = run_steps(options, p, plan, *programs, scale, interrupted);
    } catch (const std::system_error& e) {
        throw optpipe::error{std::string{"can't start a thread for each lane of each rank: "} + e.what()};
    }
    write_steps(files, options, p, steps);
    const auto& shown = median_of(steps);
    write_pictures(files, p, plan, shown.report);
    const int status = files.status(interrupted.is_requested() ? stopped_by_signal : success);
    if (options.quiet) return status;
    auto& out = files.text();
    if (status == stopped_by_signal) out << "stopped after " << steps.size() << " of " << options.steps << " steps\n";
    print_step(out, p, plan, steps, shown, scale);
    optpipe::write_differences(out, p, optpipe::compare_kinds(plan.schedule, shown.report.schedule),
                               optpipe::compare_messages(p, shown.times, scale.time_unit));
    print_memory(out, p, plan, shown, scale);
    return status;
}

} // namespace program
