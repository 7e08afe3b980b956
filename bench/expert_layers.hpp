#pragma once

#include <optpipe/core/random.hpp>
#include <optpipe/pipeline/layer_costs.hpp>
#include <optpipe/pipeline/partition_problem.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

/// Drawn layers of mixtures of experts, and the divisions that are most even with pairs and without.
namespace expert_layers {

using namespace optpipe;
using counts = std::vector<std::size_t>;

/// Layers of a mixture of experts behind a third of dense ones. With experts, communication takes half to one and a
/// half of the time of computation.
inline partition_problem drawn(std::uint64_t seed, std::size_t layers, std::size_t ranks, std::size_t microbatches) {
    random_numbers random{seed};
    const auto between = [&](double least, double most) { return least + (most - least) * random.share(); };
    partition_problem p;
    for (std::size_t i = 0; i < layers; ++i) {
        const double computes = between(2.0, 6.0);
        const double sends = i < layers / 3 ? 0.0 : between(0.5, 1.5) * computes;
        auto& one = p.layers.emplace_back();
        one.costs = {duration{computes + sends}, duration{computes + sends}, duration{0.9 * computes}, {}, {}, {}};
        one.forward_comm = one.backward_comm = duration{sends};
    }
    p.pipelines = {problem{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), per_stage<stage_costs>(ranks)}};
    return p;
}
/// Calls `look` for every division of the layers.
inline void for_each_division(std::size_t layers, std::size_t stages, counts begin,
                              const std::function<void(const counts&)>& look) {
    if (begin.size() + 1 == stages) {
        begin.push_back(layers);
        return look(begin);
    }
    for (std::size_t here = 1; here + stages <= layers + begin.size() + 1; ++here) {
        auto next = begin;
        next.push_back(here);
        for_each_division(layers - here, stages, next, look);
    }
}
inline problem divided(const partition_problem& p, const counts& each) {
    std::vector<stage> stage_of;
    for (std::size_t s = 0; s < each.size(); ++s)
        stage_of.insert(stage_of.end(), each[s], stage{s});
    return with_layers(p, 0, stage_of);
}
/// The times for which the stages work on a microbatch, the longest first: one operation after the other, or in pairs.
inline std::vector<duration> loads(const problem& p, bool in_pairs) {
    std::vector<duration> all;
    for (const stage s : p.graph.all_stages()) {
        const auto* pair = p.overlaps.find(s, s, overlap_kind::backward);
        all.push_back(in_pairs && pair ? pair->duration : p.costs[s].work());
    }
    std::sort(all.rbegin(), all.rend());
    return all;
}
inline counts most_even(const partition_problem& p, bool in_pairs) {
    std::vector<duration> least;
    counts best;
    for_each_division(p.layers.size(), p.pipelines[0].graph.stages(), {}, [&](const counts& each) {
        auto found = loads(divided(p, each), in_pairs);
        if (!best.empty() && least <= found) return;
        least = found;
        best = each;
    });
    return best;
}
/// The longest of these times in pairs.
inline duration bottleneck(const partition_problem& p, const counts& each) {
    return loads(divided(p, each), true).front();
}

} // namespace expert_layers
