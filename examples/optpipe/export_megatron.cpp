#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/core/outcome.hpp>
#include <optpipe/core/parse_number.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/megatron.hpp>

#include <cstddef>
#include <iostream>
#include <string>
#include <string_view>

namespace program {
namespace {

std::size_t count_of(std::string_view text, const std::string& whole) {
    constexpr std::size_t most_layers = 100000;
    const auto count = optpipe::parse_number<std::size_t>(text);
    if (!count || *count > most_layers)
        throw optpipe::error{"--layers: must be numbers up to 100000, as 8, or 7+1 with layers of multi-token "
                             "prediction; is " +
                             optpipe::printable(whole, 60)};
    return *count;
}

/// Reads texts such as "8" or "7+1": one for all stages, or one per stage.
optpipe::megatron_options options_from(const export_megatron_options& given, std::size_t stages) {
    optpipe::megatron_options how{{}, given.offload_modules, {}};
    for (const auto& text : given.layers) {
        const std::string_view both{text};
        const auto plus = both.find('+');
        how.layers.push_back(count_of(both.substr(0, plus), text));
        how.prediction_layers.push_back(plus == both.npos ? 0 : count_of(both.substr(plus + 1), text));
    }
    if (how.layers.size() == 1) {
        how.layers.resize(stages, how.layers.front());
        how.prediction_layers.resize(stages, how.prediction_layers.front());
    }
    if (!how.layers.empty() && how.layers.size() != stages)
        throw optpipe::error{"--layers: needs one number, or one for each of the " + std::to_string(stages) +
                             " stages, has " + std::to_string(how.layers.size())};
    return how;
}

} // namespace

int export_megatron(const export_megatron_options& options) {
    outputs files{{{"PROBLEM", options.problem.path}, {"PLAN", options.schedule}}, {{"--out", options.out}}};
    const auto p = read_problem(options.problem);
    const auto [document, schedule] = read_schedule_for(p, options.schedule);
    const auto settings = optpipe::to_megatron(p, schedule, options_from(options, p.graph.stages()));
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
