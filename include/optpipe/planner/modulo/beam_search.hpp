#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/modulo/parameters.hpp"
#include "optpipe/planner/modulo/pattern.hpp"
#include "optpipe/planner/modulo/stage_fitter.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

struct beam_options {
    std::size_t periodicity = 1;
    /// Whether to offload every stash that can be offloaded in time. If false, only offloads that memory requires are
    /// used.
    bool eager = false;
    /// Number of partial patterns kept per stage.
    std::size_t width = 4;
    /// Number of attempts to add a stage to each partial pattern.
    std::size_t attempts = 8;
    std::uint64_t seed = 1;
};

/// Searches for a pattern with a given period, from the last stage to the first. Forwards of an added stage are placed
/// as late as possible before the next stage's forwards. Gradients of an added stage are placed as early as possible
/// after the next stage's gradients. Partial patterns with the shortest lifespans are kept: they leave the most memory
/// and time to earlier stages. Like any beam search, the search may miss feasible patterns.
class beam_search {
public:
    beam_search(const problem& p, duration period, const beam_options& options)
        : p_{p}, options_{options}, random_{options.seed}, period_{period}, fitter_{p, period, options.periodicity,
                                                                                    random_},
          coupled_stages_(p.graph.stages()), several_stages_{p.graph.stages() > p.graph.ranks()} {
        for (const stage s : p.graph.all_stages())
            for (const stage later : p.graph.all_stages()) {
                const rank own = p.rank_of(s);
                const rank other = p.rank_of(later);
                if (later > s && (own == other || p.transfer.link[own] == p.transfer.link[other]))
                    coupled_stages_[s].push_back(later);
            }
    }

