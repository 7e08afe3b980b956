#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "oracle/golden.hpp"

#include <cstddef>

/// Problems in v placement.
namespace oracle {

inline optpipe::any_graph v_graph(std::size_t ranks, std::size_t microbatches) {
    using namespace optpipe;
    per_stage<rank> map(2 * ranks);
    for (const stage s : map.indices())
        map[s] = placement::v{}.rank_of(s, ranks);
    return any_graph{ranks, microbatches, placement::map<>{map}};
}

/// A problem with equal stages; `c` are the costs of one.
inline optpipe::problem v_problem(std::size_t ranks, std::size_t microbatches, const profile& c, double activation,
                                  double weight_stash) {
    using namespace optpipe;
    const stage_costs each{duration{c.forward},     duration{c.backward_input}, duration{c.backward_weight},
                           memory_size{activation}, memory_size{weight_stash},  {}};
    problem p{v_graph(ranks, microbatches), per_stage<stage_costs>(2 * ranks, each)};
    p.p2p = hop_times<>{duration{c.p2p}};
    return p;
}
/// A problem with unit durations and stashes held from F to W, at most `limit` of them.
inline optpipe::problem unit_v_problem(std::size_t ranks, std::size_t microbatches, double limit) {
    auto p = v_problem(ranks, microbatches, {1, 1, 1, 0}, 1.0, 1.0);
    p.objective = optpipe::objective_kind::span;
    for (auto& each : p.memory_limit)
        each = optpipe::memory_size{limit};
    return p;
}

/// A problem of up to 16 ranks and 64 microbatches, all costs and stashes unequal, with and without limits and
/// communication.
inline optpipe::problem random_v_problem(optpipe::random_numbers& random) {
    using namespace optpipe;
    const auto ranks = random.between(1, 16);
    const auto quarters = [&](std::size_t most) { return 0.25 * static_cast<double>(random.between(1, most)); };
    auto p = v_problem(ranks, random.between(1, 64), {1, 1, 1, 0}, 1.0, 1.0);
    p.change_stages([&](auto& c) {
        c.forward = duration{quarters(12)};
        c.backward_input = duration{quarters(12)};
        c.backward_weight = duration{quarters(12)};
        c.activation = memory_size{quarters(8)};
        c.weight_stash = memory_size{quarters(9) - 0.25};
    });
    if (random.chance(50)) {
        bounded_vector<duration, dynamic> hops;
        for (std::size_t i = 0; i < ranks * ranks; ++i)
            hops.push_back(duration{quarters(4)});
        p.p2p = hop_times<>{ranks, std::move(hops)};
    }
    if (random.chance(50)) p.objective = objective_kind::span;
    if (random.chance(60))
        for (auto& limit : p.memory_limit)
            limit = memory_size{4.0 + quarters(8 * ranks)};
    return p;
}

} // namespace oracle
