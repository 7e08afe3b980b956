// Corrupted programs are either refused, or behave as before with any timing.
#include "execution/quick_adaptive.hpp"
#include "execution/trace_run.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/check.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/random_pairs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using optpipe::per_rank;
using optpipe::rank;
using optpipe::rank_program;
using optpipe::testing::tracing_model;

constexpr std::uint64_t first_seed = 3100;
constexpr optpipe::testing::problem_ranges ranges{
    .ranks = 3, .stages = 6, .microbatches = 5, .cells = 16, .offloading_percent = 80};

/// Makes one change to one program. The change may have no effect.
class vandal {
public:
    vandal(optpipe::random_numbers& random, rank_program& p) : random_{random}, p_{p} {}

    void act() {
        auto& i = any(p_.instructions);
        switch (random_.below(32)) {
        case 0:
            if (i.waits > 0) drop_wait(i);
            return;
        case 1:
            if (!p_.waits.empty()) any(p_.waits) = optpipe::marker_id{below(p_.markers + 2)};
            return;
        case 2: i.records = optpipe::no_marker; return;
        case 3: i.records = optpipe::marker_id{below(p_.markers + 2)}; return;
        case 4:
        case 5:
        case 6: return swap_neighbours();
        case 7: i.lane = static_cast<std::uint8_t>(below(p_.lanes.size() + 1)); return;
        case 8: i.op = some_operation(); return;
        case 9: i.buffers[below(optpipe::buffer_roles)] = some_buffer(); return;
        case 10:
            if (!p_.segments.empty()) any(p_.segments).offset = below(p_.device_bytes + 2);
            return;
        case 11:
            if (!p_.segments.empty()) any(p_.segments).bytes += below(3) - 1;
            return;
        case 12:
            if (!p_.buffers.empty()) any(p_.buffers).first_use = some_position();
            return;
        case 13:
            if (!p_.buffers.empty()) any(p_.buffers).last_use = some_position();
            return;
        case 14:
            if (!p_.parts.empty()) any(p_.parts).peer = rank{below(p_.ranks + 1)};
            return;
        case 15:
            if (!p_.parts.empty()) any(p_.parts).message = some_operation();
            return;
        case 16:
            if (!p_.parts.empty()) any(p_.parts).buffer = some_buffer();
            return;
        case 17:
            if (!p_.parts.empty()) std::swap(any(p_.parts), any(p_.parts));
            return;
        case 18: return erase();
        case 19: p_.instructions.push_back(i); return;
        case 20: p_.device_bytes -= std::min<std::size_t>(p_.device_bytes, below(3)); return;
        case 21: i.first_wait = some_position(); return;
        case 22: i.parts = some_position() % 3; return;
        case 23: p_.microbatches += below(2); return;
        case 24:
            if (!p_.links.empty()) any(p_.links).buffer = some_buffer();
            return;
        case 25:
            if (!p_.links.empty()) std::swap(any(p_.links), any(p_.links));
            return;
        case 26: i.links = some_position() % 3; return;
        case 27: i.pair = static_cast<std::uint32_t>(below(p_.pairs.size() + 1)); return;
        case 28: i.pair = optpipe::no_pair; return;
        case 29:
            if (!p_.pairs.empty()) any(p_.pairs).backward.op = some_operation();
            return;
        case 30:
            if (!p_.pairs.empty()) any(p_.pairs).backward.buffers[below(optpipe::buffer_roles)] = some_buffer();
            return;
        case 31:
            if (!p_.pairs.empty()) any(p_.pairs).backward.links = some_position() % 3;
            return;
        default: return;
        }
    }

private:
    template <class List> typename List::value_type& any(List& list) { return list[random_.below(list.size())]; }
    std::size_t below(std::size_t count) { return random_.below(count); }
    std::uint32_t some_position() { return static_cast<std::uint32_t>(below(p_.instructions.size() + 1)); }
    optpipe::buffer_id some_buffer() {
        return random_.chance(20) ? optpipe::no_buffer : optpipe::buffer_id{below(p_.buffers.size() + 1)};
    }
    optpipe::operation some_operation() {
        return {optpipe::stage{below(p_.stages + 1)}, optpipe::all_operation_kinds[below(6)],
                optpipe::microbatch{below(p_.microbatches + 1)}};
    }
    void drop_wait(optpipe::instruction& i) {
        const auto gone = i.first_wait + below(i.waits);
        --i.waits;
        p_.waits[gone] = p_.waits[i.first_wait + i.waits];
    }
    /// Swaps two instructions; all references to them are adapted.
    void swap_neighbours() {
        if (p_.instructions.size() < 2) return;
        const auto a = static_cast<std::uint32_t>(below(p_.instructions.size() - 1));
        std::swap(p_.instructions[a], p_.instructions[a + 1]);
        for (auto& b : p_.buffers)
            for (auto* use : {&b.first_use, &b.last_use})
                if (*use == a || *use == a + 1) *use = 2 * a + 1 - *use;
    }
    void erase() {
        const auto a = static_cast<std::uint32_t>(below(p_.instructions.size()));
        p_.instructions.erase(p_.instructions.begin() + a);
        for (auto& b : p_.buffers)
            for (auto* use : {&b.first_use, &b.last_use})
                if (*use > a) --*use;
    }

