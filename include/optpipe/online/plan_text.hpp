#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/online/controller.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/operation.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::detail {

/// A plan as a text: the length of the problem's JSON, the problem's JSON, and the schedule's JSON.
[[nodiscard]] std::string plan_to_text(const online_plan& plan);
/// Reads a plan and lowers it to the programs of all ranks. Throws `error` if the text isn't a plan or can't be
/// lowered.
[[nodiscard]] per_rank<rank_program> programs_from_text(const std::string& text, const lowering_options& how);

/// Instruction times of one rank in one step.
struct step_times {
    std::uint64_t step = 0;
    std::uint64_t version = 0;
    std::vector<execution::task_times> times{};
};

/// "12 1 100 250 ...": step, version, and start and end of each instruction in nanoseconds.
[[nodiscard]] std::string times_to_text(const step_times& of);
[[nodiscard]] step_times times_from_text(std::string_view text);

/// Durations of a probed transfer (`online/probe_rounds.hpp`).
struct probe_times {
    std::uint64_t step = 0;
    operation offload{};
    std::chrono::nanoseconds out{};
    std::chrono::nanoseconds in{};
};

inline constexpr std::string_view probe_begins = "probe";

/// "probe 12 3 1 100 250": step, stage, storage option, and nanoseconds of the offload and of the reload.
[[nodiscard]] std::string probe_to_text(const probe_times& of);
/// The inverse of `probe_to_text`. Empty if the text isn't about a probe.
[[nodiscard]] std::optional<probe_times> probe_from_text(std::string_view text);

} // namespace optpipe::detail

#if OPTPIPE_DEFINES(online)
#include "optpipe/core/error.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/io/json_schedule.hpp"
#include "optpipe/io/schedule_document.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <system_error>
#include <utility>

namespace optpipe::detail {

/// Reads the numbers at the start of a text one by one.
class number_reader {
public:
    explicit number_reader(std::string_view text) : at_{text.data()}, end_{text.data() + text.size()} {}

    [[nodiscard]] std::optional<std::int64_t> next() {
        while (at_ != end_ && *at_ == ' ')
            ++at_;
        std::int64_t value = 0;
        const auto [rest, why] = std::from_chars(at_, end_, value);
        if (why != std::errc{}) return std::nullopt;
        at_ = rest;
        return value;
    }

private:
    const char* at_;
    const char* end_;
};

OPTPIPE_INLINE std::string plan_to_text(const online_plan& plan) {
    const auto p = problem_to_json(plan.problem);
    return std::to_string(p.size()) + '\n' + p +
           schedule_to_json(plan.problem, make_report(plan.problem, plan.method, *plan.schedule));
}

OPTPIPE_INLINE per_rank<rank_program> programs_from_text(const std::string& text, const lowering_options& how) {
    const auto line = text.find('\n');
    const auto length = number_reader{text}.next();
    if (!length || *length < 0 || line == std::string::npos ||
        static_cast<std::size_t>(*length) > text.size() - line - 1)
        throw error{"a plan that is no plan"};
    const auto rest = std::string_view{text}.substr(line + 1);
    const auto p = parse_problem(rest.substr(0, static_cast<std::size_t>(*length)), "plan");
    const auto s = to_schedule(p, parse_schedule(rest.substr(static_cast<std::size_t>(*length)), "plan"));
    return lower(p, s, how).value();
}

OPTPIPE_INLINE std::string times_to_text(const step_times& of) {
    auto text = std::to_string(of.step) + ' ' + std::to_string(of.version);
    for (const auto& each : of.times)
        text += ' ' + std::to_string(each.start.count()) + ' ' + std::to_string(each.end.count());
    return text;
}

OPTPIPE_INLINE std::string probe_to_text(const probe_times& of) {
    auto text = std::string{probe_begins};
    for (const std::int64_t number :
         std::array<std::int64_t, 5>{static_cast<std::int64_t>(of.step), of.offload.stage.value(), of.offload.storage,
                                     of.out.count(), of.in.count()})
        text += ' ' + std::to_string(number);
    return text;
}

OPTPIPE_INLINE std::optional<probe_times> probe_from_text(std::string_view text) {
    if (!text.starts_with(probe_begins)) return std::nullopt;
    number_reader numbers{text.substr(probe_begins.size())};
    std::array<std::int64_t, 5> all{};
    for (auto& each : all) {
        const auto next = numbers.next();
        if (!next || *next < 0) throw error{"times of a probe that are none"};
        each = *next;
    }
    const operation offload{stage{static_cast<std::size_t>(all[1])}, operation_kind::offload, microbatch{0},
                            static_cast<storage_index>(all[2])};
    return probe_times{static_cast<std::uint64_t>(all[0]), offload, std::chrono::nanoseconds{all[3]},
                       std::chrono::nanoseconds{all[4]}};
}

OPTPIPE_INLINE step_times times_from_text(std::string_view text) {
    number_reader numbers{text};
    step_times result;
    const auto step = numbers.next();
    const auto version = numbers.next();
    if (!step || !version) throw error{"times of a step that are none"};
    result.step = static_cast<std::uint64_t>(*step);
    result.version = static_cast<std::uint64_t>(*version);
    for (auto start = numbers.next(); start; start = numbers.next()) {
        const auto end = numbers.next();
        if (!end) throw error{"times of a step that end within an instruction"};
        result.times.push_back({std::chrono::nanoseconds{*start}, std::chrono::nanoseconds{*end}});
    }
    return result;
}

} // namespace optpipe::detail
#endif