    [[nodiscard]] std::optional<periodic_pattern> run(stop_check stop = {}) {
        if (!fitter_.possible()) return std::nullopt;
        std::vector<std::size_t> beam{none};
        for (std::size_t i = p_.graph.stages(); i-- > 0;) {
            std::vector<std::size_t> next;
            for (const auto parent : beam)
                if (!stop()) extend(stage{i}, parent, next);
            if (next.empty()) return std::nullopt;
            beam = best_of(std::move(next));
        }
        return pattern_of(beam.front());
    }
    [[nodiscard]] std::size_t work() const { return fitter_.work(); }

private:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);
    static constexpr beam_parameters with_{};
    struct node {
        std::size_t parent = none;
        std::vector<pattern_slot> pattern_slots{};
        /// Sum of the lifespans of the period's microbatches, plus the time of recomputation, plus a small penalty per
        /// offloaded stash.
        double lifespan = 0.0;
    };

    [[nodiscard]] const std::vector<pattern_slot>& slots_of(std::size_t at, std::size_t stages_up) const {
        for (; stages_up > 0; --stages_up)
            at = nodes_[at].parent;
        return nodes_[at].pattern_slots;
    }
    [[nodiscard]] rank_occupation occupation(stage s, std::size_t parent) const {
        auto own = fitter_.empty_rank();
        for (const stage coupled : coupled_stages_[s])
            fitter_.occupy(own, p_.rank_of(s), coupled, slots_of(parent, coupled.position() - s.position() - 1));
        return own;
    }
    /// Bounds for the last stage, which has no successor. `number` selects the distance between forwards.
    [[nodiscard]] stage_fitter::neighbour_bounds start_of(stage s, std::size_t number) {
        const auto& c = p_.costs[s];
        const double distances[] = {period_.value(), c.forward.value(), (c.forward + c.backward_input).value(),
                                    (c.forward + c.backward_weight).value(), c.work().value()};
        stage_fitter::neighbour_bounds around;
        double at = 0.0;
        for (std::size_t j = 0; j < options_.periodicity; ++j) {
            around.latest_forward.push_back(at);
            around.earliest_gradient.push_back(at + c.forward.value());
            at += distances[number < 2 * std::size(distances) ? number / 2 : random_.below(std::size(distances))];
        }
        return around;
    }
    /// Number of attempts at the last stage. The last stage has more attempts: its slots determine the slots of all
    /// other stages.
    [[nodiscard]] static std::size_t attempts_at_last(std::size_t attempts) {
        return with_.last_stage_factor * attempts + with_.least_at_last;
    }
    [[nodiscard]] stage_fitter::neighbour_bounds around(stage s, std::size_t parent) const {
        const stage next = s.next();
        stage_fitter::neighbour_bounds around;
        for (const auto& at : nodes_[parent].pattern_slots) {
            around.latest_forward.push_back((at.forward - p_.hop(s, next) - p_.costs[s].forward).value());
            around.earliest_gradient.push_back(at.gradient.value() + fitter_.gradient_length(next, at) +
                                               p_.hop(next, s).value());
        }
        return around;
    }
    void extend(stage s, std::size_t parent, std::vector<std::size_t>& next) {
        const bool last = p_.is_last(s);
        const auto own = last ? fitter_.empty_rank() : occupation(s, parent);
        const bool free = options_.periodicity == 1 && coupled_stages_[s].empty();
        const auto attempts = free ? stage_fitter::systematic_attempts : options_.attempts;
        const auto fixed = last ? stage_fitter::neighbour_bounds{} : around(s, parent);
        for (std::size_t i = 0; i < (last ? attempts_at_last(attempts) : attempts); ++i) {
            node child{parent, {}, 0.0};
            const auto number =
                last ? (i % 2 == 0 ? i % stage_fitter::systematic_attempts : stage_fitter::first_random_attempt + i)
                     : i;
            if (!fitter_.attempt(s, last ? start_of(s, i) : fixed, own, number, options_.eager, child.pattern_slots))
                continue;
            for (const auto& at : child.pattern_slots) {
                const auto& stored = fitter_.storage_of(s, at);
                child.lifespan += (at.gradient - at.forward + stored.extra_work()).value() +
                                  (stored.offloads() ? with_.offload_penalty * period_.value() : 0.0);
            }
            // Random tie-breaking keeps the children of one parent from filling the beam.
            constexpr std::size_t grains = 1000;
            child.lifespan += with_.tie_breaker * period_.value() * static_cast<double>(random_.below(grains));
            next.push_back(nodes_.size());
            nodes_.push_back(std::move(child));
        }
    }
    /// The distinct partial patterns with the shortest lifespans.
    [[nodiscard]] std::vector<std::size_t> best_of(std::vector<std::size_t> all) const {
        std::stable_sort(all.begin(), all.end(),
                         [&](std::size_t a, std::size_t b) { return nodes_[a].lifespan < nodes_[b].lifespan; });
        std::vector<std::size_t> kept;
        for (const auto i : all) {
            const bool known = std::any_of(kept.begin(), kept.end(), [&](std::size_t k) { return same_slots(i, k); });
            if (!known) kept.push_back(i);
            if (kept.size() == options_.width) break;
        }
        return kept;
    }
    [[nodiscard]] bool same_slots(std::size_t a, std::size_t b) const {
        const auto& x = nodes_[a].pattern_slots;
        const auto& y = nodes_[b].pattern_slots;
        const auto same = [&](duration u, duration v) { return std::abs((u - v).value()) <= fitter_.slack(); };
        for (std::size_t j = 0; j < x.size(); ++j)
            if (!same(x[j].forward, y[j].forward) || !same(x[j].gradient, y[j].gradient) ||
                x[j].storage != y[j].storage || (several_stages_ && !same(x[j].weight, y[j].weight)))
                return false;
        return true;
    }
    [[nodiscard]] periodic_pattern pattern_of(std::size_t at) const {
        periodic_pattern pattern{period_, options_.periodicity,
                                 per_stage<std::vector<pattern_slot>>(p_.graph.stages())};
        for (const stage s : p_.graph.all_stages()) {
            pattern.stages[s] = nodes_[at].pattern_slots;
            at = nodes_[at].parent;
        }
        return pattern;
    }

    const problem& p_;
    beam_options options_;
    random_numbers random_;
    duration period_;
    stage_fitter fitter_;
    /// Later stages on the same rank or link.
    per_stage<std::vector<stage>> coupled_stages_;
    /// Whether the times of weight gradients affect other stages.
    bool several_stages_;
    std::vector<node> nodes_{};
};

} // namespace optpipe::detail
