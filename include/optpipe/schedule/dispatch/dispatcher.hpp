#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/dispatch_facts.hpp"
#include "optpipe/schedule/dispatch/dispatch_options.hpp"
#include "optpipe/schedule/dispatch/list_schedule.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// Simulates a step in which every rank starts the best operation that is ready. Gradients come first, then forwards
/// that fit in memory, and then weight gradients. Microbatches are in FIFO order on every stage.
///
/// Never deadlocks if one microbatch at a time fits. A stash gets memory only if the microbatches in flight can still
/// be finished in order. Each microbatch in flight may use the memory that earlier microbatches release (the banker's
/// algorithm). O(operations × microbatches in flight on a rank). Contract: stashes are only kept or offloaded as a
/// whole (`is_described_by_costs`).
template <pipeline_graph Graph> class dispatcher {
public:
    constexpr dispatcher(const basic_problem<Graph>& p, const dispatch_facts<Graph>& facts,
                         const dispatch_options& options, const dispatch_hints<Graph>& exceptions)
        : p_{&p}, facts_{&facts}, options_{options}, hints_{&exceptions}, count_{p.graph.microbatches()},
          step_{p, limits_of(p, facts, options)}, ranks_(p.graph.ranks()), stages_(p.graph.stages()),
          forward_front_(count_, 0), gradient_front_(count_, p.graph.stages()),
          careful_(p.graph.stages() != p.graph.ranks() || !p.full_backward) {
        for (const rank r : p.graph.all_ranks()) {
            ranks_[r].held.resize(count_);
            ranks_[r].lacking.resize(count_, facts.least[r]);
        }
        constexpr double nearly_one = 0.999; // rounds up, and ignores rounding errors of integral values
        for (const stage s : p.graph.all_stages()) {
            stages_[s].stashes.resize(count_, stash::none);
            const double depth =
                options.depth * (facts.paths.lifespan[s] / facts.cycle) + nearly_one + exceptions.depth[s.position()];
            stages_[s].cap = static_cast<std::size_t>(std::clamp(depth, 1.0, static_cast<double>(count_)));
            careful_ = careful_ || facts.decision[s] != offload_decision::forbid;
        }
    }

    /// Operations, ranks and stages visited per start, approximately.
    static constexpr std::size_t visits_per_start = 16;
    /// A deterministic measure of work: the number of operations, ranks, stages and stashes visited.
    [[nodiscard]] constexpr std::size_t work() const { return visits_per_start * step_.starts() + work_; }

    /// All operations in the order in which they started. After a deadlock, operations are missing. `stop` is polled.
    /// After `stop` has returned true, the result is only the beginning of an order.
    [[nodiscard]] constexpr operation_list<Graph> run(stop_check stop = {}) {
        detail::list_schedule(step_, *this, stop);
        return step_.take_started();
    }

    // Called by `list_schedule`.

    constexpr void serve(rank r) {
        work_ += 4 * facts_->stages[r].size() + ranks_[r].offloaded.size();
        start_transfers(r);
        start_compute(r);
    }
    constexpr void end(const operation& op, rank where) {
        if (is_transfer(op.kind)) return end_transfer(op, where);
        auto& r = ranks_[where];
        if (op.kind == operation_kind::forward) {
            if (at(op) == stash::leaving) r.leaving.push_back(offload_of(op.stage, op.microbatch));
        } else if (is_gradient(op.kind)) {
            if (op.kind == operation_kind::backward_input) want_weight(r, backward_weight(op.stage, op.microbatch));
            move(op, stash::gone);
        }
    }

private:
    using hints = dispatch_hints<Graph>;
    enum class stash : std::uint8_t { none, on_device, leaving, on_the_way_out, on_host, coming, gone };
    struct stage_state {
        std::vector<stash> stashes{}; ///< indexed by microbatch
        std::size_t next_forward = 0;
        std::size_t next_gradient = 0;
        std::size_t cap = 1;
    };
    struct rank_state {
        memory_size host_reserved{};
        duration gate = duration::unlimited();
        /// Weight gradients that may run, sorted by priority.
        struct queue {
            std::vector<operation> waiting{};
            std::size_t next = 0;
            [[nodiscard]] constexpr bool empty() const { return next == waiting.size(); }
        };
        queue weights_at_once{};
        queue weights{};
        queue weights_last{};
        std::vector<operation> leaving{};
        std::vector<operation> offloaded{};
        /// The memory that each microbatch occupies on the device (`held`), and the memory that it may need in addition
        /// (`lacking`).
        std::vector<memory_size> held{};
        std::vector<memory_size> lacking{};
        memory_size held_in_all{};
    };
    constexpr duration now() const { return step_.now(); }
    constexpr const stage_costs& costs(stage s) const { return p_->costs[s]; }
    constexpr stash& at(const operation& op) { return stages_[op.stage].stashes[op.microbatch.position()]; }
    constexpr stash at(stage s, std::size_t m) const { return stages_[s].stashes[m]; }
    constexpr memory_size limit(rank r) const { return step_.limit(r); }

    static constexpr auto limits_of(const basic_problem<Graph>& p, const dispatch_facts<Graph>& facts,
                                    const dispatch_options& options) {
        per_rank<memory_size, Graph::rank_extent> limits(p.graph.ranks(), memory_size::unlimited());
        for (const rank r : p.graph.all_ranks())
            if (const auto least = facts.least[r]; !p.memory_limit[r].is_unlimited())
                limits[r] = least + options.memory_share * (p.memory_limit[r] - least) + facts.slack;
        return limits;
    }

    // The functions below handle the ends of operations.

    constexpr std::size_t hint_of(stage s, std::size_t m) const { return cell_numbering{p_->graph}(s, microbatch{m}); }
    constexpr void want_weight(rank_state& r, const operation& op) {
        switch (hints_->weights[hint_of(op.stage, op.microbatch.position())]) {
        case hints::weight::by_rule: r.weights.waiting.push_back(op); break;
        case hints::weight::at_once: r.weights_at_once.waiting.push_back(op); break;
        case hints::weight::last: r.weights_last.waiting.push_back(op); break;
        }
    }

    constexpr void end_transfer(const operation& op, rank where) {
        auto& r = ranks_[where];
        for (const rank mate : facts_->link_mates[where])
            step_.touch(mate);
        if (op.kind == operation_kind::offload) {
            move(op, stash::on_host);
            r.offloaded.push_back(reload_of(op.stage, op.microbatch));
        } else {
            move(op, stash::on_device);
            r.host_reserved -= costs(op.stage).activation;
        }
    }

    // The functions below start operations.

    constexpr bool fits(rank r, memory_size amount) const { return step_.fits(r, amount); }

    constexpr void start_compute(rank r) {
        if (!step_.is_free(operation_kind::forward, r)) return;
        duration next_arrival = duration::unlimited();
        operation op;
        bool memory_blocks = false;
        bool found = take(ranks_[r].weights_at_once, op) || choose_gradient(r, op, next_arrival, memory_blocks) ||
                     (memory_blocks && choose_weight(r, op, next_arrival, memory_blocks));
        if (!found && choose_forward(r, op, next_arrival, memory_blocks)) {
            found = true;
            auto& s = stages_[op.stage];
            forward_front_[op.microbatch.position()] = op.stage.position();
            ++s.next_forward;
        } else if (!found) {
            found = choose_weight(r, op, next_arrival, memory_blocks);
        }
        if (!found) return;
        step_.start(op, r);
    }

    constexpr bool choose_gradient(rank r, operation& best, duration& next_arrival, bool& memory_blocks) {
        bool found = false;
        for (const stage s : facts_->stages[r]) {
            const auto m = stages_[s].next_gradient;
            if (m >= stages_[s].next_forward) continue;
            const auto ready = step_.arrival(backward_input(s, microbatch{m}));
            if (ready > now()) {
                next_arrival = std::min(next_arrival, ready);
                continue;
            }
            const auto where = at(s, m);
            if (where != stash::on_device && where != stash::leaving) continue;
            if (found && best.microbatch.position() < m) continue;
            if (!fits(r, growth(s))) {
                memory_blocks = true;
                continue;
            }
            best = {s, gradient_kind(r, s), microbatch{m}};
            found = true;
        }
        if (!found) return false;
        if (at(best) == stash::leaving) keep(r, best);
        ++stages_[best.stage].next_gradient;
        gradient_front_[best.microbatch.position()] = best.stage.position();
        return true;
    }
    constexpr operation_kind gradient_kind(rank r, stage s) const {
        const auto& c = costs(s);
        const bool split = p_->split_backward && (!p_->full_backward || c.weight_stash <= c.activation ||
                                                  fits(r, c.weight_stash - c.activation));
        return split ? operation_kind::backward_input : operation_kind::backward;
    }
    /// The most memory that a backward needs in addition to the stash, split or full.
    constexpr memory_size growth(stage s) const {
        return p_->held_in_backward(s, costs(s).activation) - costs(s).activation;
    }
    /// Keeps the stash of `gradient` on the device, as the gradient starts before the offload.
    constexpr void keep(rank r, const operation& gradient) {
        auto& queue = ranks_[r].leaving;
        queue.erase(std::find(queue.begin(), queue.end(), offload_of(gradient.stage, gradient.microbatch)));
        ranks_[r].host_reserved -= costs(gradient.stage).activation;
        move(gradient, stash::on_device);
    }

    constexpr bool choose_forward(rank r, operation& best, duration& next_arrival, bool& memory_blocks) {
        const auto next_gradient = next_arrival;
        bool found = false;
        bool best_leaves = false;
        for (const stage s : facts_->stages[r]) {
            const auto m = stages_[s].next_forward;
            if (m >= count_ || m - stages_[s].next_gradient >= stages_[s].cap) continue;
            const auto ready = step_.arrival(forward(s, microbatch{m}));
            if (ready > now()) {
                if (fits(r, costs(s).activation)) next_arrival = std::min(next_arrival, ready);
                continue;
            }
            if (found && !preferred(s, m, best)) continue;
            bool leaves = false;
            if (!admit(r, s, m, leaves)) {
                memory_blocks = true;
                continue;
            }
            best = forward(s, microbatch{m});
            best_leaves = leaves;
            found = true;
        }
        if (!found || next_gradient < now() + options_.forward_wait * costs(best.stage).forward) return false;
        move(best, best_leaves ? stash::leaving : stash::on_device);
        if (best_leaves) ranks_[r].host_reserved += costs(best.stage).activation;
        return true;
    }
    constexpr bool preferred(stage s, std::size_t m, const operation& other) const {
        switch (options_.forwards) {
        case forward_preference::deepest_stage: return s > other.stage;
        case forward_preference::shallowest_stage: return s < other.stage;
        case forward_preference::oldest_microbatch: return m <= other.microbatch.position();
        }
        return false;
    }

    static constexpr bool take(typename rank_state::queue& from, operation& op) {
        if (from.empty()) return false;
        op = from.waiting[from.next++];
        return true;
    }
    constexpr bool choose_weight(rank r, operation& op, duration next_arrival, bool memory_blocks) {
        auto& state = ranks_[r];
        const auto fits_before = [&](const typename rank_state::queue& q) {
            const auto length = costs(q.waiting[q.next].stage).backward_weight;
            return memory_blocks || next_arrival >= now() + options_.weight_fit * length;
        };
        if (!state.weights.empty()) return fits_before(state.weights) && take(state.weights, op);
        return !state.weights_last.empty() && fits_before(state.weights_last) && take(state.weights_last, op);
    }

    // The functions below check the memory.

    /// Whether the forward may start now, and whether to offload its stash (`leaves`).
    constexpr bool admit(rank r, stage s, std::size_t m, bool& leaves) {
        if (!fits(r, costs(s).activation)) return false;
        if (!careful_) return true;
        leaves = wants_to_leave(r, s, m) && host_has_room(r, s, m);
        if (safe_with(r, s, m, leaves ? stash::leaving : stash::on_device)) return !must_but_cannot(s, leaves);
        if (leaves || facts_->decision[s] != offload_decision::permit || !host_has_room(r, s, m)) return false;
        leaves = true;
        return safe_with(r, s, m, stash::leaving);
    }
    constexpr bool must_but_cannot(stage s, bool leaves) const { return facts_->must_leave[s] && !leaves; }

    constexpr bool wants_to_leave(rank r, stage s, std::size_t m) const {
        if (facts_->must_leave[s]) return true;
        const auto& c = costs(s);
        if (facts_->decision[s] == offload_decision::forbid) return false;
        if (facts_->decision[s] == offload_decision::require) return true;
        const auto hint = hints_->stashes[hint_of(s, m)];
        if (hint != hints::stash::by_rule) return hint == hints::stash::leaves;
        const double place = static_cast<double>(facts_->lifespan_place[s]);
        const double share = options_.offload_share * static_cast<double>(facts_->stages[r].size()) - place;
        const auto truncated = [&](std::size_t k) {
            return static_cast<std::size_t>(share * static_cast<double>(k) + time_share);
        };
        bool wants = share >= 1.0 || (share > 0.0 && truncated(m + 1) > truncated(m));
        if (!wants && options_.staging >= 0.0 && !limit(r).is_unlimited())
            wants = ranks_[r].held_in_all + c.activation > limit(r) - options_.staging * facts_->largest_stash[r];
        if (!wants) return false;
        const auto transfer = stash_transfer(*p_, s);
        const auto queue = static_cast<double>(ranks_[r].leaving.size()) * transfer->offload;
        return expected_gradient(s, m) - now() > queue + c.forward + transfer->offload + transfer->reload;
    }
    constexpr bool host_has_room(rank r, stage s, std::size_t m) const {
        auto reserve = facts_->host_for_must[r];
        if (facts_->must_leave[s] && m == oldest(r)) reserve = memory_size{};
        return ranks_[r].host_reserved + costs(s).activation + reserve <= p_->host_memory_limit[r] + facts_->slack;
    }

    /// An estimate of the start of the gradient of (s, m).
    constexpr duration expected_gradient(stage s, std::size_t m) const {
        return std::max(queued_gradient(s, m), reachable_gradient(s, m));
    }
    /// Estimates the start of a gradient from the earlier gradients of its stage.
    constexpr duration queued_gradient(stage s, std::size_t m) const {
        return now() + static_cast<double>(m - std::min(m, stages_[s].next_gradient)) * facts_->cycle;
    }
    /// A lower bound on the start of the gradient, from the progress of the microbatch.
    constexpr duration reachable_gradient(stage s, std::size_t m) const {
        const auto& paths = facts_->paths;
        duration chain = now() + paths.lifespan[s] - p_->gradient_time(s);
        if (const auto front = gradient_front_[m]; front < p_->graph.stages()) {
            const stage reached{front};
            chain = step_.end_of(backward_input(reached, microbatch{m})) + paths.gradient_start[s] -
                    paths.gradient_start[reached] - p_->gradient_time(reached);
        } else if (const auto end = step_.end_of(forward(stage{forward_front_[m]}, microbatch{m}));
                   !end.is_unlimited()) {
            const stage reached{forward_front_[m]};
            chain = end + paths.gradient_start[s] - paths.forward_start[reached] - costs(reached).forward;
        }
        return chain;
    }

    constexpr std::size_t oldest(rank r) const {
        std::size_t m = count_;
        for (const stage s : facts_->stages[r])
            m = std::min(m, stages_[s].next_gradient);
        return m;
    }
    static constexpr bool stays(stash where) { return where == stash::on_device || where == stash::coming; }

    constexpr void move(const operation& op, stash to) {
        auto& where = at(op);
        const bool settles = stays(where) != stays(to) || where == stash::none || to == stash::gone;
        where = to;
        if (!careful_ || !settles) return;
        const rank at_rank = p_->rank_of(op.stage);
        auto& r = ranks_[at_rank];
        const auto m = op.microbatch.position();
        r.held_in_all -= r.held[m];
        r.held[m] = held_by(at_rank, m);
        r.lacking[m] = lacking_for(at_rank, m);
        r.held_in_all += r.held[m];
    }
    /// Memory that stays on the device until the gradient is done.
    constexpr memory_size held_by(rank r, std::size_t m) const {
        memory_size total{};
        for (const stage s : facts_->stages[r])
            if (stays(at(s, m))) total += costs(s).activation;
        return total;
    }
    /// The most memory that the microbatch still needs until it is finished on this rank.
    constexpr memory_size lacking_for(rank r, std::size_t m) const {
        const auto& stages = facts_->stages[r];
        memory_size level{};
        memory_size peak{};
        for (const stage s : stages)
            if (at(s, m) == stash::none) {
                peak = std::max(peak, level + costs(s).activation);
                if (!facts_->must_leave[s]) level += costs(s).activation;
            }
        for (std::size_t i = stages.size(); i-- > 0;) {
            const stage s = stages[i];
            const auto where = at(s, m);
            if (where == stash::gone) continue;
            const bool absent = where == stash::none ? facts_->must_leave[s] != 0 : !stays(where);
            peak = std::max(peak, level + growth(s) + (absent ? costs(s).activation : memory_size{}));
            if (!absent) level -= costs(s).activation;
        }
        return peak;
    }
    /// Whether all microbatches in flight can still be finished one by one after this stash is added.
    constexpr bool safe_with(rank r, stage s, std::size_t m, stash then) {
        const auto& state = ranks_[r];
        if (limit(r).is_unlimited()) return true;
        auto& where = stages_[s].stashes[m];
        const auto before = where;
        where = then;
        const auto held = held_by(r, m);
        const auto lacking = lacking_for(r, m);
        where = before;
        auto room = limit(r) - state.held_in_all + state.held[m] - held;
        const auto last = std::max(m + 1, stages_[facts_->stages[r][0]].next_forward);
        for (auto k = oldest(r); k < last; ++k) {
            ++work_;
            if ((k == m ? lacking : state.lacking[k]) > room) return false;
            room += k == m ? held : state.held[k];
        }
        return true;
    }

    // The functions below handle transfers.

    constexpr bool can_start_transfer(const operation& op, rank r) const { return step_.is_free(op.kind, r); }
    constexpr void start_transfer(const operation& op, rank r, stash then) {
        move(op, then);
        step_.start(op, r);
    }

    constexpr void start_transfers(rank r) {
        auto& state = ranks_[r];
        start_reload(r);
        if (state.leaving.empty() || !can_start_transfer(state.leaving.front(), r)) return;
        const auto op = state.leaving.front();
        state.leaving.erase(state.leaving.begin());
        start_transfer(op, r, stash::on_the_way_out);
    }
    constexpr void start_reload(rank r) {
        auto& offloaded = ranks_[r].offloaded;
        if (offloaded.empty() || !can_start_transfer(offloaded.front(), r)) return;
        std::size_t soonest = 0;
        std::size_t oldest = 0;
        auto soonest_time = duration::unlimited();
        const auto is_older = [&](std::size_t i, std::size_t than) {
            const auto& a = offloaded[i];
            const auto& b = offloaded[than];
            return a.microbatch != b.microbatch ? a.microbatch < b.microbatch : a.stage > b.stage;
        };
        for (std::size_t i = 0; i < offloaded.size(); ++i) {
            const auto expected = expected_gradient(offloaded[i].stage, offloaded[i].microbatch.position());
            if (expected < soonest_time || (expected == soonest_time && is_older(i, soonest))) {
                soonest_time = expected;
                soonest = i;
            }
            if (is_older(i, oldest)) oldest = i;
        }
        // The oldest stash can always be reloaded.
        if (!try_reload(r, soonest) && oldest != soonest) try_reload(r, oldest);
    }
    constexpr bool try_reload(rank r, std::size_t i) {
        auto& offloaded = ranks_[r].offloaded;
        const auto op = offloaded[i];
        const auto m = op.microbatch.position();
        const auto ahead = (1.0 + options_.lead) * stash_transfer(*p_, op.stage)->reload;
        if (expected_gradient(op.stage, m) - ahead > now() + step_.slack()) {
            // A reload that waits for another gradient is reconsidered when that gradient ends.
            const auto gate = reachable_gradient(op.stage, m) - ahead;
            if (gate > now() && (ranks_[r].gate <= now() || gate < ranks_[r].gate))
                step_.wake(r, ranks_[r].gate = gate);
            return false;
        }
        if (!fits(r, costs(op.stage).activation) || !safe_with(r, op.stage, m, stash::coming)) return false;
        offloaded.erase(offloaded.begin() + static_cast<std::ptrdiff_t>(i));
        start_transfer(op, r, stash::coming);
        return true;
    }

    /// The rounding error of sums of durations, relative to the time.
    static constexpr double time_share = 1e-9;

    const basic_problem<Graph>* p_;
    const dispatch_facts<Graph>* facts_;
    dispatch_options options_;
    const hints* hints_;
    std::size_t count_;
    detail::running_step<Graph> step_;
    per_rank<rank_state, Graph::rank_extent> ranks_;
    per_stage<stage_state, Graph::stage_extent> stages_;
    std::vector<std::size_t> forward_front_;
    std::vector<std::size_t> gradient_front_;
    bool careful_;
    std::size_t work_ = 0;
};

} // namespace optpipe
