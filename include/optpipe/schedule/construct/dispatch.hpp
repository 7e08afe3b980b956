#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/dispatch_facts.hpp"
#include "optpipe/schedule/construct/dispatch_options.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace optpipe {

/// Simulates a step, and lets every rank start the best operation that is ready: gradients, then forwards that the
/// memory allows, then weight gradients in the remaining time. Microbatches are in FIFO order on every stage.
///
/// Never deadlocks if one microbatch at a time fits. Before it takes a stash, it checks, in the order of microbatches,
/// that each one in flight can still be finished with the memory that its predecessors release (the banker's
/// algorithm). O(operations × microbatches in flight on a rank). Contract: stashes are only kept or offloaded as a
/// whole (`is_described_by_costs`).
template <pipeline_graph Graph> class dispatcher {
public:
    constexpr dispatcher(const basic_problem<Graph>& p, const dispatch_facts<Graph>& facts,
                         const dispatch_options& options, const dispatch_hints<Graph>& exceptions)
        : p_{&p}, facts_{&facts}, options_{options}, hints_{&exceptions}, count_{p.graph.microbatches()},
          ranks_(p.graph.ranks()), stages_(p.graph.stages()), forward_front_(count_, 0),
          gradient_front_(count_, p.graph.stages()), link_busy_(2 * p.graph.ranks(), 0),
          careful_(p.graph.stages() != p.graph.ranks() || !p.full_backward) {
        for (const rank r : p.graph.all_ranks()) {
            const auto least = facts.least[r];
            ranks_[r].limit = p.memory_limit[r].is_unlimited()
                                  ? memory_size::unlimited()
                                  : least + options.memory_share * (p.memory_limit[r] - least) + facts.slack;
        }
        for (const rank r : p.graph.all_ranks()) {
            ranks_[r].held.resize(count_);
            ranks_[r].lacking.resize(count_, facts.least[r]);
        }
        constexpr double nearly_one = 0.999; // rounds up, except for rounding errors of integral values
        for (const stage s : p.graph.all_stages()) {
            stages_[s].cells.resize(count_);
            const double depth =
                options.depth * (facts.paths.lifespan[s] / facts.cycle) + nearly_one + exceptions.depth[s.position()];
            stages_[s].cap = static_cast<std::size_t>(std::clamp(depth, 1.0, static_cast<double>(count_)));
            careful_ = careful_ || facts.decision[s] != offload_decision::forbid;
        }
    }

    /// Operations, ranks and stages visited per start, approximately.
    static constexpr std::size_t visits_per_start = 16;
    /// Deterministic work: number of operations, ranks, stages and stashes visited.
    [[nodiscard]] constexpr std::size_t work() const { return visits_per_start * started_.size() + work_; }

    /// All operations in the order in which they started; fewer than a step has after a deadlock. `stop` is polled;
    /// once it is true, the result is only the beginning of an order.
    [[nodiscard]] constexpr operation_list<Graph> run(stop_check stop = {}) {
        constexpr std::size_t between_looks = 1024; // some tenths of a millisecond
        started_.reserve(5 * p_->graph.stages() * count_);
        for (const rank r : p_->graph.all_ranks())
            touch(r);
        serve();
        for (std::size_t steps = 1; !events_.empty(); ++steps) {
            if (steps % between_looks == 0 && stop()) break;
            now_ = events_.front().time;
            const auto slack = time_share * now_;
            while (!events_.empty() && events_.front().time <= now_ + slack)
                apply(pop());
            serve();
        }
        return started_;
    }

private:
    using hints = dispatch_hints<Graph>;
    enum class stash : std::uint8_t { none, on_device, leaving, on_the_way_out, on_host, coming, gone };
    struct cell {
        duration forward_end = duration::unlimited();
        duration gradient_end = duration::unlimited();
        stash where = stash::none;
    };
    struct stage_state {
        std::vector<cell> cells{};
        std::size_t next_forward = 0;
        std::size_t next_gradient = 0;
        std::size_t cap = 1;
    };
    struct rank_state {
        memory_size limit{};
        memory_size used{};
        memory_size host_reserved{};
        bool computing = false;
        bool engine_busy[2]{};
        bool touched = false;
        duration gate = duration::unlimited();
        /// Weight gradients that may run, by priority.
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
        /// By microbatch: the memory that it keeps on the device, and the further memory that it needs in the worst
        /// case.
        std::vector<memory_size> held{};
        std::vector<memory_size> lacking{};
        memory_size held_in_all{};
    };
    struct event {
        duration time{};
        std::size_t number = 0;
        bool is_end = false;
        rank where{};
        operation op{};
        friend constexpr bool operator<(const event& a, const event& b) {
            return a.time != b.time ? a.time > b.time : a.number > b.number; // for a heap with the earliest on top
        }
    };

    constexpr const stage_costs& costs(stage s) const { return p_->costs[s]; }
    constexpr cell& at(const operation& op) { return stages_[op.stage].cells[op.microbatch.position()]; }
    constexpr const cell& at(stage s, std::size_t m) const { return stages_[s].cells[m]; }

    constexpr void touch(rank r) {
        if (ranks_[r].touched) return;
        ranks_[r].touched = true;
        touched_.push_back(r);
    }
    constexpr void push(event e) {
        e.number = pushed_++;
        events_.push_back(e);
        std::push_heap(events_.begin(), events_.end());
    }
    constexpr event pop() {
        std::pop_heap(events_.begin(), events_.end());
        const auto e = events_.back();
        events_.pop_back();
        return e;
    }
    constexpr void wake(rank r, duration time) {
        if (time <= now_)
            touch(r);
        else
            push({time, 0, false, r, {}});
    }

    constexpr void serve() {
        for (std::size_t i = 0; i < touched_.size(); ++i) {
            const rank r = touched_[i];
            ranks_[r].touched = false;
            work_ += 4 * facts_->stages[r].size() + ranks_[r].offloaded.size();
            start_transfers(r);
            start_compute(r);
        }
        touched_.clear();
    }

    // Ends of operations.

    constexpr void apply(const event& e) {
        now_ = std::max(now_, e.time);
        touch(e.where);
        if (!e.is_end) return;
        const auto& op = e.op;
        auto& r = ranks_[e.where];
        r.used -= memory_effect_of(*p_, with_implied_storage(*p_, op)).released_at_end;
        if (is_transfer(op.kind)) {
            end_transfer(op, e.where);
            return;
        }
        r.computing = false;
        if (op.kind == operation_kind::forward) {
            if (at(op).where == stash::leaving) r.leaving.push_back(offload_of(op.stage, op.microbatch));
        } else if (is_gradient(op.kind)) {
            if (op.kind == operation_kind::backward_input) want_weight(r, backward_weight(op.stage, op.microbatch));
            move(op, stash::gone);
        }
        if (const auto next = consumer_of(*p_, op)) wake(p_->rank_of(*next), now_ + p_->hop(op.stage, *next));
    }
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
        r.engine_busy[engine_of(op)] = false;
        link_busy_[link_of(op, where)] = 0;
        for (const rank mate : facts_->link_mates[where])
            touch(mate);
        if (op.kind == operation_kind::offload) {
            move(op, stash::on_host);
            r.offloaded.push_back(reload_of(op.stage, op.microbatch));
        } else {
            move(op, stash::on_device);
            r.host_reserved -= costs(op.stage).activation;
        }
    }

    // Starts of operations.

    constexpr void start(const operation& op, rank where) {
        started_.push_back(op);
        const auto stored = with_implied_storage(*p_, op);
        ranks_[where].used += memory_effect_of(*p_, stored).acquired_at_start;
        const auto end = now_ + duration_of(*p_, stored);
        if (op.kind == operation_kind::forward) at(op).forward_end = end;
        if (is_gradient(op.kind)) at(op).gradient_end = end;
        push({end, 0, true, where, op});
    }

    constexpr bool fits(rank r, memory_size amount) const { return ranks_[r].used + amount <= ranks_[r].limit; }

    constexpr void start_compute(rank r) {
        if (ranks_[r].computing) return;
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
        ranks_[r].computing = true;
        start(op, r);
    }

    /// When the inputs of `op` arrive, by the known ends, wherever the stash is.
    constexpr duration arrival(const operation& op) const {
        return input_time(*p_, op, [this](const operation& before) {
            const auto& own = at(before.stage, before.microbatch.position());
            return before.kind == operation_kind::forward ? own.forward_end : own.gradient_end;
        });
    }

    constexpr bool choose_gradient(rank r, operation& best, duration& next_arrival, bool& memory_blocks) {
        bool found = false;
        for (const stage s : facts_->stages[r]) {
            const auto m = stages_[s].next_gradient;
            if (m >= stages_[s].next_forward) continue;
            const auto ready = arrival(backward_input(s, microbatch{m}));
            if (ready > now_) {
                next_arrival = std::min(next_arrival, ready);
                continue;
            }
            const auto where = at(s, m).where;
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
        if (at(best).where == stash::leaving) keep(r, best);
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
    /// Memory that a backward needs beyond the stash in any case, split or full.
    constexpr memory_size growth(stage s) const {
        return p_->held_in_backward(s, costs(s).activation) - costs(s).activation;
    }
    /// Lets the stash stay, because the gradient starts before the offload.
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
            const auto ready = arrival(forward(s, microbatch{m}));
            if (ready > now_) {
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
        if (!found || next_gradient < now_ + options_.forward_wait * costs(best.stage).forward) return false;
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
            return memory_blocks || next_arrival >= now_ + options_.weight_fit * length;
        };
        if (!state.weights.empty()) return fits_before(state.weights) && take(state.weights, op);
        return !state.weights_last.empty() && fits_before(state.weights_last) && take(state.weights_last, op);
    }

    // Memory checks.

    /// Whether the forward may start now, and whether its stash is to be offloaded.
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
        if (!wants && options_.staging >= 0.0 && !ranks_[r].limit.is_unlimited())
            wants =
                ranks_[r].held_in_all + c.activation > ranks_[r].limit - options_.staging * facts_->largest_stash[r];
        if (!wants) return false;
        const auto transfer = stash_transfer(*p_, s);
        const auto queue = static_cast<double>(ranks_[r].leaving.size()) * transfer->offload;
        return expected_gradient(s, m) - now_ > queue + c.forward + transfer->offload + transfer->reload;
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
    /// Estimates when a gradient starts, from the gradients of its stage that come before it.
    constexpr duration queued_gradient(stage s, std::size_t m) const {
        return now_ + static_cast<double>(m - std::min(m, stages_[s].next_gradient)) * facts_->cycle;
    }
    /// A lower bound from the progress of the microbatch.
    constexpr duration reachable_gradient(stage s, std::size_t m) const {
        const auto& paths = facts_->paths;
        duration chain = now_ + paths.lifespan[s] - p_->gradient_time(s);
        if (const auto front = gradient_front_[m]; front < p_->graph.stages()) {
            const stage reached{front};
            chain = at(reached, m).gradient_end + paths.gradient_start[s] - paths.gradient_start[reached] -
                    p_->gradient_time(reached);
        } else if (const stage reached{forward_front_[m]}; !at(reached, m).forward_end.is_unlimited()) {
            chain = at(reached, m).forward_end + paths.gradient_start[s] - paths.forward_start[reached] -
                    costs(reached).forward;
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
        auto& where = at(op).where;
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
            if (stays(at(s, m).where)) total += costs(s).activation;
        return total;
    }
    /// The further memory that the microbatch needs, in the worst case, until it is finished on this rank.
    constexpr memory_size lacking_for(rank r, std::size_t m) const {
        const auto& stages = facts_->stages[r];
        memory_size level{};
        memory_size peak{};
        for (const stage s : stages)
            if (at(s, m).where == stash::none) {
                peak = std::max(peak, level + costs(s).activation);
                if (!facts_->must_leave[s]) level += costs(s).activation;
            }
        for (std::size_t i = stages.size(); i-- > 0;) {
            const stage s = stages[i];
            const auto where = at(s, m).where;
            if (where == stash::gone) continue;
            const bool absent = where == stash::none ? facts_->must_leave[s] != 0 : !stays(where);
            peak = std::max(peak, level + growth(s) + (absent ? costs(s).activation : memory_size{}));
            if (!absent) level -= costs(s).activation;
        }
        return peak;
    }
    /// Whether all microbatches in flight can still be finished, one after the other, after this stash is added.
    constexpr bool safe_with(rank r, stage s, std::size_t m, stash then) {
        const auto& state = ranks_[r];
        if (state.limit.is_unlimited()) return true;
        auto& where = stages_[s].cells[m].where;
        const auto before = where;
        where = then;
        const auto held = held_by(r, m);
        const auto lacking = lacking_for(r, m);
        where = before;
        auto room = state.limit - state.held_in_all + state.held[m] - held;
        const auto last = std::max(m + 1, stages_[facts_->stages[r][0]].next_forward);
        for (auto k = oldest(r); k < last; ++k) {
            ++work_;
            if ((k == m ? lacking : state.lacking[k]) > room) return false;
            room += k == m ? held : state.held[k];
        }
        return true;
    }

    // Transfers.

    constexpr std::size_t engine_of(const operation& op) const {
        return copy_engine_of(p_->transfer, is_inward(op.kind));
    }
    constexpr std::size_t link_of(const operation& op, rank r) const {
        return host_channel_of(p_->transfer, r, is_inward(op.kind));
    }
    constexpr bool can_start_transfer(const operation& op, rank r) const {
        return !ranks_[r].engine_busy[engine_of(op)] && link_busy_[link_of(op, r)] == 0;
    }
    constexpr void start_transfer(const operation& op, rank r, stash then) {
        ranks_[r].engine_busy[engine_of(op)] = true;
        link_busy_[link_of(op, r)] = 1;
        move(op, then);
        start(op, r);
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
        // The oldest can always be reloaded.
        if (!try_reload(r, soonest) && oldest != soonest) try_reload(r, oldest);
    }
    constexpr bool try_reload(rank r, std::size_t i) {
        auto& offloaded = ranks_[r].offloaded;
        const auto op = offloaded[i];
        const auto m = op.microbatch.position();
        const auto ahead = (1.0 + options_.lead) * stash_transfer(*p_, op.stage)->reload;
        if (expected_gradient(op.stage, m) - ahead > now_ + time_share * now_) {
            // Reloads that wait for other gradients are reconsidered when these end.
            const auto gate = reachable_gradient(op.stage, m) - ahead;
            if (gate > now_ && (ranks_[r].gate <= now_ || gate < ranks_[r].gate)) wake(r, ranks_[r].gate = gate);
            return false;
        }
        if (!fits(r, costs(op.stage).activation) || !safe_with(r, op.stage, m, stash::coming)) return false;
        offloaded.erase(offloaded.begin() + static_cast<std::ptrdiff_t>(i));
        start_transfer(op, r, stash::coming);
        return true;
    }

    /// Relative to a time: rounding of sums of durations.
    static constexpr double time_share = 1e-9;

    const basic_problem<Graph>* p_;
    const dispatch_facts<Graph>* facts_;
    dispatch_options options_;
    const hints* hints_;
    std::size_t count_;
    per_rank<rank_state, Graph::rank_extent> ranks_;
    per_stage<stage_state, Graph::stage_extent> stages_;
    std::vector<std::size_t> forward_front_;
    std::vector<std::size_t> gradient_front_;
    std::vector<unsigned char> link_busy_;
    bool careful_;
    duration now_{};
    std::size_t pushed_ = 0;
    std::size_t work_ = 0;
    std::vector<event> events_{};
    std::vector<rank> touched_{};
    operation_list<Graph> started_{};
};

} // namespace optpipe
