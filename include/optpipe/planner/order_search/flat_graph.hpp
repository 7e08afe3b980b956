#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/occupied_lanes.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::detail {

/// A problem of any kind as flat arrays of plain numbers, for inner loops. A cell (a stage and microbatch) has six
/// operations, some of which are missing. I and B count as the same operation, so inputs from other cells never change.
/// Facts that depend on the cell's storage option, or on whether its backward is split, are computed again when the
/// option or the split changes.
class flat_graph {
public:
    using id = std::int32_t;
    static constexpr id none = -1;

    /// How a cell stores its stash, and whether it has I and W instead of a B.
    struct cell_choice {
        storage_index storage = 0;
        bool is_split = false;
        friend bool operator==(const cell_choice&, const cell_choice&) = default;
    };
    /// An operation of another cell that an operation waits for, and the time between them.
    struct input {
        id before = none;
        double delay = 0.0;
    };
    struct facts {
        double duration = 0.0;
        double acquired = 0.0;
        /// Device memory of the operation's rank that the end of the operation frees, whichever operation took that
        /// memory.
        double released = 0.0;
        /// The operation of the same cell that this operation waits for, or none.
        id own_input = none;
        std::uint32_t first_input = 0;
        std::uint32_t inputs = 0;
        std::uint32_t rank = 0;
        /// The lanes that the operation takes. For a computation, both fields have the same lane.
        std::uint32_t lane = 0;
        std::uint32_t shared_lane = 0;
        /// Whether the end of the operation frees memory that other operations took (`for_each_release_of_others`).
        bool frees_others = false;
    };

    explicit flat_graph(const problem& p)
        : p_{&p}, cell_{p.graph}, lanes_{p}, choices_(cell_.size()), facts_(slot_count * cell_.size()),
          effects_(facts_.size()) {
        const double slack = tolerance{}.at(p.memory_scale()).value();
        for (const rank r : p.graph.all_ranks())
            limits_.push_back(p.memory_limit[r].value() + slack);
        for (std::size_t cell = 0; cell < cell_.size(); ++cell) {
            for (std::size_t slot = 0; slot < slot_count; ++slot)
                add_inputs(static_cast<id>(slot_count * cell + slot));
            choose(cell, {});
        }
        add_overlaps();
        memory_delays_ = offloads_anything(p) || frees_memory_of_other_ranks();
    }

    [[nodiscard]] const problem& of() const { return *p_; }
    /// One more than the largest number of an operation.
    [[nodiscard]] std::size_t size() const { return facts_.size(); }
    [[nodiscard]] std::size_t lanes() const { return lanes_.size(); }
    /// Whether an operation may have to wait for memory. No operation has to wait if memory of a rank is freed only by
    /// computations of the same rank.
    [[nodiscard]] bool memory_delays() const { return memory_delays_; }
    [[nodiscard]] double limit(std::uint32_t r) const { return limits_[r]; }

    [[nodiscard]] const facts& operator[](id i) const { return facts_[at(i)]; }
    [[nodiscard]] const memory_effect& effect(id i) const { return effects_[at(i)]; }
    [[nodiscard]] std::span<const input> inputs(const facts& f) const {
        return std::span{inputs_}.subspan(f.first_input, f.inputs);
    }

    [[nodiscard]] id number(const operation& op) const {
        return static_cast<id>(slot_count * cell_(op) + slot_of(op.kind));
    }
    [[nodiscard]] static bool is_forward(id i) { return at(i) % slot_count == slot_of(operation_kind::forward); }
    [[nodiscard]] static bool is_gradient(id i) {
        return at(i) % slot_count == slot_of(operation_kind::backward_input);
    }
    [[nodiscard]] std::size_t cell_of(id i) const { return at(i) / slot_count; }
    [[nodiscard]] std::size_t cell_of(stage s, microbatch m) const { return cell_(s, m); }
    [[nodiscard]] stage stage_of(id i) const { return cell_.stage_of(cell_of(i)); }
    [[nodiscard]] microbatch microbatch_of(id i) const { return cell_.microbatch_of(cell_of(i)); }
    [[nodiscard]] operation operation_of(id i) const {
        const auto cell = cell_of(i);
        const auto kind = kind_of(at(i) % slot_count, cell);
        return {cell_.stage_of(cell), kind, cell_.microbatch_of(cell), choices_[cell].storage};
    }
    /// The I or B of a cell, and its W.
    [[nodiscard]] static id gradient_of(std::size_t cell) {
        return static_cast<id>(slot_count * cell + slot_of(operation_kind::backward_input));
    }
    [[nodiscard]] static id weight_of(std::size_t cell) {
        return static_cast<id>(slot_count * cell + slot_of(operation_kind::backward_weight));
    }
    /// The operation of the same stage and kind on microbatch `m`.
    [[nodiscard]] id with_microbatch(id i, microbatch m) const {
        return static_cast<id>(slot_count * cell_(stage_of(i), m) + at(i) % slot_count);
    }

    [[nodiscard]] cell_choice choice(std::size_t cell) const { return choices_[cell]; }
    void choose(std::size_t cell, cell_choice chosen) {
        choices_[cell] = chosen;
        for (std::size_t slot = 0; slot < slot_count; ++slot)
            set_facts(static_cast<id>(slot_count * cell + slot));
    }

