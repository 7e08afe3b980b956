#pragma once

#include "copies.hpp"
#include "trainer.hpp"
#include <optpipe/core/container.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/pipeline/costs.hpp>
#include <optpipe/pipeline/problem.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace gpu_bench {

/// Stashes begin in memory at multiples of this many bytes.
inline constexpr std::size_t alignment = 256;

/// The problem of the trainer with unit costs: each computation, and each transfer of a whole stash, takes 1. Memory is
/// the real one, in bytes, and all ranks are on the link of the one GPU.
[[nodiscard]] inline optpipe::problem first_guess(const trainer& model, const training_setup& how) {
    using namespace optpipe;
    const auto rounded = [](std::size_t bytes) {
        return memory_size{static_cast<double>((bytes + alignment - 1) / alignment * alignment)};
    };
    per_stage<stage_costs> costs(how.ranks);
    for (const stage s : costs.indices()) {
        auto& c = costs[s];
        c.forward = c.backward_input = c.backward_weight = duration{1.0};
        c.weight_stash = rounded(model.kept_bytes(s));
        c.activation = c.weight_stash + rounded(model.freed_bytes(s));
    }
    problem p{to_any_graph(graph<dynamic, dynamic>{how.ranks, how.microbatches}), std::move(costs)};
    p.name = "language model on one GPU, " + std::to_string(how.ranks) + " ranks on " +
             (how.is_divided ? "green contexts" : "streams");
    p.time_unit = "ms";
    p.memory_unit = "bytes";
    p.transfer.engines = std::min(2, cuda::copy_engines(0));
    for (const rank r : p.graph.all_ranks())
        p.transfer.share_link(rank{0}, r);
    if (!how.storage.empty()) model.set_storage(p, duration{1.0});
    return p;
}

/// Sets the times of copies of stashes and messages in a problem, in milliseconds, measured with copies in both
/// directions at once.
inline void set_copy_times(optpipe::problem& p, std::size_t message_bytes) {
    using namespace optpipe;
    memory_size largest{};
    for (const auto& c : p.costs)
        largest = std::max(largest, c.activation);
    const auto rates = copy_meter{static_cast<std::size_t>(largest.value())}.rates(6);
    for (const stage s : p.graph.all_stages()) {
        const auto transfer_of = [&](memory_size size) {
            const auto at = [&](double rate) { return duration{size.value() / (rate * 1e6)}; };
            return transfer_times{at(rates.out_beside_in), at(rates.in_beside_out)};
        };
        if (is_described_by_costs(p)) p.change_stage(s, [&](auto& c) { c.transfer = transfer_of(c.activation); });
        for (auto& option : p.storage[s])
            if (option.offloads()) option.transfer = transfer_of(option.transfer_size);
    }
    p.p2p = hop_times<>{duration{copy_meter{message_bytes}.milliseconds_within(50)}};
}

} // namespace gpu_bench
