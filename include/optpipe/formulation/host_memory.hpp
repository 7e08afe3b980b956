#pragma once

#include "optpipe/formulation/model_builder.hpp"
#include "optpipe/formulation/storage_options.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace optpipe::formulation {

/// Limits host memory at the start of every offload (io/README.md, rule 9). The offloaded stash must fit beside all
/// stashes on the host.
class host_memory {
public:
    explicit host_memory(model_builder& d) : d_{d}, t_{d.operations()} {}

    void add() {
        for (const rank r : t_.problem().graph.all_ranks()) {
            double all = 0.0;
            for (const cell c : t_.cells_on(r))
                if (!d_.offloaded(c).is_never()) all += d_.offloaded_size(c).most;
            const double limit = (t_.problem().host_memory_limit[r] + t_.memory_slack()).value();
            if (all <= limit) continue;
            for (const cell c : t_.cells_on(r))
                if (!d_.offloaded(c).is_never() && !d_.is_too_large()) add_row(c, r, limit, all);
        }
    }

private:
    void add_row(cell own, rank r, double limit, double all) {
        const auto out = [&](cell y) { return t_.id(role::offload, y); };
        memory_level level{d_, family::host_memory, start_of(out(own))};
        level.hold(d_.offloaded_size(own));
        for (const cell y : t_.cells_on(r))
            if (y != own && !d_.offloaded(y).is_never()) level.hold(d_.offloaded_size(y), is_there(y, own), out(y));
        // The row has no effect if the stash isn't offloaded.
        const double room = all - limit;
        level.total().add(-room).add(room, d_.offloaded(own));
        d_.add_row(family::host_memory, level.total(), -milp::infinity, limit);
    }
    /// A literal that is at least 1 if y may be on the host when `own` is offloaded.
    literal is_there(cell y, cell own) {
        const auto left = left_before(y, own);
        const auto back =
            d_.before(family::host_memory, end_of(t_.id(role::reload, y)), start_of(t_.id(role::offload, own)), false);
        if (left.is_never() || back.is_always()) return literal::never();
        auto what = meaning::excess_of(-2.0);
        what.parts = {{1.0, left}, {-1.0, back}, {1.0, d_.offloaded(y)}, {1.0, d_.offloaded(own)}};
        sum s;
        for (const auto& [factor, l] : what.parts)
            s.add(-factor, l);
        const auto there =
            d_.add_binary(family::host_memory, std::move(what),
                          "host." + t_.name_of(t_.id(role::offload, y)) + "." + t_.name_of(t_.id(role::offload, own)));
        s.add(1.0, there).add(2.0);
        d_.add_row(family::host_memory, s, 0.0, milp::infinity);
        return there;
    }
    literal left_before(cell y, cell own) {
        const auto order = d_.transfer_order(t_.id(role::offload, y), t_.id(role::offload, own));
        if (order) return *order;
        return t_.microbatch_of(y) < t_.microbatch_of(own) ? literal::always() : literal::never();
    }

    model_builder& d_;
    const operation_table& t_;
};

} // namespace optpipe::formulation
