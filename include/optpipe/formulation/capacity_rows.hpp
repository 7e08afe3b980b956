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

/// Constraints on the capacity of a rank or a link over time: memory × time, and transfer time.
class capacity_rows {
public:
    explicit capacity_rows(model_builder& d) : d_{d}, t_{d.operations()} {}

    /// A stash occupies its rank for at least the time that its microbatch needs, on an empty pipeline, from F to the
    /// end of I; if offloaded, it does so until the end of the offload, and from the start of the reload: Σ
    /// stash·(lifespan − won·w) ≤ (most that fits)·(C − head − tail), once until the gradients end and once until W.
    /// Ranks with lists of storage options are left out, because a stash may leave less there.
    void add_memory_area() {
        const auto paths = paths_of(t_.problem());
        for (const rank r : t_.problem().graph.all_ranks())
            if (t_.is_limited(r) && !t_.stages_on(r).empty() && !has_list(r)) add_memory_area(r, paths);
    }
    /// Σ T_o·w ≤ C − head − tail for each engine, and for each link where the objective is a makespan.
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
    [[nodiscard]] bool has_list(rank r) const {
        const auto& own = t_.stages_on(r);
        return std::any_of(own.begin(), own.end(), [&](stage s) { return t_.has_list(s); });
    }

    void add_memory_area(rank r, const microbatch_paths<>& paths) {
        const auto& p = t_.problem();
        const auto around = windows_of(r);
        const auto last = t_.microbatches() - 1;
        const stage first = t_.stages_on(r).front();
        const double head = around.forward(first).head[0].value();
        const double gradient_tail = around.gradient(first).tail[last].value();
        std::vector<memory_size> stashes, all_stashes;
        sum saved;
        double until_gradient = 0.0, until_weight = 0.0;
        for (const stage s : t_.stages_on(r)) {
            const auto& c = costs(s);
            const auto kept = std::min(c.activation, c.weight_stash);
            stashes.push_back(c.activation);
            all_stashes.push_back(c.activation);
            all_stashes.push_back(kept);
            const auto count = static_cast<double>(t_.microbatches());
            until_gradient += count * c.activation.value() * paths.lifespan[s].value();
            if (p.split_backward) until_weight += count * kept.value() * c.backward_weight.value();
            if (!t_.may_offload(s)) continue;
            const auto transfer = p.plain_transfer(s);
            const auto won =
                paths.lifespan[s] - (c.forward + transfer->offload + transfer->reload + p.gradient_time(s));
            for (std::size_t m = 0; m <= last && won > duration{}; ++m)
                saved.add(c.activation.value() * won.value(), d_.offloaded(t_.cell_at(s, m)));
        }
        const auto slack = t_.memory_slack();
        const auto limit = p.memory_limit[r] + slack;
        add_area(saved, until_gradient, reachable_level(stashes, limit, slack).value(), head + gradient_tail);
        if (p.split_backward)
            add_area(saved, until_gradient + until_weight, reachable_level(all_stashes, limit, slack).value(), head);
    }
    void add_area(sum saved, double area, double level, double outside) {
        saved.add(level, d_.objective);
        d_.add_row(family::memory_area, saved, area + level * outside, milp::infinity);
    }

    /// `both` tells whether both directions share the lane.
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
