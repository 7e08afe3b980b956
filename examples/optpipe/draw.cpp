#include "commands.hpp"
#include <optpipe/optpipe.hpp>

#include <iostream>

namespace program {

int draw(const draw_options& options) {
    const auto p = optpipe::read_problem(options.problem);
    const auto document = optpipe::read_schedule(options.schedule);
    auto violations = document.unreadable;
    const auto timed = optpipe::to_schedule(p, document);
    for (const auto& op : timed.operations)
        if (!optpipe::operation_numbering{p.graph}.contains(op.op))
            violations.push_back({"operations", to_string(op.op) + ": no such stage or microbatch"});
    if (!violations.empty()) throw optpipe::input_error{options.schedule, std::move(violations)};
    if (const auto broken = optpipe::validate(p, timed); !broken.empty())
        std::cerr << "optpipe: note: the schedule breaks " << broken.size()
                  << " rules, the first: " << broken.front().text() << '\n';
    auto report = optpipe::make_report(p, document.method, timed);
    // A bound that the file claims is drawn as its author's; nothing is proven here.
    if (document.bound && *document.bound <= report.measures.objective) report.bound = document.bound;
    optpipe::write_file(options.svg, optpipe::schedule_to_svg(p, report));
    return success;
}

} // namespace program
