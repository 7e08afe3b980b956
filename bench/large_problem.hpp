// Problems with many ranks and microbatches, for the benchmarks.
#pragma once

#include <optpipe/pipeline/problem.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace bench {

using namespace optpipe;

/// Equal stages with unit passes, or stages with the passes of a GPT on A100s that differ by up to a tenth; a limit
/// that is this share of 1F1B's memory on its first rank; and transfers whose round trip takes half as long as the
/// passes, or none.
struct large_setting {
    bool unit;
    double memory;
    bool offloads;
};

inline problem make_large(const large_setting& how, std::size_t ranks, std::size_t microbatches) {
    const stage_costs unit{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{1.0}, memory_size{0.5}, {}};
    const stage_costs real{duration{18.5}, duration{18.1}, duration{9.3}, memory_size{1.0}, memory_size{0.5}, {}};
    per_stage<stage_costs> costs(ranks, how.unit ? unit : real);
    for (const stage s : costs.indices()) {
        auto& c = costs[s];
        if (!how.unit) {
            // Up to a tenth more, in no particular order.
            const double factor = 1.0 + 0.01 * static_cast<double>(s.position() * 7 % 11);
            c.forward = factor * c.forward;
            c.backward_input = factor * c.backward_input;
            c.backward_weight = factor * c.backward_weight;
        }
        if (how.offloads) c.transfer = transfer_times{0.25 * c.work(), 0.25 * c.work()};
    }
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), std::move(costs)};
    if (!how.unit) p.p2p = hop_times<>{duration{0.6}};
    for (auto& limit : p.memory_limit)
        limit = memory_size{how.memory * static_cast<double>(ranks)};
    return p;
}

/// Both kinds of costs, 1, 0.75 and 0.5 of 1F1B's memory, without and with offloading.
inline std::vector<large_setting> large_settings() {
    std::vector<large_setting> all;
    for (const bool unit : {true, false})
        for (const double memory : {1.0, 0.75, 0.5})
            for (const bool offloads : {false, true})
                all.push_back({unit, memory, offloads});
    return all;
}

} // namespace bench