    optpipe::random_numbers& random_;
    rank_program& p_;
};

/// The fault when the lanes run in this order; empty if there is none.
std::string run_in_some_order(const per_rank<rank_program>& programs, const optpipe::problem& p, std::uint64_t seed) {
    std::vector<tracing_model> models(programs.size(), tracing_model{p.graph.stages()});
    optpipe::testing::trace_costs costs;
    costs.seed = seed;
    const auto result = trace(
        programs, costs, [&](rank r) -> auto& { return models[r.position()]; });
    if (result.failed) return result.failed->what();
    std::size_t weights = 0;
    for (const auto& m : models)
        weights += m.weights();
    return weights == p.graph.cells() ? "" : "something wasn't done";
}

struct counts {
    std::size_t tried = 0;
    std::size_t refused = 0;
    std::size_t accepted = 0;
    std::size_t deadlocks = 0;
    std::size_t races = 0;
};

void corrupt(const optpipe::problem& p, const optpipe::schedule& s, optpipe::random_numbers& random, counts& seen) {
    const auto lanes = static_cast<optpipe::message_lanes>(random.below(3));
    const auto sound = lower(p, s,
                             {.bytes_per_unit = 4.0,
                              .alignment = 1,
                              .message_bytes = 16,
                              .lanes = lanes,
                              .reduce = lanes == optpipe::message_lanes::separate});
    if (!sound) return;
    for (int i = 0; i < 25; ++i) {
        auto programs = *sound;
        vandal{random, programs[rank{random.below(programs.size())}]}.act();
        ++seen.tried;
        const auto found = check_programs(programs);
        if (!found.empty()) {
            ++seen.refused;
            seen.deadlocks += found[0].place == "deadlock" ? 1 : 0;
            seen.races += found[0].reason.find("nothing makes it wait") != std::string::npos ? 1 : 0;
            continue;
        }
        ++seen.accepted;
        for (std::uint64_t order = 1; order <= 3; ++order)
            CHECK(run_in_some_order(programs, p, order) == "");
    }
}

TEST_CASE("programs that were meddled with are refused, or harmless whatever the timing") {
    counts seen;
    std::size_t with_pairs = 0;
    for (std::uint64_t seed = first_seed; seen.tried < 1000; ++seed) {
        CAPTURE(seed);
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        if (const auto s = build_schedule(p, quick_adaptive)) corrupt(p, *s, random, seen);
        if (const auto s = build_schedule(p, optpipe::one_forward_one_backward)) corrupt(p, *s, random, seen);
        const auto paired = oracle::with_random_pairs(random, p);
        const auto alone = build_schedule(paired, quick_adaptive);
        if (!alone) continue;
        const auto s = oracle::with_all_pairs(paired, *alone);
        with_pairs += has_pairs(s.operations) ? 1 : 0;
        corrupt(paired, s, random, seen);
    }
    CHECK(with_pairs > 5);
    MESSAGE(seen.refused << " refused (" << seen.deadlocks << " deadlocks, " << seen.races << " races), "
                         << seen.accepted << " harmless");
    CHECK(seen.refused > 500);
    CHECK(seen.accepted > 100);
    CHECK(seen.deadlocks > 0);
    CHECK(seen.races > 50);
}

