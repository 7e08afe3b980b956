#include "commands.hpp"
#include "files.hpp"
#include <optpipe/core/format.hpp>
#include <optpipe/core/outcome.hpp>
#include <optpipe/io/pytorch_actions.hpp>
#include <optpipe/io/pytorch_csv.hpp>
#include <optpipe/io/pytorch_messages.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/bounds/structural_bounds.hpp>
#include <optpipe/schedule/time/evaluate.hpp>

#include <cstddef>
#include <iostream>
#include <string>

namespace program {
namespace {

int refuse_csv(const std::string& source, const optpipe::problem& p, const optpipe::refusal& why) {
    std::cerr << "optpipe: " << source << ": " << optpipe::reason_text(p, why) << '\n';
    return no_schedule;
}

/// Prints a note if the file may deadlock with messages that aren't small.
void note_deadlock(const std::string& source, const optpipe::problem& p, const optpipe::pytorch_schedule& file) {
    if (!optpipe::is_compute_comms(file)) return;
    const auto stuck = optpipe::stuck_actions(p.graph, file, optpipe::pytorch_sends::rendezvous);
    if (!stuck.empty())
        std::cerr << "optpipe: note: " << source << ": may deadlock: where every send waits for its receive, "
                  << stuck.front() << '\n';
}

} // namespace

int import_csv(const import_csv_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"CSV", options.csv}}, {{"--out", options.out}}};
    auto p = read_problem(options.problem);
    constexpr std::size_t most_bytes = std::size_t{1} << 28U;
    const auto source = name_of(options.csv);
    const auto file = optpipe::parse_pytorch_csv(read_input(options.csv, most_bytes), source);
    const auto order = optpipe::order_of(p, file, source);
    if (!order) return refuse_csv(source, p, order.why());
    note_deadlock(source, p, file);
    auto bound = optpipe::bounds_of(p).best();
    auto timed = optpipe::time_order(p, *order);
    if (!timed && timed.why().reason == optpipe::refusal_reason::over_memory) {
        // PyTorch knows no memory limit, so its schedule is measured without one, and compared with plans within the
        // limit.
        std::cerr << "optpipe: note: " << source << ": " << optpipe::reason_text(p, timed.why()) << '\n';
        for (auto& limit : p.memory_limit)
            limit = optpipe::memory_size::unlimited();
        timed = optpipe::time_order(p, *order);
        bound = optpipe::bounds_of(p).best();
    }
    if (!timed) return refuse_csv(source, p, timed.why());
    const auto report = optpipe::make_report(p, "imported", *timed, bound);
    files.write("--out", [&] { return optpipe::schedule_to_json(p, report); });
    files.text() << "objective=" << optpipe::format_number(report.measures.objective, 9) << '\n';
    return files.status(success);
}

} // namespace program
