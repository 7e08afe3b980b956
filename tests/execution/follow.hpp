#pragma once

#include "execution/trace_run.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/testing/executor_model.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace follow {

/// Traces a lowered schedule and checks every operation: none starts later than planned. If the lanes are held back to
/// the plan, each operation runs at its time, and all memory is as planned. Returns the fault; `lowered` tells whether
/// there were programs at all.
class follower {
public:
    follower(const optpipe::problem& p, const optpipe::schedule& s, double bytes_per_unit)
        : p_{p}, s_{s}, bytes_per_unit_{bytes_per_unit}, number_{p.graph}, planned_{measure(p, s)},
          start_(number_.size(), optpipe::duration::unlimited()) {
        for (const auto& timed : s.operations)
            start_[number_(timed.op)] = timed.start;
    }

    std::string follow(optpipe::message_lanes lanes, bool& lowered) {
        const auto programs =
            lower(p_, s_, {.bytes_per_unit = bytes_per_unit_, .alignment = 1, .message_bytes = 16, .lanes = lanes});
        lowered = programs.has_value();
        if (!programs) return describe(programs.why());
        for (const auto& v : check_programs(*programs))
            return v.text();
        for (const bool paced : {true, false}) {
            std::vector<optpipe::testing::tracing_model> models(p_.graph.ranks(),
                                                                optpipe::testing::tracing_model{p_.graph.stages()});
            const auto result = trace(
                *programs, optpipe::testing::planned_costs(p_, paced ? &s_ : nullptr), [&](optpipe::rank r) -> auto& {
                    return models[r.position()];
                });
            if (result.failed) return result.failed->what();
            if (auto wrong = compare(result, paced); !wrong.empty()) return wrong;
        }
        return {};
    }

private:
    bool offloads_in_no_time(optpipe::rank r) const {
        for (const optpipe::stage at : p_.graph.all_stages()) {
            if (p_.rank_of(at) != r) continue;
            for (std::size_t i = 0; i < p_.storage_options(at); ++i)
                if (const auto transfer = p_.storage_of(at, i).transfer;
                    transfer && transfer->offload + transfer->reload <= optpipe::duration{})
                    return true;
        }
        return false;
    }
    std::string compare(const optpipe::testing::trace_result& result, bool paced) const {
        using optpipe::memory_arena;
        std::size_t count = 0;
        for (const auto& each : result.times) {
            const auto& program = *each.program;
            for (std::size_t i = 0; i < each.times.size(); ++i) {
                const auto& now = program.instructions[i];
                if (now.kind == optpipe::instruction_kind::exchange) continue;
                std::string late;
                for_each_operation_of(program, now, [&](const optpipe::operation_buffers& part) {
                    ++count;
                    const auto later = each.times[i].start - optpipe::testing::to_virtual(start_[number_(part.op)]);
                    if (later.count() > slack() || (paced && later.count() < -slack()))
                        late = to_string(part.op) + " starts " + std::to_string(later.count()) + " later than planned";
                });
                if (!late.empty()) return late;
            }
            const auto device = planned_.peak_memory[program.self];
            const auto host = planned_.peak_host_memory[program.self];
            // A stash that is on the host for no time is in no curve, but needs a place there.
            const bool as_planned = equals(program.host_bytes, host) || offloads_in_no_time(program.self);
            if (!equals(program.device_bytes, device) || !as_planned)
                return "another size of an arena than the peak of the plan";
            for (const auto arena : {memory_arena::device, memory_arena::host}) {
                const auto used = high_water(each, arena);
                const bool all_of_it = paced && (arena == memory_arena::device || !offloads_in_no_time(program.self));
                if (used > program.bytes_of(arena) || (all_of_it && used != program.bytes_of(arena)))
                    return "holds " + std::to_string(used) + " bytes at most, planned are " +
                           std::to_string(program.bytes_of(arena));
            }
        }
        return count == s_.operations.size() ? "" : "another number of operations";
    }
    /// Durations are rounded to a billionth of a unit, and the errors add up.
    [[nodiscard]] std::int64_t slack() const { return static_cast<std::int64_t>(s_.operations.size()) + 1000; }
    /// Each stash is rounded twice to integral bytes.
    [[nodiscard]] bool equals(std::size_t bytes, optpipe::memory_size planned) const {
        const auto cells = static_cast<double>(p_.graph.cells());
        const bool exact = bytes_per_unit_ == 4.0;
        return std::abs(static_cast<double>(bytes) - bytes_per_unit_ * planned.value()) <= (exact ? 1e-6 : cells);
    }

    const optpipe::problem& p_;
    const optpipe::schedule& s_;
    double bytes_per_unit_;
    optpipe::operation_numbering<optpipe::any_graph> number_;
    optpipe::measures planned_;
    std::vector<optpipe::duration> start_;
};

} // namespace follow
