#pragma once

#include "optpipe/planner/cp/model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe::cp {

/// If all guards hold, bound(target) ≥ bound(source) + gap.
struct arc {
    bound_index source = 0;
    bound_index target = 0;
    ticks gap = 0;
    std::array<literal, 2> guards{always, always};
};

/// All differences and choices of a model as arcs between bounds, each found by its source and by its guards.
///
/// An optional task propagates its bounds only where it is present, or to tasks whose presence implies its own.
class network {
public:
    explicit network(const model& m) : model_{&m}, from_(2 * m.tasks.size()), guarded_(2 * m.variables()) {
        for (const auto& d : m.differences)
            add(d);
        for (std::uint32_t v = 1; v < m.variables(); ++v) {
            const auto& c = m.choices[v];
            if (c.first == c.second) continue;
            add({c.first, c.second, c.gap, literal{v, false}});
            add({c.second, c.first, c.back, literal{v, true}});
        }
    }

    [[nodiscard]] const arc& operator[](std::uint32_t i) const { return arcs_[i]; }
    [[nodiscard]] const std::vector<std::uint32_t>& from(bound_index b) const { return from_[b]; }
    [[nodiscard]] const std::vector<std::uint32_t>& guarded_by(literal l) const { return guarded_[l.code()]; }

    /// Increases the gap of difference `d` of the model to `gap`.
    void tighten(std::size_t d, ticks gap) {
        arcs_[2 * d].gap = gap;
        arcs_[2 * d + 1].gap = gap;
    }

private:
    void add(const difference& d) {
        add_arc(earliest_of(d.from), earliest_of(d.to), d);
        add_arc(latest_of(d.to), latest_of(d.from), d);
    }
    void add_arc(bound_index source, bound_index target, const difference& d) {
        arc a{source, target, d.gap, {d.guard, always}};
        const auto presence = model_->tasks[task_of(source)].presence;
        const bool positive_choice = d.guard != always && !d.guard.negated() && is_choice(d.guard);
        if (!positive_choice && !model_->implies(model_->tasks[task_of(target)].presence, presence))
            a.guards[1] = presence;
        const auto index = static_cast<std::uint32_t>(arcs_.size());
        arcs_.push_back(a);
        from_[source].push_back(index);
        for (const auto g : a.guards)
            if (g != always) guarded_[g.code()].push_back(index);
    }
    /// A choice that is true implies that both of its tasks are present.
    [[nodiscard]] bool is_choice(literal l) const {
        const auto& c = model_->choices[l.variable()];
        return c.first != c.second;
    }

    const model* model_;
    std::vector<arc> arcs_;
    std::vector<std::vector<std::uint32_t>> from_;
    std::vector<std::vector<std::uint32_t>> guarded_;
};

} // namespace optpipe::cp
