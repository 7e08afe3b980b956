// Example 5: from a problem in a file to pictures.
//
//     example_05_from_file [PROBLEM.json [FOLDER]]
//
// reads a problem (optpipe.problem/1 to /3), plans it, and writes the schedule, a picture (SVG) and a trace into the
// folder. The default folder is the system's folder for temporary files. Open the trace with https://ui.perfetto.dev.
// The program `optpipe` does the same, with options.

#include <optpipe/io/json.hpp>
#include <optpipe/optpipe.hpp>

#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

namespace {

void plan(const std::string& file, const std::string& folder) {
    // Throws an input_error that lists all errors in the file, field by field.
    const auto problem = optpipe::read_problem(file);

    const auto schedule = optpipe::build_schedule(problem, optpipe::adaptive);
    if (!schedule) throw optpipe::error{problem.name + ": " + optpipe::describe(schedule.why())};
    const auto report = optpipe::make_report(problem, "adaptive", *schedule, optpipe::bounds_of(problem).best());

    // Each file appears complete or not at all.
    const auto base = folder + "/" + problem.name;
    optpipe::write_file(base + ".schedule.json", optpipe::schedule_to_json(problem, report));
    optpipe::write_file(base + ".svg", optpipe::schedule_to_svg(problem, report));
    optpipe::write_file(base + ".trace.json", optpipe::schedule_to_chrome_trace(problem, report));

    // The file reads back as a document with claims, and any reader can check every claim.
    const auto document = optpipe::read_schedule(base + ".schedule.json");
    if (auto wrong = optpipe::document_violations(problem, document); !wrong.empty())
        throw optpipe::input_error{base + ".schedule.json", std::move(wrong)};

    std::cout << optpipe::verdict(problem, report) << '\n' << "see " << base << ".svg\n";
}

} // namespace

int main(int count, char** arguments) {
    try {
        plan(count > 1 ? arguments[1] : "data/llama2-7b-4k-p4.json",
             count > 2 ? arguments[2] : std::filesystem::temp_directory_path().string());
    } catch (const optpipe::error& e) { // the root of all exceptions of this library
        std::cerr << e.what() << '\n';
        return 1;
    }
}
