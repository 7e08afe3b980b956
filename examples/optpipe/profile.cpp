#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/io/json_profile.hpp>
#include <optpipe/io/text_profile.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/schedule/profile/cost_profile.hpp>
#include <optpipe/schedule/profile/drift.hpp>
#include <optpipe/schedule/profile/measured_costs.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace program {
namespace {

optpipe::cost_profile parse_profile_for(const optpipe::problem& p, const std::string& text, const std::string& path) {
    auto profile = optpipe::parse_profile(text, name_of(path));
    if (auto wrong = optpipe::profile_violations(p, profile); !wrong.empty())
        throw optpipe::input_error{name_of(path), std::move(wrong)};
    return profile;
}

optpipe::schedule parse_step_for(const optpipe::problem& p, const std::string& text, const std::string& path) {
    auto file = check_training_schedule(p, optpipe::parse_schedule(text, name_of(path)), path);
    if (file.schedule.operations.empty())
        throw optpipe::input_error{name_of(path), {{"operations", "there are none, nothing was measured"}}};
    return std::move(file.schedule);
}

/// Appends the steps of one file.
void add_file(optpipe::cost_profile& profile, const optpipe::problem& p, const std::string& path) {
    const auto text = read_input(path, optpipe::detail::most_schedule_bytes);
    if (text.find("\"optpipe.profile/") != std::string::npos) return profile.append(parse_profile_for(p, text, path));
    try {
        profile.add(p, parse_step_for(p, text, path));
    } catch (const optpipe::input_error& e) {
        throw optpipe::input_error{name_of(path), e.violations()};
    }
}

} // namespace

int profile(const profile_options& options) {
    std::vector<named_file> inputs{{"PROBLEM", options.problem.path}};
    for (const auto& path : options.measured)
        inputs.push_back({"MEASURED", path});
    outputs files{inputs, {{"--out", options.out}, {"--save", options.save}}};
    const auto p = read_problem(options.problem);
    optpipe::cost_profile profile{std::numeric_limits<std::size_t>::max()};
    for (const auto& path : options.measured)
        add_file(profile, p, path);
    if (options.warm_up) profile.set_warm_up(options.warm_up);
    files.write("--out", [&] { return optpipe::problem_to_json(optpipe::with_measured_costs(p, profile)); });
    files.write("--save", [&] { return optpipe::profile_to_json(p, profile); });
    if (!options.quiet) {
        optpipe::write_profile(files.text(), p, profile);
        optpipe::write_drift(files.text(), optpipe::drift(p, profile));
    }
    return files.status(success);
}

} // namespace program
