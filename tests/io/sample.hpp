#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/report.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sample {

using namespace optpipe;

/// Two ranks with one stage each and two microbatches; F and I take 2, W and transfers 1, a hop 1.
inline problem two_ranks() {
    stage_costs c{duration{2}, duration{2}, duration{1}, memory_size{2}, memory_size{1}, {}};
    c.transfer = transfer_times{duration{1}, duration{1}};
    per_stage<rank> where(2);
    where[stage{1}] = rank{1};
    problem p{any_graph{2, 2, placement::map<>{where}}, per_stage<stage_costs>(2, c)};
    p.p2p = hop_times<>{duration{1}};
    p.memory_limit[rank{0}] = memory_size{5};
    p.name = "sample";
    p.time_unit = "ms";
    p.memory_unit = "GB";
    return p;
}

inline timed_operation at(const operation& op, double start, double end) {
    return {op, duration{start}, duration{end}};
}

/// A valid schedule with one offload, where microbatch 1 has full backwards. Not in the order of its starts.
inline schedule by_hand(const problem& p) {
    const stage s0{0};
    const stage s1{1};
    const microbatch m0{0};
    const microbatch m1{1};
    schedule s{p.graph, {}};
    s.operations = {
        at(forward(s1, m0), 3, 5),          at(backward_input(s1, m0), 5, 7),    at(forward(s1, m1), 7, 9),
        at(backward_weight(s1, m0), 9, 10), at(backward(s1, m1), 10, 13),        at(forward(s0, m0), 0, 2),
        at(forward(s0, m1), 2, 4),          at(offload_of(s0, m0), 2, 3),        at(reload_of(s0, m0), 6, 7),
        at(backward_input(s0, m0), 8, 10),  at(backward_weight(s0, m0), 10, 11), at(backward(s0, m1), 14, 17)};
    return with_storage_of_transfers(p, s);
}

inline schedule_report report_of(const problem& p, std::optional<duration> bound = duration{13.6}) {
    const auto s = by_hand(p);
    return {"by hand", s, measure(p, s), bound};
}

/// The same two ranks; the stage of rank 0 may be recomputed in 2.
inline problem recomputing() {
    auto p = two_ranks();
    p.set_stage(stage{0}, p.costs[stage{0}]);
    p.storage[stage{0}].push_back({"ahead", memory_size{0.5}, duration{2}, {}, {}, {}});
    p.storage[stage{0}].push_back(
        {"offload", memory_size{2}, {}, {}, memory_size{2}, transfer_times{duration{1}, duration{1}}});
    return p;
}

/// A valid schedule of it that recomputes microbatch 0 while rank 0 would wait.
inline schedule_report recomputing_report(const problem& p) {
    const stage s0{0};
    const stage s1{1};
    const microbatch m0{0};
    const microbatch m1{1};
    schedule s{p.graph, {}};
    s.operations = {at(forward(s0, m0), 0, 2),      at(forward(s0, m1), 2, 4),    at(forward(s1, m0), 3, 5),
                    at(recompute_of(s0, m0), 4, 6), at(backward(s1, m0), 5, 8),   at(forward(s1, m1), 8, 10),
                    at(backward(s0, m0), 9, 12),    at(backward(s1, m1), 10, 13), at(backward(s0, m1), 14, 17)};
    for (auto& timed : s.operations)
        timed.op.storage = timed.op.stage == s0 && timed.op.microbatch == m0 ? 1 : 0;
    return {"by hand", s, measure(p, s), duration{13.6}};
}

/// A graph on two ranks: stage 0 feeds a group of stages 1 and 2, the latter from afar. Microbatches 0 and 1 are the
/// slices of one sequence, and microbatch 2 costs more.
inline problem branching() {
    const stage_costs c{duration{2}, duration{2}, duration{1}, memory_size{2}, memory_size{1}, {}};
    per_stage<rank> where(3);
    where[stage{2}] = rank{1};
    const edges::any feeds{3, {{stage{0}, stage{1}}, {stage{0}, stage{2}, 2.0, memory_size{0.5}}}};
    problem p{any_graph{2, 3, placement::map<>{where}, feeds}, per_stage<stage_costs>(3, c)};
    p.p2p = hop_times<>{duration{1}};
    p.groups.add(std::vector{stage{1}, stage{2}}, duration{0.3}, 3);
    std::vector<cost_factors> factors(3);
    factors[2] = {1.5, 1.5, 1.5, 2.0, 3.0};
    p.microbatches.set_factors(factors);
    p.microbatches.set_sequences(std::vector{0, 0, 1});
    p.name = "branching";
    return p;
}

/// A valid schedule of it: all forwards, then all backwards, from the last microbatch on.
inline schedule_report branching_report(const problem& p) {
    order o{p.graph, {}};
    for (const std::uint32_t m : {0U, 1U, 2U})
        for (const std::uint32_t s : {0U, 1U, 2U})
            o.operations.push_back(forward(stage{s}, microbatch{m}));
    for (const std::uint32_t m : {2U, 1U, 0U})
        for (const std::uint32_t s : {2U, 1U, 0U})
            o.operations.push_back(backward(stage{s}, microbatch{m}));
    const auto s = *simulate(p, o);
    return {"by hand", s, measure(p, s), {}};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (auto i = text.find(part); i != std::string::npos; i = text.find(part, i + 1))
        ++found;
    return found;
}

} // namespace sample
