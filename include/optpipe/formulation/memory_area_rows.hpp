#pragma once

#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/schedule/bounds/memory_area.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::formulation {

/// Constraints on memory × time of each rank.
class memory_area_rows {
public:
    explicit memory_area_rows(model_builder& d) : d_{d}, t_{d.operations()} {}

    /// Adds Σ (least memory × time of a stash) ≤ (capacity for stashes)·(C − head − tail). The first row counts each
    /// stash up to the end of its gradient. If backwards are split, a second row counts each stash up to the end of W.
    void add() {
        const auto paths = paths_of(t_.problem());
        for (const rank r : t_.problem().graph.all_ranks())
            if (t_.is_limited(r) && !t_.stages_on(r).empty()) add(r, paths);
    }

private:
    using windows = time_windows<any_graph>;

    [[nodiscard]] windows windows_of(rank r) const {
        return d_.is_span() ? windows::of_rank(t_.problem(), r) : windows::step(t_.problem());
    }
    [[nodiscard]] const stage_costs& costs(stage s) const { return t_.problem().costs[s]; }
    void add(rank r, const microbatch_paths<>& paths) {
        const auto& p = t_.problem();
        const auto around = windows_of(r);
        const auto last = t_.microbatches() - 1;
        const stage first = t_.stages_on(r).front();
        const double head = around.forward(first).head[0].value();
        const double gradient_tail = around.gradient(first).tail[last].value();
        std::vector<memory_size> stashes, all_stashes;
        for (const stage s : t_.stages_on(r))
            for (const auto o : t_.options(s)) {
                const auto stored = t_.stored(s, o);
                for (const auto size : {stored.held, stored.left_on_device(), stored.restored(costs(s))})
                    stashes.push_back(size);
                all_stashes.push_back(weight_stash(s, o));
            }
        all_stashes.insert(all_stashes.end(), stashes.begin(), stashes.end());
        const auto slack = t_.memory_slack();
        const auto limit = p.memory_limit[r] + slack;
        add_area(r, reachable_level(stashes, limit, slack).value(), head + gradient_tail,
                 [&](stage s, storage_index o) { return area_until_gradient(s, o, paths); });
        if (!p.split_backward) return;
        add_area(r, reachable_level(all_stashes, limit, slack).value(), head, [&](stage s, storage_index o) {
            return area_until_gradient(s, o, paths) + weight_stash(s, o).value() * costs(s).backward_weight.value();
        });
    }
    template <class Area> void add_area(rank r, double level, double outside, const Area& area_of) {
        sum s;
        s.add(level, d_.objective);
        for (const cell c : t_.cells_on(r))
            d_.by_option(c, [&](storage_index o) { return area_of(t_.stage_of(c), o); }).add_to(s, -1.0);
        d_.add_row(family::memory_area, s, level * outside, milp::infinity);
    }
    /// A stash takes memory of its rank from the start of F to the end of I. The time from F to I is at least the time
    /// on an empty pipeline. The offloaded part is absent between the end of the offload and the start of the reload.
    [[nodiscard]] double area_until_gradient(stage s, storage_index o, const microbatch_paths<>& paths) const {
        const auto stored = t_.stored(s, o);
        const auto backward = stored.recompute + t_.problem().gradient_time(s) + stored.backward_extra;
        auto present = costs(s).forward + backward;
        if (stored.offloads()) present += stored.transfer->offload + stored.transfer->reload;
        const auto lifespan = std::max(paths.lifespan[s] + stored.backward_extra, present);
        const auto restored = stored.restored(costs(s)) - stored.held;
        return stored.left_on_device().value() * lifespan.value() + stored.transfer_size.value() * present.value() +
               restored.value() * backward.value();
    }
    /// The part of a stash that stays on the device until W ends.
    [[nodiscard]] memory_size weight_stash(stage s, storage_index o) const {
        return std::min(t_.stored(s, o).restored(costs(s)), costs(s).weight_stash);
    }

    model_builder& d_;
    const operation_table& t_;
};

} // namespace optpipe::formulation
