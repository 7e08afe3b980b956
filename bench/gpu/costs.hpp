#pragma once

#include "copies.hpp"
#include "trainer.hpp"
#include <optpipe/core/container.hpp>
#include <optpipe/execution/cuda/device.hpp>
#include <optpipe/pipeline/costs.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/operation.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpu_bench {

/// Where a stash begins in memory: at multiples of this many bytes.
inline constexpr std::size_t alignment = 256;

/// What the trainer runs, each computation and each way of a whole stash taking 1: memory in bytes, as it is.
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
    if (!how.storage.empty()) model.set_storage(p, duration{1.0});
    return p;
}

/// The middle of how long a stage's computations of one kind took; 0 if there were none.
[[nodiscard]] inline optpipe::duration median_of(const optpipe::schedule& measured, optpipe::stage s,
                                                 optpipe::operation_kind kind) {
    std::vector<optpipe::duration> taken;
    for (const auto& timed : measured.operations)
        if (timed.op.stage == s && timed.op.kind == kind) taken.push_back(timed.end - timed.start);
    if (taken.empty()) return {};
    const auto middle = taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2);
    std::nth_element(taken.begin(), middle, taken.end());
    return *middle;
}

/// Puts what was measured into a problem, in milliseconds. All ranks share the link of the one GPU.
inline void set_costs(optpipe::problem& p, const optpipe::schedule& measured, std::size_t message_bytes) {
    using namespace optpipe;
    memory_size largest{};
    for (const auto& c : p.costs)
        largest = std::max(largest, c.activation);
    const auto rates = copy_meter{static_cast<std::size_t>(largest.value())}.rates(6);
    for (const stage s : p.graph.all_stages()) {
        auto& c = p.costs[s];
        c.forward = median_of(measured, s, operation_kind::forward);
        c.backward_input = median_of(measured, s, operation_kind::backward_input);
        c.backward_weight = median_of(measured, s, operation_kind::backward_weight);
        const auto transfer_of = [&](memory_size size) {
            const auto at = [&](double rate) { return duration{size.value() / (rate * 1e6)}; };
            return transfer_times{at(rates.out_beside_in), at(rates.in_beside_out)};
        };
        if (!p.has_storage_options()) c.transfer = transfer_of(c.activation);
        for (auto& option : p.storage[s])
            if (option.offloads()) option.transfer = transfer_of(option.transfer_size);
    }
    p.p2p = hop_times<>{duration{copy_meter{message_bytes}.milliseconds_within(50)}};
    p.transfer.engines = std::min(2, cuda::copy_engines(0));
    for (const rank r : p.graph.all_ranks())
        p.transfer.share_link(rank{0}, r);
}

/// The same of a schedule that recomputes what an option says, ahead of the backward or inside it.
inline void set_recompute(optpipe::problem& p, std::string_view option, const optpipe::schedule& measured) {
    using namespace optpipe;
    for (const auto s : p.graph.all_stages())
        for (auto& each : p.storage[s]) {
            if (each.name.view() != option) continue;
            const auto more = median_of(measured, s, operation_kind::backward_input) - p.costs[s].backward_input;
            if (each.recomputes())
                each.recompute = median_of(measured, s, operation_kind::recompute);
            else
                each.backward_extra = std::max(duration{}, more);
        }
}

} // namespace gpu_bench
