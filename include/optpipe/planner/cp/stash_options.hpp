#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/most_memory.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::cp {

/// Whether stashes of two options differ only in their transfers.
[[nodiscard]] inline bool differ_only_in_transfers(const storage_option& a, const storage_option& b) {
    return a.held == b.held && a.recompute == b.recompute && a.backward_extra == b.backward_extra;
}

/// Whether the memory of the stage's rank is smaller than the sum of all memory that the rank's stages acquire in a
/// step.
[[nodiscard]] inline bool is_tight(const problem& p, stage s) {
    memory_size all{};
    for (const stage other : p.graph.all_stages())
        if (p.rank_of(other) == p.rank_of(s)) all += most_memory(p, other);
    return all > p.memory_limit[p.rank_of(s)];
}

/// The options that a stage may need in an optimal schedule, as indices into its list. The option to keep the stash
/// comes first, if the stage has it. An option is left out if keeping the stash is at least as good. If memory is
/// ample, keeping is at least as good as any other option. If memory is scarce, keeping is at least as good as any
/// option that leaves no less than the kept stash on the device.
[[nodiscard]] inline std::vector<std::size_t> useful_options(const problem& p, stage s) {
    const auto option = [&](std::size_t o) { return p.storage_of(s, o); };
    const auto count = p.storage_options(s);
    std::size_t kept = 0;
    while (kept < count && (option(kept).extra_work() > duration{} || option(kept).offloads()))
        ++kept;
    const bool tight = is_tight(p, s);
    std::vector<std::size_t> result;
    if (kept < count) result.push_back(kept);
    for (std::size_t o = 0; o < count; ++o)
        if (kept == count || (tight && option(o).left_on_device() < option(kept).held)) result.push_back(o);
    return result;
}

/// The form of the model that proves bounds. The form is `pooled`, a relaxation, for plain problems in which the
/// options of each stage differ only in transfers. For all other problems, the form is exact.
[[nodiscard]] inline overtaking bounding_form(const problem& p) {
    if (!is_plain(p)) return overtaking::allowed;
    for (const stage s : p.graph.all_stages()) {
        const auto options = useful_options(p, s);
        for (const auto o : options)
            if (!differ_only_in_transfers(p.storage_of(s, options.front()), p.storage_of(s, o)))
                return overtaking::allowed;
    }
    return overtaking::pooled;
}

} // namespace optpipe::cp
