#include "optpipe/program/lower.hpp"

#include "optpipe/program/check.hpp"
#include "optpipe/program/write_program.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace {

using optpipe::lowering_options;
using optpipe::message_lanes;
using optpipe::part_placement;
using optpipe::rank_program;

constexpr std::uint64_t first_seed = 7100;
constexpr optpipe::testing::problem_ranges ranges{.ranks = 4, .stages = 8, .microbatches = 6, .cells = 30};
/// Memory of random problems is a multiple of a quarter.
constexpr double bytes_per_unit = 4.0;

std::string all_of(const std::vector<optpipe::violation>& found) {
    std::string text;
    for (const auto& v : found)
        text += v.text() + "\n";
    return text;
}

template <class Visit> void for_random_schedules(std::size_t problems, Visit visit) {
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(problems); ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        for_each_quick_builder([&](const auto& build) {
            const std::string name{build.name};
            CAPTURE(name);
            if (const auto s = build_schedule(p, build)) visit(p, *s);
        });
    }
}

/// Counts waits that order nothing beyond the rest: a second derivation, by reachability within the rank.
std::size_t needless_waits(const rank_program& p) {
    const auto n = p.instructions.size();
    std::vector<std::size_t> recorded_by(p.markers);
    for (std::size_t i = 0; i < n; ++i)
        if (p.instructions[i].records != optpipe::no_marker) recorded_by[p.instructions[i].records.position()] = i;
    // The direct predecessors of each instruction: on its lane, and by markers.
    std::vector<std::vector<std::size_t>> before(n), waits(n);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i; j-- > 0;)
            if (p.instructions[j].lane == p.instructions[i].lane) {
                before[i].push_back(j);
                break;
            }
        for (std::size_t w = 0; w < p.instructions[i].waits; ++w)
            waits[i].push_back(recorded_by[p.waits[p.instructions[i].first_wait + w].position()]);
        before[i].insert(before[i].end(), waits[i].begin(), waits[i].end());
    }
    std::vector<std::vector<bool>> reaches(n, std::vector<bool>(n, false));
    std::size_t needless = 0;
    for (std::size_t i = 0; i < n; ++i) {
        for (const auto a : waits[i])
            for (const auto b : before[i])
                if (a != b && reaches[b][a]) ++needless;
        reaches[i][i] = true;
        for (const auto b : before[i])
            for (std::size_t k = 0; k < n; ++k)
                if (reaches[b][k]) reaches[i][k] = true;
    }
    return needless;
}

TEST_CASE("programs of random schedules pass the check, in the memory of the plan") {
    std::size_t schedules = 0;
    std::size_t offloads = 0;
    for_random_schedules(60, [&](const optpipe::problem& p, const optpipe::schedule& s) {
        const auto planned = measure(p, s);
        ++schedules;
        offloads += planned.offloads > 0 ? 1 : 0;
        for (const auto lanes : {message_lanes::separate, message_lanes::per_direction, message_lanes::single}) {
            CAPTURE(static_cast<int>(lanes));
            const auto programs =
                lower(p, s, {.bytes_per_unit = bytes_per_unit, .alignment = 1, .message_bytes = 8, .lanes = lanes});
            if (!programs) {
                // Only if two stashes are exchanged in no time.
                CHECK(std::any_of(p.storage.begin(), p.storage.end(), [](const auto& options) {
                    const auto& transfer = options.back().transfer;
                    return transfer && std::min(transfer->offload, transfer->reload) == optpipe::duration{};
                }));
                continue;
            }
            CHECK(all_of(check_programs(*programs)) == "");
            for (const auto& each : *programs) {
                CHECK(needless_waits(each) == 0);
                CHECK(each.device_bytes == std::lround(bytes_per_unit * planned.peak_memory[each.self].value()));
            }
        }
    });
    MESSAGE(schedules << " schedules, " << offloads << " of them with offloading");
    CHECK(schedules > oracle::random_cases(200));
    CHECK(offloads > oracle::random_cases(30));
}

TEST_CASE("every lane has the order of the schedule") {
    for_random_schedules(20, [&](const optpipe::problem& p, const optpipe::schedule& s) {
        const auto programs = lower(p, s, {.bytes_per_unit = bytes_per_unit});
        if (!programs) return;
        auto sorted = s.operations;
        std::sort(sorted.begin(), sorted.end(), optpipe::starts_before);
        for (const auto& each : *programs)
            for (const bool transfers : {false, true})
                for (const auto& lane_of : {optpipe::operation_kind::offload, optpipe::operation_kind::reload}) {
                    const auto belongs = [&](const optpipe::operation& op) {
                        if (optpipe::is_transfer(op.kind) != transfers) return false;
                        return !transfers || p.transfer.engines == 1 || op.kind == lane_of;
                    };
                    std::vector<optpipe::operation> planned;
                    std::vector<optpipe::operation> lowered;
                    for (const auto& timed : sorted)
                        if (p.rank_of(timed.op.stage) == each.self && belongs(timed.op)) planned.push_back(timed.op);
                    for (const auto& i : each.instructions)
                        if (i.kind != optpipe::instruction_kind::exchange && belongs(i.op)) lowered.push_back(i.op);
                    CHECK(planned == lowered);
                }
    });
}

TEST_CASE("a part of a stash that may not lie in pieces doesn't") {
    std::size_t larger = 0;
    std::size_t refused = 0;
    for_random_schedules(60, [&](const optpipe::problem& p, const optpipe::schedule& s) {
        const auto programs =
            lower(p, s, {.bytes_per_unit = bytes_per_unit, .alignment = 1, .placement = part_placement::contiguous});
        if (!programs) {
            ++refused;
            return;
        }
        CHECK(all_of(check_programs(*programs)) == "");
        const auto planned = measure(p, s);
        for (const auto& each : *programs) {
            for (const auto& b : each.buffers)
                CHECK(b.segments <= 1);
            const auto peak =
                static_cast<std::size_t>(std::lround(bytes_per_unit * planned.peak_memory[each.self].value()));
            CHECK(each.device_bytes >= peak);
            larger += each.device_bytes > peak ? 1 : 0;
        }
    });
    MESSAGE(larger << " ranks need more than the peak of the plan, " << refused << " schedules don't fit so");
}

TEST_CASE("what is refused") {
    optpipe::random_numbers random{first_seed};
    const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
    auto s = *build_schedule(p, optpipe::adaptive);
    auto vast = p;
    vast.memory_limit[optpipe::rank{0}] = optpipe::memory_size::unlimited();
    CHECK(lower(p, s));
    CHECK_FALSE(lower(p, s, {.bytes_per_unit = 1e30}));
    s.operations[0].start += optpipe::duration{1};
    s.operations[0].end += optpipe::duration{2};
    const auto wrong = lower(p, s);
    REQUIRE_FALSE(wrong);
    CHECK(describe(wrong.why()).find("breaks a rule of the problem: ") != std::string::npos);
}

} // namespace
