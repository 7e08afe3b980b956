#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

/// Schedules in which every microbatch of a stage may be stored in another way, made from a schedule that keeps all
/// stashes.
namespace mixed_storage {

/// Random options instead of transfer times, and no limits. Memory is in quarters.
inline optpipe::problem with_options(optpipe::problem p, optpipe::random_numbers& random) {
    const auto quarters = [&](optpipe::memory_size most) {
        return optpipe::memory_size{
            0.25 * static_cast<double>(random.below(1 + static_cast<std::size_t>(4.0 * most.value())))};
    };
    const auto time = [&] { return optpipe::duration{0.5 * static_cast<double>(1 + random.below(4))}; };
    for (const optpipe::stage s : p.graph.all_stages()) {
        auto& list = p.storage[s];
        const auto& costs = p.costs[s];
        p.set_stage(s, costs);
        if (random.chance(10)) continue;
        for (std::size_t i = 0, more = 1 + random.below(5); i < more; ++i) {
            optpipe::storage_option option{{"option", i}, costs.activation, {}, {}, {}, {}};
            if (const auto way = random.below(3); way > 0) {
                option.held = quarters(costs.activation);
                (way == 1 ? option.recompute : option.backward_extra) = time();
            }
            if (random.chance(50)) {
                option.transfer_size = random.chance(40) ? option.held : quarters(option.held);
                option.transfer = optpipe::transfer_times{time(), time()};
            }
            list.push_back(option);
        }
    }
    for (const optpipe::rank r : p.graph.all_ranks())
        p.memory_limit[r] = p.host_memory_limit[r] = optpipe::memory_size::unlimited();
    return p;
}

/// The order of a schedule that keeps all stashes, with a random option of its stage for each. The option's operations
/// are at random places between the forward and the backward.
inline optpipe::order mix(const optpipe::problem& p, const optpipe::schedule& plain, optpipe::random_numbers& random) {
    using optpipe::operation_kind;
    const optpipe::cell_numbering cell{p.graph};
    std::vector<optpipe::storage_index> chosen(cell.size());
    for (std::size_t c = 0; c < cell.size(); ++c)
        if (const auto options = p.storage_options(cell.stage_of(c)); options > 1)
            chosen[c] = static_cast<optpipe::storage_index>(random.below(options));
    std::vector<std::pair<double, optpipe::operation>> placed;
    std::vector<double> forward_at(cell.size());
    for (auto op : order_of(plain).operations) {
        const auto at = static_cast<double>(placed.size());
        op.storage = chosen[cell(op)];
        if (op.kind == operation_kind::forward) forward_at[cell(op)] = at;
        placed.emplace_back(at, op);
    }
    const auto originals = placed; // positions are those of the plain order
    for (const auto& [at, op] : originals) {
        if (!is_gradient(op.kind)) continue;
        const auto from = forward_at[cell(op)];
        std::array<double, 3> between{from + 0.25, at - 0.5, at - 0.25};
        if (random.chance(60))
            for (auto& each : between)
                each = from + (at - from) * static_cast<double>(1 + random.below(998)) / 1000.0;
        std::sort(between.begin(), between.end());
        const auto& stored = p.storage[op.stage][op.storage];
        if (stored.offloads()) {
            placed.emplace_back(between[0], sibling(op, operation_kind::offload));
            placed.emplace_back(between[1], sibling(op, operation_kind::reload));
        }
        if (stored.recomputes()) placed.emplace_back(between[2], sibling(op, operation_kind::recompute));
    }
    std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    optpipe::order result{p.graph, {}};
    for (const auto& [at, op] : placed)
        result.operations.push_back(op);
    return result;
}

/// A schedule of a problem that limits every rank to the schedule's memory.
struct tight_schedule {
    optpipe::problem problem;
    optpipe::schedule schedule;
};
/// `plain`: a schedule of the same problem without options and limits.
inline tight_schedule make(optpipe::problem p, const optpipe::schedule& plain, optpipe::random_numbers& random) {
    auto made = simulate(p, mix(p, plain, random));
    REQUIRE(made.has_value());
    const auto planned = measure(p, *made);
    for (const optpipe::rank r : p.graph.all_ranks()) {
        p.memory_limit[r] = planned.peak_memory[r];
        p.host_memory_limit[r] = planned.peak_host_memory[r];
    }
    return {std::move(p), std::move(*made)};
}

/// The problem of `plain`.
inline optpipe::problem without_options(optpipe::problem p) {
    for (const optpipe::stage s : p.graph.all_stages())
        p.set_stage(s, p.costs[s]);
    for (const optpipe::rank r : p.graph.all_ranks())
        p.memory_limit[r] = p.host_memory_limit[r] = optpipe::memory_size::unlimited();
    return p;
}

} // namespace mixed_storage
