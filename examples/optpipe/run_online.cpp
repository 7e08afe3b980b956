#include "run_online.hpp"

#if defined(OPTPIPE_HAS_MILP)
#include <optpipe/core/format.hpp>
#include <optpipe/execution.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/svg_canvas.hpp>
#include <optpipe/online.hpp>
#include <optpipe/testing/executor_model.hpp>
#include <optpipe/testing/paced_model.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <mutex>
#include <string>
#include <vector>

namespace program {
namespace {

using optpipe::online_event;
using optpipe::rank;

/// The observations of rank 0 in a run.
struct online_record {
    std::vector<double> seconds{};
    std::vector<online_event> log{};
    double planner_seconds = 0.0;
};

/// The number of steps, which is the same for all ranks. Once interrupted, no rank begins a step that none has begun.
class common_steps {
public:
    explicit common_steps(std::size_t steps) : end_{steps} {}

    /// Whether a rank is to run this step. All ranks run the first one.
    bool begin(std::size_t step, const interruption& interrupted) {
        const std::scoped_lock lock{mutex_};
        if (begun_ > 0 && interrupted.is_requested()) end_ = std::min(end_, begun_);
        if (step >= end_) return false;
        begun_ = std::max(begun_, step + 1);
        return true;
    }

private:
    std::mutex mutex_{};
    std::size_t end_;
    std::size_t begun_ = 0;
};

/// Whether transfers are slow in this step: they are in the second third.
bool is_slow(std::size_t step, std::size_t steps) { return step >= steps / 3 && step < 2 * (steps / 3); }

online_record run_steps(const run_options& options, const optpipe::problem& p, const optpipe::schedule& first,
                        const optpipe::online_setting& setting, const interruption& interrupted) {
    using optpipe::testing::tracing_model;
    using model_type = optpipe::testing::paced_model<tracing_model>;
    std::atomic<double> slowness{1.0};
    optpipe::threads::options how;
    how.copies = [&](rank, const optpipe::task_label& what, std::size_t) {
        return optpipe::on_clock(slowness.load() * duration_of(p, what.op), setting.time_unit);
    };
    how.messages = optpipe::threads::planned_messages(p, setting.time_unit);
    how.transfer = p.transfer;
    how.record_times = true;
    how.patience = std::max(how.patience, 2 * optpipe::on_clock(optpipe::objective_of(p, first), setting.time_unit));
    optpipe::threads::cluster cluster{p.graph.ranks(), how};
    optpipe::online_options online;
    online.steps = options.steps;
    online_record seen;
    common_steps steps{options.steps};
    optpipe::threads::on_all_ranks(cluster, [&](optpipe::threads::executor& here) {
        model_type model{tracing_model{p.graph.stages()}, p, setting.time_unit};
        optpipe::online_run run{p, first, here, model, cluster.control(here.self()), setting, online};
        const bool leads = here.self() == rank{0};
        for (std::size_t step = 0; steps.begin(step, interrupted); ++step) {
            if (leads) slowness.store(is_slow(step, options.steps) ? options.slow_link.value_or(1.0) : 1.0);
            const auto begin = std::chrono::steady_clock::now();
            run.step();
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            if (leads) seen.seconds.push_back(took.count());
            if (leads && options.progress)
                std::cerr << "step " << step + 1 << " of " << options.steps << ": "
                          << optpipe::format_number(1e3 * took.count(), 4) << " ms" << std::endl;
        }
        if (!leads) return;
        seen.log = run.controller()->log();
        seen.planner_seconds = run.controller()->planner().processor_seconds();
    });
    return seen;
}

/// A picture of step times over steps, with a line wherever all ranks switched plans.
std::string picture_of(const online_record& seen) {
    constexpr double left = 60.0, right = 880.0, top = 20.0, bottom = 300.0;
    const double most = 1.1 * *std::max_element(seen.seconds.begin(), seen.seconds.end());
    const auto steps = static_cast<double>(seen.seconds.size());
    const auto x = [&](double step) { return left + (right - left) * step / steps; };
    const auto y = [&](double seconds) { return bottom - (bottom - top) * seconds / most; };
    using canvas_type = optpipe::detail::svg_canvas;
    canvas_type canvas;
    canvas.add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 340\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n<style>.axis{stroke:#ccc}.steps{fill:none;stroke:#1f77b4;stroke-width:1.5}"
               ".taken{stroke:#d62728}.found{stroke:#ff7f0e;stroke-dasharray:4 3}</style>\n"
               "<rect width=\"900\" height=\"340\" fill=\"#fff\"/>\n");
    constexpr int ticks = 4;
    for (int i = 0; i <= ticks; ++i) {
        const double seconds = most * i / ticks;
        canvas.line("axis", left, y(seconds), right, y(seconds));
        canvas.text("", 4.0, y(seconds) + 4.0, optpipe::format_number(1e3 * seconds, 3) + " ms");
    }
    for (const auto& event : seen.log) {
        const bool taken = event.kind == online_event::kind_type::accepted;
        if (!taken && event.kind != online_event::kind_type::drift) continue;
        const auto at = x(static_cast<double>(event.step));
        canvas.line(taken ? "taken" : "found", at, top, at, bottom);
    }
    std::string path;
    for (std::size_t i = 0; i < seen.seconds.size(); ++i)
        path += (i == 0 ? "M" : "L") + canvas_type::coordinate(x(static_cast<double>(i) + 0.5)) + ' ' +
                canvas_type::coordinate(y(seen.seconds[i]));
    canvas.path("steps", path);
    canvas.text("", left, 325.0,
                "step time over " + std::to_string(seen.seconds.size()) +
                    " steps; red: another plan, dashed: costs have drifted");
    canvas.add("</svg>\n");
    return std::move(canvas).take();
}

void print(std::ostream& out, const online_record& seen) {
    for (const auto& event : seen.log)
        out << "step " << event.step << ", " << spelling(event.kind) << ": " << optpipe::printable(event.text, 400)
            << '\n';
    double all = 0.0;
    for (const double each : seen.seconds)
        all += each;
    const auto switches = std::count_if(seen.log.begin(), seen.log.end(), [](const online_event& event) {
        return event.kind == online_event::kind_type::accepted;
    });
    out << seen.seconds.size() << " steps of "
        << optpipe::format_number(1e3 * all / static_cast<double>(seen.seconds.size()), 4) << " ms in the mean, "
        << switches << " switch" << (switches == 1 ? "" : "es") << "; the planner took "
        << optpipe::format_number(100.0 * seen.planner_seconds / all, 3) << " % of a processor\n";
}

} // namespace

int run_online(const run_options& options, const optpipe::problem& p, const optpipe::schedule_report& plan,
               optpipe::clock_time time_unit, double bytes_per_unit, outputs& files, const interruption& interrupted) {
    const auto seen = run_steps(options, p, plan.schedule,
                                {{.bytes_per_unit = bytes_per_unit, .message_bytes = 64}, time_unit}, interrupted);
    files.write("--svg", [&] { return picture_of(seen); });
    const int status = files.status(interrupted.is_requested() ? stopped_by_signal : success);
    if (options.quiet) return status;
    auto& out = files.text();
    if (status == stopped_by_signal)
        out << "stopped after " << seen.seconds.size() << " of " << options.steps << " steps\n";
    print(out, seen);
    return status;
}

} // namespace program
#endif
