#pragma once

#include "optpipe/core/jagged_array.hpp"
#include "optpipe/planner/cp/model.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Requires bound(target) ≥ bound(source) + gap, if all guards hold. If an arc belongs to a choice, its first guard is
/// the choice's literal.
struct arc {
    bound_index source = 0;
    bound_index target = 0;
    std::array<literal, 2> guards{always, always};
    ticks gap = 0;
};

/// All differences and choices of a model as arcs between bounds, indexed by source and by guard.
///
/// An optional task that may be absent passes its bounds only to tasks that require it.
class network {
public:
    /// A range of arc positions: [first, last).
    struct range {
        std::uint32_t first = 0;
        std::uint32_t last = 0;
    };

    explicit network(const model& m) : model_{&m} {
        std::vector<std::vector<numbered_arc>> differences(2 * m.tasks.size());
        std::vector<std::vector<numbered_arc>> choices(2 * m.tasks.size());
        of_difference_.resize(m.differences.size());
        for (std::uint32_t d = 0; d < m.differences.size(); ++d)
            add(m.differences[d], d, differences);
        for (std::uint32_t v = 1; v < m.variables(); ++v) {
            const auto& c = m.choices[v];
            if (c.first == c.second) continue;
            add({c.first, c.second, c.gap, literal{v, false}}, no_difference, choices);
            add({c.second, c.first, c.back, literal{v, true}}, no_difference, choices);
        }
        for (bound_index b = 0; b < differences.size(); ++b) {
            differences_.push_back(append(differences[b]));
            choices_.push_back(append(choices[b]));
        }
        std::vector<std::vector<std::uint32_t>> guarded(2 * m.variables());
        for (std::uint32_t i = 0; i < arcs_.size(); ++i)
            for (const auto g : arcs_[i].guards)
                if (g != always) guarded[g.code()].push_back(i);
        guarded_ = jagged_array{guarded};
    }

    [[nodiscard]] const arc& operator[](std::uint32_t i) const { return arcs_[i]; }
    /// The arcs of differences that start at bound `b`.
    [[nodiscard]] range differences_from(bound_index b) const { return differences_[b]; }
    [[nodiscard]] range choices_from(bound_index b) const { return choices_[b]; }
    [[nodiscard]] std::span<const std::uint32_t> guarded_by(literal l) const { return guarded_[l.code()]; }
    /// The two arcs of a difference of the model.
    [[nodiscard]] const std::array<std::uint32_t, 2>& of_difference(std::size_t d) const { return of_difference_[d]; }

    /// Increases the gap of difference `d` of the model to `gap`.
    void tighten(std::size_t d, ticks gap) {
        for (const auto i : of_difference_[d])
            arcs_[i].gap = gap;
    }

private:
    static constexpr std::uint32_t no_difference = static_cast<std::uint32_t>(-1);
    struct numbered_arc {
        arc content;
        std::uint32_t difference;
    };

    void add(const difference& d, std::uint32_t number, std::vector<std::vector<numbered_arc>>& into) const {
        add_arc(earliest_of(d.from), earliest_of(d.to), d, number, into);
        add_arc(latest_of(d.to), latest_of(d.from), d, number, into);
    }
    void add_arc(bound_index source, bound_index target, const difference& d, std::uint32_t number,
                 std::vector<std::vector<numbered_arc>>& into) const {
        arc a{source, target, {d.guard, always}, d.gap};
        const auto presence = model_->tasks[task_of(source)].presence;
        const bool positive_choice = d.guard != always && !d.guard.negated() && is_choice(d.guard);
        if (!positive_choice && !model_->implies(model_->tasks[task_of(target)].presence, presence))
            a.guards[1] = presence;
        into[source].push_back({a, number});
    }
    range append(const std::vector<numbered_arc>& some) {
        const auto first = static_cast<std::uint32_t>(arcs_.size());
        for (const auto& each : some) {
            if (each.difference != no_difference)
                of_difference_[each.difference][each.content.source & 1U] = static_cast<std::uint32_t>(arcs_.size());
            arcs_.push_back(each.content);
        }
        return {first, static_cast<std::uint32_t>(arcs_.size())};
    }
    /// Whether the literal's variable decides the order of two tasks. If the variable is true, both tasks are present.
    [[nodiscard]] bool is_choice(literal l) const {
        const auto& c = model_->choices[l.variable()];
        return c.first != c.second;
    }

    const model* model_;
    std::vector<arc> arcs_;
    std::vector<range> differences_;
    std::vector<range> choices_;
    std::vector<std::array<std::uint32_t, 2>> of_difference_;
    jagged_array<std::uint32_t> guarded_;
};

} // namespace optpipe::cp