    /// Whether the gradient `b` may be either a B, or an I with a W.
    [[nodiscard]] bool may_split_or_join(id b) const {
        return optpipe::may_split_or_join(*p_, stage_of(b));
    }
    /// The `overlap` that describes a pair of forward `f` and backward `b`, or null if the problem has no such pair.
    /// The cell of `b` determines whether the backward is a B or an I.
    [[nodiscard]] const overlap* overlap_of(id f, id b) const {
        if (!is_forward(f) || !is_gradient(b)) return nullptr;
        return overlaps_[place_of(stage_of(f), stage_of(b), kind_of(at(b) % slot_count, cell_of(b)))];
    }
    /// The `overlap` of a pair in which an I replaces the B `b`, or a B replaces the I `b`. Null if the problem has no
    /// pair with the other kind of backward.
    [[nodiscard]] const overlap* overlap_of_other_kind(id f, id b) const {
        if (!is_forward(f) || !is_gradient(b) || !may_split_or_join(b)) return nullptr;
        const bool is_split = choices_[cell_of(b)].is_split;
        return overlaps_[place_of(stage_of(f), stage_of(b),
                                  is_split ? operation_kind::backward : operation_kind::backward_input)];
    }
    /// The duration of the pair of `f` and `b` that `of` describes.
    [[nodiscard]] double pair_duration(const overlap& of, id f, id b) const {
        return optpipe::pair_duration(*p_, of, operation_of(f), operation_of(b)).value();
    }

private:
    static constexpr std::size_t slot_count = most_operations_per_cell;

    static std::size_t at(id i) { return static_cast<std::size_t>(i); }
    static constexpr std::size_t slot_of(operation_kind kind) {
        switch (kind) {
        case operation_kind::forward: return 0;
        case operation_kind::backward_input:
        case operation_kind::backward: return 1;
        case operation_kind::backward_weight: return 2;
        case operation_kind::offload: return 3;
        case operation_kind::reload: return 4;
        case operation_kind::recompute: return 5;
        }
        return 0;
    }
    [[nodiscard]] operation_kind kind_of(std::size_t slot, std::size_t cell) const {
        constexpr operation_kind kinds[] = {operation_kind::forward,         operation_kind::backward_input,
                                            operation_kind::backward_weight, operation_kind::offload,
                                            operation_kind::reload,          operation_kind::recompute};
        const bool is_full = kinds[slot] == operation_kind::backward_input && !choices_[cell].is_split &&
                             p_->costs[cell_.stage_of(cell)].gradients == gradient_kind::full;
        return is_full ? operation_kind::backward : kinds[slot];
    }

    [[nodiscard]] std::size_t place_of(stage f, stage b, operation_kind backward) const {
        const std::size_t is_whole = backward == operation_kind::backward ? 1 : 0;
        return 2 * (f.position() * p_->graph.stages() + b.position()) + is_whole;
    }
    void add_overlaps() {
        if (p_->overlaps.empty()) return;
        overlaps_.assign(2 * p_->graph.stages() * p_->graph.stages(), nullptr);
        for (const overlap& each : p_->overlaps) {
            const auto kind =
                each.kind == overlap_kind::backward ? operation_kind::backward : operation_kind::backward_input;
            overlaps_[place_of(each.forward, each.backward, kind)] = &each;
        }
    }
    /// Sets all facts that are independent of the cell's storage option and of whether its backward is split.
    void add_inputs(id i) {
        const auto op = operation_of(i);
        auto& f = facts_[at(i)];
        f.rank = static_cast<std::uint32_t>(p_->rank_of(op.stage).position());
        const auto occupied = lanes_.of(op.kind, p_->rank_of(op.stage));
        f.lane = static_cast<std::uint32_t>(occupied.own);
        f.shared_lane = static_cast<std::uint32_t>(occupied.shared);
        f.first_input = static_cast<std::uint32_t>(inputs_.size());
        for_each_input_of_others(*p_, op, [&](const operation& before, duration delay) {
            const auto from = number(before);
            if (cell_of(from) != cell_of(i) || delay > duration{}) inputs_.push_back({from, delay.value()});
        });
        f.inputs = static_cast<std::uint32_t>(inputs_.size()) - f.first_input;
    }
    void set_facts(id i) {
        const auto op = operation_of(i);
        if (!is_possible(*p_, op)) return;
        auto& f = facts_[at(i)];
        const auto own = own_input_of(op, stash_way_of(*p_, op));
        f.own_input = own ? number(*own) : none;
        f.duration = duration_of(*p_, op).value();
        effects_[at(i)] = memory_effect_of(*p_, op);
        f.acquired = effects_[at(i)].acquired_at_start.value();
        f.released = effects_[at(i)].released_at_end.value();
        f.frees_others = false;
        for_each_release_of_others(*p_, op, [&](rank r, memory_size amount) {
            f.frees_others = true;
            if (r.position() == f.rank) f.released += amount.value();
        });
    }
    [[nodiscard]] bool frees_memory_of_other_ranks() const {
        bool found = false;
        for (std::size_t i = 0; i < size(); ++i) {
            const auto op = operation_of(static_cast<id>(i));
            if (!is_possible(*p_, op)) continue;
            for_each_release_of_others(*p_, op,
                                       [&](rank r, memory_size) { found = found || r != p_->rank_of(op.stage); });
        }
        return found;
    }

    const problem* p_;
    cell_numbering cell_;
    lane_numbering<any_graph> lanes_;
    std::vector<cell_choice> choices_;
    std::vector<facts> facts_;
    std::vector<memory_effect> effects_;
    std::vector<input> inputs_{};
    std::vector<double> limits_{};
    /// The pairs of the problem, indexed by the stage of the forward, the stage of the backward, and the backward's
    /// kind. Empty if the problem has no pairs.
    std::vector<const overlap*> overlaps_{};
    bool memory_delays_ = false;
};

} // namespace optpipe::detail
