#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/lns/parameters.hpp"
#include "optpipe/planner/lns/window.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace optpipe::detail {

/// Kinds of windows.
enum class neighbourhood {
    interval,     ///< all ranks for a while
    ranks,        ///< some neighbouring ranks for longer
    microbatches, ///< some consecutive microbatches, from start to end
    transfers,    ///< offload decisions and transfer times of a few ranks
    warm_up,      ///< all ranks at the beginning
    cool_down,    ///< all ranks at the end
    storage,      ///< some consecutive microbatches on a few ranks, with their storage options
};
inline constexpr std::array all_neighbourhoods{
    neighbourhood::interval, neighbourhood::ranks,     neighbourhood::microbatches, neighbourhood::transfers,
    neighbourhood::warm_up,  neighbourhood::cool_down, neighbourhood::storage};

/// F, I and W of a microbatch on a stage.
inline constexpr std::size_t computations_each = 3;

/// A window of about `size` computations (or transfer pairs) that contains `around`, a time and a rank.
struct window_center {
    duration time{};
    std::size_t rank = 0;
};
[[nodiscard]] inline window draw_window(const problem& p, const window_map& map, neighbourhood how, double size,
                                        const window_center& around, const window_parameters& with,
                                        random_numbers& random) {
    const auto ranks = p.graph.ranks();
    const auto all = p.graph.microbatches();
    window w;
    w.opens_storage =
        how == neighbourhood::storage || (p.has_storage_options() && random.chance(with.open_storage_chance));
    const auto parts = static_cast<double>(with.parts_before);
    const auto within = [&](duration length) {
        w.from = around.time - static_cast<double>(random.between(1, with.parts_before - 1)) / parts * length;
        w.to = w.from + length;
    };
    const auto some_ranks = [&](std::size_t count) {
        count = std::min(count, ranks);
        const auto before = random.below(count);
        w.first_rank = around.rank >= before ? around.rank - before : 0;
        w.first_rank = std::min(w.first_rank, ranks - count);
        w.last_rank = w.first_rank + count - 1;
    };
    const auto some_microbatches = [&](std::size_t stages) {
        const auto wanted = static_cast<std::size_t>(size) / (computations_each * stages);
        const auto count = std::min(all, std::max<std::size_t>(1, wanted));
        w.first_microbatch = random.below(all - count + 1);
        w.last_microbatch = w.first_microbatch + count - 1;
    };
    switch (how) {
    case neighbourhood::interval: within(map.time_of(size)); break;
    case neighbourhood::ranks: {
        const auto count = random.between(1, std::max<std::size_t>(1, ranks / 2));
        some_ranks(count);
        within(static_cast<double>(ranks) / static_cast<double>(count) * map.time_of(size));
        break;
    }
    case neighbourhood::microbatches: some_microbatches(p.graph.stages()); break;
    case neighbourhood::transfers: {
        const auto count = random.between(1, std::min(ranks, with.most_transfer_ranks));
        some_ranks(count);
        within(with.transfer_length * static_cast<double>(ranks) / static_cast<double>(count) * map.time_of(size));
        w.transfers_only = true;
        break;
    }
    case neighbourhood::warm_up: w.to = with.end_length * map.time_of(size); break;
    case neighbourhood::cool_down: w.from = map.end() - with.end_length * map.time_of(size); break;
    case neighbourhood::storage: {
        const auto count = random.between(1, std::min(ranks, with.most_storage_ranks));
        some_ranks(count);
        some_microbatches(std::max<std::size_t>(1, count * p.graph.stages() / ranks));
        break;
    }
    }
    return w;
}

} // namespace optpipe::detail