TEST_CASE("without the check, some of them would do harm") {
    // A race according to the check must be one: in some order of the lanes, the model must notice it.
    std::size_t races = 0;
    std::size_t noticed = 0;
    for (std::uint64_t seed = first_seed; races < 60; ++seed) {
        optpipe::random_numbers random{seed};
        const auto p = optpipe::testing::make_random_problem(random, ranges).problem;
        const auto s = build_schedule(p, quick_adaptive);
        const auto sound = s ? lower(p, *s, {.bytes_per_unit = 4.0, .alignment = 1, .message_bytes = 16})
                             : optpipe::outcome<per_rank<rank_program>>{};
        if (!sound) continue;
        for (const rank r : sound->indices())
            for (std::size_t i = 0; i < (*sound)[r].instructions.size() && races < 60; ++i) {
                auto programs = *sound;
                if (programs[r].instructions[i].waits == 0) continue;
                --programs[r].instructions[i].waits;
                const auto found = check_programs(programs);
                // A wait that isn't needed is implied by other ranks.
                if (found.empty()) continue;
                ++races;
                for (std::uint64_t order = 1; order <= 12; ++order)
                    if (!run_in_some_order(programs, p, order).empty()) {
                        ++noticed;
                        break;
                    }
            }
    }
    MESSAGE(noticed << " of " << races << " missing waits did harm in one of 12 orders");
    CHECK(noticed > races / 4);
}

/// Moves the instruction at `from` before all others.
void move_to_front(rank_program& p, std::size_t from) {
    std::rotate(p.instructions.begin(), p.instructions.begin() + static_cast<std::ptrdiff_t>(from),
                p.instructions.begin() + static_cast<std::ptrdiff_t>(from) + 1);
    for (auto& b : p.buffers)
        for (auto* use : {&b.first_use, &b.last_use})
            *use = *use == from ? 0 : *use < from ? *use + 1 : *use;
}

TEST_CASE("a circle is shown rank by rank") {
    const auto unit = optpipe::duration{1};
    const optpipe::stage_costs costs{unit, unit, unit, optpipe::memory_size{1}, optpipe::memory_size{0.5}, {}};
    const auto p = to_problem(make_problem(optpipe::graph<2, 2>{}, optpipe::uniform_memory{costs}));
    const auto s = *build_schedule(p, optpipe::one_forward_one_backward);
    auto programs = *lower(p, s, {.bytes_per_unit = 4.0, .alignment = 1, .lanes = optpipe::message_lanes::single});
    REQUIRE(check_programs(programs).empty());
    // Rank 0 requests the first gradient before it sends the activation that the gradient depends on.
    std::size_t at = 0;
    for (const auto& own = programs[rank{0}];; ++at)
        if (own.instructions[at].kind == optpipe::instruction_kind::exchange &&
            own.parts[own.instructions[at].first_part].side == optpipe::exchange_part::side_kind::receive)
            break;
    move_to_front(programs[rank{0}], at);
    const auto found = check_programs(programs);
    REQUIRE(found.size() == 1);
    CHECK(found[0].text() == R"(deadlock: each of these waits for another, none can go on
rank 0
  [communication] 0: receive of 1B0 from rank 1  <-- HERE
  [communication] 2: send of 0F0 to rank 1  <-- HERE
rank 1
  [communication] 0: receive of 0F0 from rank 0  <-- HERE
  [compute] 1: 1F0  <-- HERE
  [compute] 3: 1B0  <-- HERE
  [communication] 2: receive of 0F1 from rank 0
  [communication] 4: send of 1B0 to rank 0  <-- HERE)");
    CHECK(run_in_some_order(programs, p, 1).find("nobody comes for it") != std::string::npos);
}

} // namespace
