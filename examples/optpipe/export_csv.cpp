#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/outcome.hpp>
#include <optpipe/io/pytorch_csv.hpp>

#include <iostream>

namespace program {

int export_csv(const export_csv_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}}, {{"--out", options.out}}};
    const auto p = read_problem(options.problem);
    const auto [document, schedule] = read_schedule_for(p, options.schedule);
    const auto format = options.format == "compute_comms" ? optpipe::pytorch_format::compute_comms
                                                          : optpipe::pytorch_format::compute_only;
    if (options.unsharded_stages > 0 && format == optpipe::pytorch_format::compute_only) {
        std::cerr << "optpipe: --unshard is for --format compute_comms; PyTorch adds it to compute_only\n";
        return bad_input;
    }
    const auto rows = optpipe::to_pytorch(p, schedule, {format, options.without_storage, options.unsharded_stages});
    if (!rows) {
        std::cerr << "optpipe: " << name_of(options.schedule) << ": " << optpipe::describe(rows.why())
                  << (!options.without_storage && optpipe::uses_storage(p, schedule)
                          ? "; --without-storage leaves it out"
                          : "")
                  << '\n';
        return bad_input;
    }
    files.write("--out", [&] { return optpipe::to_csv(*rows); });
    return files.status(success);
}

} // namespace program
