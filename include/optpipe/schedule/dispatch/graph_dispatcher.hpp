#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/dispatch_options.hpp"
#include "optpipe/schedule/dispatch/list_schedule.hpp"
#include "optpipe/schedule/dispatch/safe_memory.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace optpipe {

/// The parameters of a `graph_dispatcher`. All parameter values give orders. Defaults are not tuned.
struct graph_dispatch_options {
    /// Number of microbatches in flight on a stage, in units of lifespan / cycle time.
    double depth = 1.0;
    /// For each stage, the number of microbatches in flight beyond `depth`.
    std::vector<int> further{};
    forward_preference forwards = forward_preference::deepest_stage;
    /// Whether a forward comes before a gradient if both can start. Gradients of a sequence's slices are often ready
    /// one after the other. If all of them came first, the next rank would wait for a forward.
    bool forward_first = false;
    /// Whether an operation may take memory only if every sequence in flight can still be finished afterwards.
    bool careful = false;
    /// The largest number of weight gradients that may wait on a rank. A waiting weight gradient runs when nothing else
    /// can run. With 0, each W runs right after its I, or as a part of a full backward.
    std::size_t most_weights = std::numeric_limits<std::size_t>::max();
    /// The storage option of each stage.
    std::vector<storage_index> storage{};
    /// The microbatches in the order in which they enter the pipeline. Slices of one sequence follow one another.
    std::vector<microbatch> sequence{};
    /// Whether a forward and a gradient that can both start become a pair, if the pair is possible and saves time.
    bool pairs = false;
    /// For each pair in `overlaps`, whether the dispatcher avoids it. Empty if all pairs may start. A pair saves time
    /// on its rank, but ends later than each part alone. If memory is scarce, the step may thus be shorter with only
    /// some pairs.
    std::vector<unsigned char> avoided{};
    /// The longest wait for the other part of a pair, as a multiple of the time that the pair saves. If the other part
    /// starts in another pair, the operation may wait again. An operation waits only if the other part's inputs are on
    /// their way.
    double wait = 0.0;
    friend bool operator==(const graph_dispatch_options&, const graph_dispatch_options&) = default;
};

/// Every stage's first storage option, and the microbatches in the order of the graph.
template <pipeline_graph Graph> [[nodiscard]] graph_dispatch_options first_options(const basic_problem<Graph>& p) {
    graph_dispatch_options first;
    first.further.assign(p.graph.stages(), 0);
    first.storage.assign(p.graph.stages(), 0);
    for (const microbatch m : p.graph.all_microbatches())
        first.sequence.push_back(m);
    return first;
}

