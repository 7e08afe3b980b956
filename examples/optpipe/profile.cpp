#include "commands.hpp"
#include "files.hpp"
#include "schedule_file.hpp"
#include <optpipe/core/error.hpp>
#include <optpipe/io/json_profile.hpp>
#include <optpipe/io/json_trace.hpp>
#include <optpipe/io/text_profile.hpp>
#include <optpipe/io/trace_names.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/milp/io/read_text.hpp>
#include <optpipe/schedule/profile/cost_profile.hpp>
#include <optpipe/schedule/profile/drift.hpp>
#include <optpipe/schedule/profile/measured_costs.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
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

/// Reads a trace into memory only if it is compressed.
void add_trace(optpipe::cost_profile& profile, const optpipe::problem& p, const std::string& path, std::uint64_t first,
               const optpipe::trace_options& how) {
    constexpr std::size_t most_bytes = std::size_t{1} << 34U;
    if (path == "-") return optpipe::add_trace(profile, p, first, stdin, name_of(path), how);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path.c_str(), "rb"), std::fclose};
    const auto refuse = [&] {
        throw optpipe::file_error{"cannot read '" + name_of(path) + "': " + std::generic_category().message(errno)};
    };
    if (!file) refuse();
    std::array<char, 2> start{};
    const auto count = std::fread(start.data(), 1, start.size(), file.get());
    if (std::ferror(file.get()) != 0) refuse();
    if (optpipe::milp::detail::is_gzip({start.data(), count}))
        return optpipe::add_trace(profile, p, first, optpipe::milp::read_text(path, most_bytes), name_of(path), how);
    std::rewind(file.get());
    optpipe::add_trace(profile, p, first, file.get(), name_of(path), how);
    if (std::ferror(file.get()) != 0) refuse();
}

/// Appends the steps of the traces, which are those of different ranks.
void add_traces(optpipe::cost_profile& profile, const optpipe::problem& p, const profile_options& options) {
    optpipe::trace_options how;
    for (const auto& text : options.ranges)
        how.patterns.push_back(optpipe::range_pattern::parse(text, "--range"));
    const bool have_stages = std::all_of(how.patterns.begin(), how.patterns.end(),
                                         [](const optpipe::range_pattern& each) { return each.has_stage(); });
    const bool is_one_per_rank = options.traces.size() == p.graph.ranks();
    optpipe::schedule plan;
    if (!options.plan.empty()) {
        plan = read_schedule_for(p, options.plan).schedule;
        how.plan = &plan;
    }
    optpipe::cost_profile traced{std::numeric_limits<std::size_t>::max()};
    for (std::size_t i = 0; i < options.traces.size(); ++i) {
        if (!have_stages && is_one_per_rank) how.rank = optpipe::rank{i};
        add_trace(traced, p, options.traces[i], 0, how);
    }
    profile.append(traced);
}

} // namespace

int profile(const profile_options& options) {
    std::vector<named_file> inputs{{"PROBLEM", options.problem.path}};
    for (const auto& path : options.measured)
        inputs.push_back({"MEASURED", path});
    for (const auto& path : options.traces)
        inputs.push_back({"--trace", path});
    if (!options.plan.empty()) inputs.push_back({"--plan", options.plan});
    if (options.measured.empty() && options.traces.empty())
        throw optpipe::error{"MEASURED or --trace: one of them must be given"};
    outputs files{inputs, {{"--out", options.out}, {"--save", options.save}}};
    const auto p = read_problem(options.problem);
    optpipe::cost_profile profile{std::numeric_limits<std::size_t>::max()};
    for (const auto& path : options.measured)
        add_file(profile, p, path);
    if (!options.traces.empty()) add_traces(profile, p, options);
    if (options.warm_up.value_or(0) > 0 && *options.warm_up >= profile.steps())
        throw optpipe::error{"--warm-up: must leave a step; there " +
                             (profile.steps() == 1 ? "is 1" : "are " + std::to_string(profile.steps()))};
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
