#include "plan_output.hpp"

#include "commands.hpp"
#include "plan_json.hpp"
#include "terminal.hpp"
#include <optpipe/io/chrome_trace.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/io/write_json.hpp>

#include <iostream>

namespace program {

void write_plan(outputs& files, const std::string& schedule, const optpipe::problem& p,
                const optpipe::schedule_report& report, const optpipe::html_options& page) {
    files.write("--html", [&] { return optpipe::schedule_to_html(p, report, page); });
    files.write(schedule, [&] { return optpipe::schedule_to_json(p, report); });
    files.write("--svg", [&] { return optpipe::schedule_to_svg(p, report); });
    files.write("--trace", [&] { return optpipe::schedule_to_chrome_trace(p, report); });
}

void print_plan(std::ostream& out, const optpipe::problem& p, const optpipe::schedule_report& report,
                const std::string& story, const std::vector<optpipe::baseline>& others) {
    optpipe::grid_options grid;
    grid.width = columns();
    optpipe::write_grid(out, p, report, grid);
    optpipe::write_storage_uses(out, p, report.schedule);
    out << story << optpipe::verdict(p, report, others) << '\n';
}

int refuse(bool json, const std::string& input, const optpipe::problem& p, const std::string& reason) {
    if (json) std::cout << json_of_refusal(p, reason);
    std::cerr << "optpipe: " << name_of(input) << ": " << reason << '\n';
    return no_schedule;
}

std::string unit_of(const optpipe::problem& p) {
    return p.time_unit.empty() ? "" : " " + optpipe::printable(p.time_unit, 20);
}

bool is_made_for_it(const optpipe::refusal& why) { return why.reason != optpipe::refusal_reason::does_not_apply; }

} // namespace program
