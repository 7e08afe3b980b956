#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// Least times before and after each operation of one kind on one stage. `head[m]` is the least time before the m-th
/// operation starts. `tail[m]` is the least time after the m-th operation ends.
struct time_window {
    std::vector<duration> head{};
    std::vector<duration> tail{};
};

/// Heads and tails of all operations, for any valid schedule. Memory and transfers are ignored.
///
/// Without transfers, a schedule can be renumbered so that every stage runs each kind in the order of microbatches.
/// After renumbering, the k-th forward of a stage ends after the k-th forward of the previous stage. Heads therefore
/// include earlier stages and earlier microbatches, and tails include later stages and later microbatches. A full
/// backward counts as I followed at once by W, which only loosens the bounds.
///
/// `step` measures heads from the start of the step, and tails to its end. `of_rank(r)` measures heads from the first
/// start on r, and tails to the last end on r. For `of_rank(r)`, the stages before r's first stage have no heads and
/// tails.
template <pipeline_graph Graph> class time_windows {
public:
    [[nodiscard]] static constexpr time_windows step(const basic_problem<Graph>& p) { return {p, stage{0}, nullptr}; }
    [[nodiscard]] static constexpr time_windows of_rank(const basic_problem<Graph>& p, rank r) {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) return {p, s, &r};
        return {p, stage{0}, nullptr};
    }

    [[nodiscard]] constexpr const time_window& forward(stage s) const { return forward_[s]; }
    [[nodiscard]] constexpr const time_window& gradient(stage s) const { return gradient_[s]; }
    /// Meaningful only if backwards may be split.
    [[nodiscard]] constexpr const time_window& weight(stage s) const { return weight_[s]; }

private:
    using windows = per_stage<time_window, Graph::stage_extent>;

    constexpr time_windows(const basic_problem<Graph>& p, stage first, const rank* only)
        : p_{&p}, first_{first.position()}, count_{p.graph.microbatches()}, forward_(p.graph.stages()),
          gradient_(p.graph.stages()), weight_(p.graph.stages()) {
        for (auto* all : {&forward_, &gradient_, &weight_})
            for (auto& w : *all) {
                w.head.resize(count_);
                w.tail.resize(count_);
            }
        fill_heads();
        fill_tails(only);
        p_ = nullptr;
    }

    static constexpr void raise(duration& bound, duration other) { bound = std::max(bound, other); }

    constexpr void fill_heads() {
        const auto stages = p_->graph.stages();
        for (std::size_t i = first_; i < stages; ++i) {
            const stage s{i};
            const auto& c = p_->costs[s];
            auto& f = forward_[s].head;
            for (std::size_t m = 0; m < count_; ++m) {
                if (m > 0) raise(f[m], f[m - 1] + c.forward);
                if (i > first_)
                    raise(f[m],
                          forward_[s.previous()].head[m] + p_->costs[s.previous()].forward + p_->hop(s.previous(), s));
            }
        }
        for (std::size_t i = stages; i-- > first_;) {
            const stage s{i};
            const auto& c = p_->costs[s];
            auto& g = gradient_[s].head;
            auto& w = weight_[s].head;
            for (std::size_t m = 0; m < count_; ++m) {
                g[m] = forward_[s].head[m] + c.forward;
                if (m > 0) raise(g[m], g[m - 1] + p_->gradient_time(s));
                // Before gradient m starts, counted from 0, m + 1 forwards and m gradients have run.
                const auto before = static_cast<double>(m);
                raise(g[m], forward_[s].head[0] + (before + 1.0) * c.forward + before * p_->gradient_time(s));
                if (!p_->is_last(s))
                    raise(g[m], gradient_[s.next()].head[m] + p_->gradient_time(s.next()) + p_->hop(s.next(), s));
                w[m] = g[m] + c.backward_input;
                if (m > 0) raise(w[m], w[m - 1] + c.backward_weight);
            }
        }
    }

    /// With `only`, tails end with the last operation on the rank `only`.
    constexpr void fill_tails(const rank* only) {
        const auto stages = p_->graph.stages();
        for (std::size_t i = first_; i < stages; ++i) {
            const stage s{i};
            const auto& c = p_->costs[s];
            const bool counts = only == nullptr || p_->rank_of(s) == *only;
            auto& g = gradient_[s].tail;
            auto& w = weight_[s].tail;
            for (std::size_t m = count_; m-- > 0;) {
                if (p_->split_backward && counts) {
                    if (m + 1 < count_) w[m] = w[m + 1] + c.backward_weight;
                    g[m] = c.backward_weight + w[m];
                }
                if (m + 1 < count_) raise(g[m], g[m + 1] + p_->gradient_time(s));
                if (i > first_)
                    raise(g[m],
                          p_->hop(s, s.previous()) + p_->gradient_time(s.previous()) + gradient_[s.previous()].tail[m]);
            }
        }
        for (std::size_t i = stages; i-- > first_;) {
            const stage s{i};
            auto& f = forward_[s].tail;
            for (std::size_t m = count_; m-- > 0;) {
                f[m] = p_->gradient_time(s) + gradient_[s].tail[m];
                if (m + 1 < count_) raise(f[m], f[m + 1] + p_->costs[s].forward);
                const auto after = static_cast<double>(count_ - 1 - m);
                raise(f[m], after * p_->costs[s].forward + (after + 1.0) * p_->gradient_time(s) +
                                gradient_[s].tail[count_ - 1]);
                if (!p_->is_last(s))
                    raise(f[m], p_->hop(s, s.next()) + p_->costs[s.next()].forward + forward_[s.next()].tail[m]);
            }
        }
    }

    const basic_problem<Graph>* p_;
    std::size_t first_;
    std::size_t count_;
    windows forward_;
    windows gradient_;
    windows weight_;
};

} // namespace optpipe
