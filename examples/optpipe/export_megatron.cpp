#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/outcome.hpp>
#include <optpipe/io/megatron.hpp>

#include <iostream>
#include <string>

namespace program {

int export_megatron(const export_megatron_options& options) {
    outputs files{{{"PROBLEM", options.problem}, {"SCHEDULE", options.schedule}}, {{"--out", options.out}}};
    const auto p = read_problem(options.problem);
    const auto [document, schedule] = read_schedule_for(p, options.schedule);
    optpipe::megatron_options how{options.layers, options.offload_modules};
    if (how.layers.size() == 1) how.layers.resize(p.graph.stages(), how.layers.front());
    if (!how.layers.empty() && how.layers.size() != p.graph.stages())
        throw optpipe::error{"--layers: needs one number, or one for each of the " + std::to_string(p.graph.stages()) +
                             " stages, has " + std::to_string(how.layers.size())};
    const auto settings = optpipe::to_megatron(p, schedule, how);
    if (!settings) {
        std::cerr << "optpipe: " << name_of(options.schedule) << ": " << optpipe::describe(settings.why()) << '\n';
        return bad_input;
    }
    const auto text = optpipe::to_text(p, schedule, *settings);
    files.write("--out", [&] { return text; });
    if (options.out.empty()) std::cout << text;
    return files.status(success);
}

} // namespace program
