#pragma once

#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/schedule/bounds/memory_area.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::formulation {

/// Adds rows on sums over the entire step: memory × time per rank, and transfer time per engine or link.
class capacity_rows {
public:
    explicit capacity_rows(model_builder& d) : d_{d}, t_{d.operations()} {}

    /// Adds Σ (least memory × time of a stash) ≤ (capacity for stashes)·(C − head − tail). The first row counts each
    /// stash up to the end of its gradient. If backwards are split, a second row counts each stash up to the end of W.
    void add_memory_area() {
        const auto paths = paths_of(t_.problem());
        for (const rank r : t_.problem().graph.all_ranks())
            if (t_.is_limited(r) && !t_.stages_on(r).empty()) add_memory_area(r, paths);
    }
    /// Adds (total transfer time) ≤ C − head − tail for each engine. If the objective is a makespan, adds the same row
    /// for each link. The head ends with the first forward, and the tail begins with the last gradient.
    void add_link_capacity() {
        const auto& rules = t_.problem().transfer;
        for (const rank r : t_.problem().graph.all_ranks())
            add_lane(t_.stages_on(r), shares_engine(rules), windows_of(r));
        if (d_.is_span()) return;
        for (const auto& members : ranks_by_link(rules)) {
            if (members.size() < 2) continue;
            std::vector<stage> on_link;
            for (const rank r : members)
                on_link.insert(on_link.end(), t_.stages_on(r).begin(), t_.stages_on(r).end());
            add_lane(on_link, shares_channel(rules), windows_of(members.front()));
        }
    }

private:
    using windows = time_windows<any_graph>;

    [[nodiscard]] windows windows_of(rank r) const {
        return d_.is_span() ? windows::of_rank(t_.problem(), r) : windows::step(t_.problem());
    }
    [[nodiscard]] const stage_costs& costs(stage s) const { return t_.problem().costs[s]; }
    void add_memory_area(rank r, const microbatch_paths<>& paths) {
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

    /// `both` tells whether transfers in both directions share the lane.
    void add_lane(const std::vector<stage>& stages, bool both, const windows& around) {
        const auto last = t_.microbatches() - 1;
        for (const bool inward : {false, true}) {
            if (both && inward) continue;
            sum s;
            double head = milp::infinity, tail = milp::infinity;
            for (const stage at : stages) {
                if (!t_.may_offload(at)) continue;
                const double after_forward = (around.forward(at).head[0] + costs(at).forward).value();
                const double with_gradient = (t_.problem().gradient_time(at) + around.gradient(at).tail[last]).value();
                head = std::min(head, after_forward);
                tail = std::min(tail, with_gradient);
                for (std::size_t m = 0; m <= last; ++m)
                    for (const role what : {role::offload, role::reload})
                        if (both || inward == (what == role::reload))
                            d_.add_length(s, -1.0, t_.id(what, t_.cell_at(at, m)));
            }
            if (s.terms.empty()) continue;
            s.add(1.0, d_.objective);
            d_.add_row(family::link_capacity, s, head + tail, milp::infinity);
        }
    }

    model_builder& d_;
    const operation_table& t_;
};

} // namespace optpipe::formulation