/// Simulates a step of any graph, with any microbatches. Every rank starts the best operation that is ready. Pairs come
/// first, then gradients, then forwards within the limits on memory and microbatches in flight, and then weight
/// gradients. Forwards come before gradients if `forward_first` is true. All stages run the microbatches in the same
/// order, and the gradients of a sequence's slices in reverse.
///
/// If ranks wait for each other's memory, operations are missing from the result. A careful dispatcher takes memory
/// only if the sequences in flight can still be finished in order. Each sequence in flight may use the memory that
/// earlier sequences release (the banker's algorithm). The need of a sequence is its peak memory when it runs alone
/// with full backwards. A careful dispatcher hardly ever gets stuck, but often has fewer microbatches in flight.
/// Contract: no storage option of `options` offloads.
template <pipeline_graph Graph> class graph_dispatcher {
public:
    using work_by_rank = per_rank<duration, Graph::rank_extent>;

    graph_dispatcher(const basic_problem<Graph>& p, const graph_dispatch_options& options)
        : p_{&p}, options_{&options}, cell_{p.graph}, stages_of_{stages_by_rank(p.graph)}, step_{p,
                                                                                                 tolerated_limits(p)},
          stages_(p.graph.stages()), weights_(p.graph.ranks()), left_(p.graph.ranks()), restored_(cell_.size(), 0) {
        OPTPIPE_EXPECT(options.avoided.empty() || options.avoided.size() == p.overlaps.size(),
                       "graph_dispatcher: `avoided` has one entry for each pair of the problem");
        const auto sequences = sequences_in(options.sequence);
        for (const auto& slices : sequences) {
            gradients_.insert(gradients_.end(), slices.rbegin(), slices.rend());
            most_slices_ = std::max(most_slices_, slices.size());
        }
        set_caps();
        if (options.careful)
            safe_.emplace(p, sequences, [&](stage s, microbatch) { return options.storage[s.position()]; });
    }

    /// All operations in the order in which they started.
    [[nodiscard]] operation_list<Graph> run(stop_check stop = {}) {
        detail::list_schedule(step_, *this, stop);
        return step_.take_started();
    }
    /// The same, but the run gives up once a rank can't end by `most`. Operations are then missing. `work` is the least
    /// duration of all computations of each rank.
    [[nodiscard]] operation_list<Graph> run_until(duration most, const work_by_rank& work, stop_check stop) {
        constexpr double rounding = 1e-9;
        most_ = (1.0 + rounding) * most;
        left_ = work;
        return run(stop);
    }
    /// Whether `run_until` has given up.
    [[nodiscard]] bool gave_up() const { return gave_up_; }

    // Called by `list_schedule`.

    void serve(rank r) {
        gave_up_ = gave_up_ || step_.now() + left_[r] > most_;
        if (gave_up_) return;
        if (!step_.is_free(operation_kind::forward, r)) return;
        if (start_waiting_weight(r, options_->most_weights)) return;
        if (options_->pairs && start_pair(r)) return;
        if (options_->forward_first && start_forward(r)) return;
        if (start_gradient(r) || start_forward(r)) return;
        start_waiting_weight(r, 0);
    }
    void end(const operation& op, rank r) {
        auto& s = stages_[op.stage];
        if (safe_) safe_->end(op);
        if (op.kind == operation_kind::recompute) restored_[cell_(op)] = 1;
        if (is_gradient(op.kind)) {
            ++s.ended;
            if (op.kind == operation_kind::backward_input && p_->costs[op.stage].gradients == gradient_kind::full)
                weights_[r].waiting.push_back(sibling(op, operation_kind::backward_weight));
        }
    }

private:
    struct stage_state {
        std::size_t next_forward = 0;
        std::size_t next_gradient = 0;
        std::size_t ended = 0; // gradients that have ended
        std::size_t cap = 1;
    };
    struct queue {
        std::vector<operation> waiting{};
        std::size_t next = 0;
        [[nodiscard]] std::size_t size() const { return waiting.size() - next; }
    };

    /// Groups the microbatches `forwards` into sequences, without changing their order.
    std::vector<std::vector<microbatch>> sequences_in(const std::vector<microbatch>& forwards) const {
        std::vector<std::vector<microbatch>> found;
        for (const microbatch m : forwards) {
            if (found.empty() || p_->microbatches.slice_before(m) != found.back().back()) found.emplace_back();
            found.back().push_back(m);
        }
        return found;
    }
    void set_caps() {
        const auto paths = paths_of(*p_);
        const auto cycle = p_->busiest_work();
        constexpr double nearly_one = 0.999; // rounds up, and ignores rounding errors of integral values
        for (const stage s : p_->graph.all_stages()) {
            const double further = options_->further[s.position()];
            const double depth = options_->depth * (paths.lifespan[s] / cycle) + nearly_one + further;
            const double most = static_cast<double>(p_->graph.microbatches());
            stages_[s].cap = static_cast<std::size_t>(std::clamp(depth, 1.0, most)) + most_slices_ - 1;
        }
    }

    /// Whether all sequences in flight can still be finished one by one after `op` takes its memory.
    bool is_safe(const operation& op, rank r, memory_size taken) const {
        if (!safe_ || step_.limit(r).is_unlimited()) return true;
        return safe_->is_safe(op, taken, [&](memory_size more) { return step_.fits(r, more); });
    }

    operation with_storage(operation op) const {
        op.storage = options_->storage[op.stage.position()];
        return op;
    }
    bool arrives_by_now(const operation& op) const { return step_.arrival(op) <= step_.now() + step_.slack(); }
    bool fits(const operation& op, rank r) const {
        const auto taken = memory_effect_of(*p_, op).acquired_at_start;
        return step_.fits(r, taken) && (taken <= memory_size{} || is_safe(op, r, taken));
    }
    bool try_start(const operation& op, rank r) {
        if (!fits(op, r)) return false;
        start(op, r);
        return true;
    }
    void start(const operation& op, rank r) {
        if (safe_) safe_->start(op);
        step_.start(op, r);
        if (!most_.is_unlimited() && op.kind != operation_kind::recompute) left_[r] -= duration_of(*p_, op);
    }

    bool start_waiting_weight(rank r, std::size_t more_than) {
        auto& own = weights_[r];
        if (own.size() <= more_than) return false;
        return try_start(own.waiting[own.next], r) && ++own.next > 0;
    }

    /// Among all possible pairs that save time, starts the pair with the first gradient.
    bool start_pair(rank r) {
        std::optional<possible_pair> best;
        for (const stage b : stages_of_[r])
            for (const stage f : stages_of_[r]) {
                const auto found = next_pair(f, b);
                if (found && can_start(*found, r) && (!best || comes_before(found->pair, best->pair))) best = found;
            }
        if (!best) return false;
        const auto& [first, second] = best->pair;
        if (safe_) safe_->start(first);
        if (safe_) safe_->start(second);
        step_.start(best->pair, *best->of, r);
        ++stages_[first.stage].next_forward;
        ++stages_[second.stage].next_gradient;
        return true;
    }
    struct possible_pair {
        operation_pair pair{};
        const overlap* of = nullptr;
        duration saved{};
        /// The time when the inputs of both parts have arrived.
        duration arrival{};
    };
    /// The pair of the next forward of `f` and the next gradient of `b`. Empty if the pair isn't possible, is avoided,
    /// saves no time, or has inputs without a known arrival.
    std::optional<possible_pair> next_pair(stage f, stage b) const {
        if (!may_take_forward(f) || !has_gradient(b)) return std::nullopt;
        const auto one = with_storage(forward(f, options_->sequence[stages_[f].next_forward]));
        const auto gradient = gradient_of(b, gradients_[stages_[b].next_gradient]);
        const auto arrival = std::max(step_.arrival(one), step_.arrival(gradient));
        if (arrival.is_unlimited()) return std::nullopt;
        const auto other = gradient_in_pair(one, gradient);
        if (!other) return std::nullopt;
        const auto& of = *overlap_of(*p_, one, *other);
        if (!options_->avoided.empty() && options_->avoided[p_->overlaps.position(of)] != 0) return std::nullopt;
        const auto saved = duration_of(*p_, one) + duration_of(*p_, *other) - pair_duration(*p_, of, one, *other);
        if (!(saved > step_.slack())) return std::nullopt;
        return possible_pair{pair_of(one, *other), &of, saved, arrival};
    }
    bool can_start(const possible_pair& next, rank r) const {
        return next.arrival <= step_.now() + step_.slack() && is_restored(next.pair.backward) &&
               fits(next.pair, *next.of, r);
    }
    /// Whether the ready part of this pair waits for the other part. When the inputs of the other part arrive, `serve`
    /// is called for the rank again.
    bool waits_for_pair(stage f, stage b, rank r) const {
        if (!options_->pairs || options_->wait <= 0.0) return false;
        const auto next = next_pair(f, b);
        return next && next->arrival > step_.now() + step_.slack() &&
               next->arrival <= step_.now() + options_->wait * next->saved && fits(next->pair, *next->of, r);
    }
    /// Whether the next forward of `f`, or gradient of `b`, waits for the other part of a pair.
    bool forward_waits(stage f, rank r) const {
        return std::any_of(stages_of_[r].begin(), stages_of_[r].end(),
                           [&](stage b) { return waits_for_pair(f, b, r); });
    }
    bool gradient_waits(stage b, rank r) const {
        return std::any_of(stages_of_[r].begin(), stages_of_[r].end(),
                           [&](stage f) { return waits_for_pair(f, b, r); });
    }
    /// Returns I or B, whichever form of `gradient` can be in a pair with the forward `f`. Empty if neither form can be
    /// in a pair with `f`.
    std::optional<operation> gradient_in_pair(const operation& f, const operation& gradient) const {
        if (overlap_of(*p_, f, gradient)) return gradient;
        const auto other = sibling(gradient, gradient.kind == operation_kind::backward ? operation_kind::backward_input
                                                                                       : operation_kind::backward);
        const bool has_pair = may_split_or_join(*p_, gradient.stage) && overlap_of(*p_, f, other);
        return has_pair ? std::optional{other} : std::nullopt;
    }
    /// Whether the memory has room for the pair. In a careful run, a gradient that takes memory runs alone.
    bool fits(const operation_pair& pair, const overlap& of, rank r) const {
        const auto forwards = memory_effect_of(*p_, pair.forward).acquired_at_start;
        const auto backwards = memory_effect_of(*p_, pair.backward).acquired_at_start;
        if (safe_ && backwards > memory_size{}) return false;
        return step_.fits(r, forwards + backwards + of.memory) &&
               (forwards <= memory_size{} || is_safe(pair.forward, r, forwards));
    }
    bool comes_before(const operation_pair& a, const operation_pair& b) const {
        const auto x = stages_[a.backward.stage].next_gradient;
        const auto y = stages_[b.backward.stage].next_gradient;
        return x != y ? x < y : comes_before(a.forward.stage, b.forward.stage);
    }
    bool has_gradient(stage s) const {
        return p_->costs[s].gradients != gradient_kind::none && stages_[s].next_gradient < gradients_.size();
    }
    bool is_restored(const operation& op) const {
        return !is_possible(*p_, sibling(op, operation_kind::recompute)) || restored_[cell_(op)] != 0;
    }

    /// Starts the ready gradient whose microbatch comes first.
    bool start_gradient(rank r) {
        const stage* best = nullptr;
        for (const stage& s : stages_of_[r]) {
            const auto& own = stages_[s];
            if (!has_gradient(s)) continue;
            const bool is_first = !best || own.next_gradient < stages_[*best].next_gradient;
            if (!is_first || !arrives_by_now(backward_input(s, gradients_[own.next_gradient]))) continue;
            // A stash is restored without waiting for the other part of a pair.
            if (!is_restored(gradient_of(s, gradients_[own.next_gradient])) || !gradient_waits(s, r)) best = &s;
        }
        if (!best) return false;
        auto& own = stages_[*best];
        const auto op = gradient_of(*best, gradients_[own.next_gradient]);
        const auto again = sibling(op, operation_kind::recompute);
        if (!is_restored(op)) return try_start(again, r) || make_room(r);
        if (!try_start(op, r)) return make_room(r);
        ++own.next_gradient;
        return true;
    }
    operation gradient_of(stage s, microbatch m) const {
        const bool splits = may_split(*p_, s) && (options_->most_weights > 0 || !p_->full_backward ||
                                                  p_->costs[s].gradients == gradient_kind::input);
        return with_storage(splits ? backward_input(s, m) : backward(s, m));
    }
    /// Frees memory for a gradient by starting a weight gradient that waits.
    bool make_room(rank r) { return start_waiting_weight(r, 0); }

    bool start_forward(rank r) {
        const stage* best = nullptr;
        for (const stage& s : stages_of_[r])
            if ((!best || comes_before(s, *best)) && may_run_forward(s, r) && !forward_waits(s, r)) best = &s;
        if (!best) return false;
        auto& own = stages_[*best];
        start(with_storage(forward(*best, options_->sequence[own.next_forward])), r);
        ++own.next_forward;
        return true;
    }
    bool may_run_forward(stage s, rank r) const {
        if (!may_take_forward(s)) return false;
        const auto op = with_storage(forward(s, options_->sequence[stages_[s].next_forward]));
        return arrives_by_now(op) && fits(op, r);
    }
    /// Whether the stage has a forward left, and may have a further microbatch in flight.
    bool may_take_forward(stage s) const {
        const auto& own = stages_[s];
        return own.next_forward < options_->sequence.size() && own.next_forward < finished_for(s) + own.cap;
    }
    /// Number of microbatches that aren't in flight any more. On a stage without gradients, a microbatch is in flight
    /// until all successors of the stage have begun it.
    std::size_t finished_for(stage s) const {
        if (p_->costs[s].gradients != gradient_kind::none) return stages_[s].ended;
        auto least = options_->sequence.size();
        p_->graph.for_each_edge_out_of(s, [&](const edge& e) { least = std::min(least, stages_[e.to].next_forward); });
        return least;
    }
    bool comes_before(stage a, stage b) const {
        switch (options_->forwards) {
        case forward_preference::deepest_stage: return a > b;
        case forward_preference::shallowest_stage: return a < b;
        case forward_preference::oldest_microbatch: break;
        }
        const auto& x = stages_[a];
        const auto& y = stages_[b];
        return x.next_forward != y.next_forward ? x.next_forward < y.next_forward : a > b;
    }

    const basic_problem<Graph>* p_;
    const graph_dispatch_options* options_;
    cell_numbering cell_;
    per_rank<bounded_vector<stage, Graph::stage_extent>, Graph::rank_extent> stages_of_;
    detail::running_step<Graph> step_;
    per_stage<stage_state, Graph::stage_extent> stages_;
    per_rank<queue, Graph::rank_extent> weights_;
    /// The work of each rank that hasn't started, within `run_until`.
    work_by_rank left_;
    duration most_ = duration::unlimited();
    bool gave_up_ = false;
    /// Whether the recomputation of a cell has ended.
    std::vector<unsigned char> restored_;
    std::vector<microbatch> gradients_{};
    std::size_t most_slices_ = 1;
    /// Empty unless the dispatcher is careful.
    std::optional<safe_memory<Graph>> safe_{};
};

} // namespace optpipe
