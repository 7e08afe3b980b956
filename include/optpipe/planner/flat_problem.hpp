#pragma once

#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/dispatch/occupied_lanes.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::detail {

/// One kind of operation for each slot of a cell. `backward_input` stands for I and B.
inline constexpr std::array slot_kinds{operation_kind::forward,         operation_kind::backward_input,
                                       operation_kind::backward_weight, operation_kind::offload,
                                       operation_kind::reload,          operation_kind::recompute};

/// A problem of any kind as flat arrays of numbers, for the inner loops of searches. Borrows the problem.
///
/// A cell is a stage and a microbatch. A cell has six slots for operations, which are F, the gradient, W, the two
/// transfers and the recomputation. The gradient is an I or a B, with the same inputs from other cells. The number of
/// an operation is (stage · 6 + slot) · microbatches + microbatch.
class flat_problem {
public:
    using id = std::int32_t;
    static constexpr id none = -1;
    static constexpr id slot_count = static_cast<id>(slot_kinds.size());

    /// How a cell stores its stash, and whether it has I and W instead of a B.
    struct cell_choice {
        storage_index storage = 0;
        bool is_split = false;
        friend bool operator==(const cell_choice&, const cell_choice&) = default;
    };
    /// An operation of another cell, as a difference of operation numbers. At least `delay` passes between the end of
    /// the earlier operation and the start of the later operation.
    struct neighbour {
        id difference = 0;
        double delay = 0.0;
    };
    struct neighbour_range {
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        friend bool operator==(const neighbour_range&, const neighbour_range&) = default;
    };
    /// Properties of an operation that depend on the choice of its cell. If microbatches are equal, all microbatches
    /// have the same facts.
    struct facts {
        double duration = 0.0;
        double acquired = 0.0;
        double released = 0.0;
        double host_acquired = 0.0;
        double host_released = 0.0;
        /// Device memory of the operation's rank that the operation's end frees, whichever operation took the memory.
        double released_in_all = 0.0;
        id rank = 0;
        operation_kind kind{};
        /// Whether the operation's end frees memory of other operations (`for_each_release_of_others`).
        bool frees_others = false;
        /// The operation of the same cell that must end first, as a difference of operation numbers. 0 if the operation
        /// waits for none.
        id own_input = 0;
        neighbour_range inputs{};
        neighbour_range consumers{};
        /// The lanes that the operation takes (`lane_numbering`). For a computation, both fields have the same lane.
        std::uint32_t lane = 0;
        std::uint32_t shared_lane = 0;
        /// The number of the link direction shared with other ranks, or `none`.
        id channel = none;
        /// The copy engine of a transfer, as an index among the engines of the rank.
        id engine = 0;
        /// In a chain, a forward or a gradient runs after the operation of the same kind on the nearest stage of its
        /// rank. The field has the earlier operation as a difference of operation numbers, or 0.
        id same_rank_before = 0;
        friend bool operator==(const facts&, const facts&) = default;
    };
    /// A storage option of a stage.
    struct option_facts {
        bool offloads = false;
        bool recomputes = false;
        /// Device memory that a stash takes between its forward and backward. If the stash is offloaded, only the part
        /// that stays on the device takes memory.
        double left_on_device = 0.0;
        /// Time of recomputation, in addition to the work with a kept stash.
        double extra_work = 0.0;
    };

    explicit flat_problem(const problem& p)
        : p_{&p}, stages_{static_cast<id>(p.graph.stages())},
          microbatches_{static_cast<id>(p.graph.microbatches())}, ranks_{static_cast<id>(p.graph.ranks())} {
        const double slack = tolerance{}.at(p.memory_scale()).value();
        for (const rank r : p.graph.all_ranks()) {
            limit_.push_back(p.memory_limit[r].value() + slack);
            host_limit_.push_back(p.host_memory_limit[r].value() + slack);
        }
        number_channels();
        for (const stage s : p.graph.all_stages())
            add_stage(s);
        for (id of_slot = 0; of_slot < stages_ * slot_count; ++of_slot)
            slot_number_.insert(slot_number_.end(), at(microbatches_), of_slot);
        for (const auto& c : p.costs)
            mean_ += c.work().value() / static_cast<double>(3 * stages_);
        add_overlaps();
    }

    explicit flat_problem(problem&&) = delete;

    [[nodiscard]] const problem& of() const { return *p_; }
    [[nodiscard]] id ranks() const { return ranks_; }
    [[nodiscard]] id stages() const { return stages_; }
    [[nodiscard]] id microbatches() const { return microbatches_; }
    [[nodiscard]] std::size_t cells() const { return first_facts_.size(); }
    /// One more than the largest number of an operation.
    [[nodiscard]] std::size_t size() const { return slot_number_.size(); }
    [[nodiscard]] std::size_t lanes() const { return lane_numbering{*p_}.size(); }
    [[nodiscard]] id channels() const { return channels_; }
    [[nodiscard]] bool span() const { return p_->objective == objective_kind::span; }
    [[nodiscard]] bool split() const { return p_->split_backward; }
    /// Whether any stage can be offloaded.
    [[nodiscard]] bool offloads() const { return offloads_; }
    /// Whether any stage has several storage options.
    [[nodiscard]] bool chooses_storage() const { return chooses_storage_; }
    /// Whether some storage options take more of a rank's time than others.
    [[nodiscard]] bool trades_time() const { return trades_time_; }
    /// Whether an operation may have to wait for memory. No operation has to wait if each rank's memory is freed only
    /// by its own computations.
    [[nodiscard]] bool memory_delays() const { return offloads_ || frees_memory_of_other_ranks_; }
    [[nodiscard]] double limit(id r) const { return limit_[at(r)]; }
    [[nodiscard]] double host_limit(id r) const { return host_limit_[at(r)]; }
    /// The mean duration of F, I and W.
    [[nodiscard]] double mean_duration() const { return mean_; }

    [[nodiscard]] bool can_offload(id s) const { return stage_[at(s)].offloads; }
    /// Number of storage options of a stage.
    [[nodiscard]] id options(id s) const { return stage_[at(s)].options; }
    [[nodiscard]] const option_facts& option(id s, id number) const {
        return options_[at(stage_[at(s)].first_option + number)];
    }
    /// Whether a B may be better than I and W: splitting may take more memory.
    [[nodiscard]] bool full_may_pay(id s) const { return stage_[at(s)].full_may_pay; }
    /// Whether a cell of the stage with this choice has an operation in the slot of `kind`. Every stage must have full
    /// gradients.
    [[nodiscard]] bool requires_operation(id s, cell_choice chosen, operation_kind kind) const {
        if (is_transfer(kind)) return option(s, chosen.storage).offloads;
        if (kind == operation_kind::recompute) return option(s, chosen.storage).recomputes;
        return !is_weight_slot(kind) || chosen.is_split;
    }
    /// Whether a cell of the stage may have an operation in the slot of `kind`. Every stage must have full gradients.
    [[nodiscard]] bool may_be_active(id s, operation_kind kind) const {
        if (is_transfer(kind)) return can_offload(s);
        if (kind == operation_kind::recompute) return stage_[at(s)].recomputes;
        return !is_weight_slot(kind) || split();
    }

    [[nodiscard]] id number(id s, operation_kind kind, id m) const {
        return (s * slot_count + slot_of(kind)) * microbatches_ + m;
    }
    [[nodiscard]] id number(const operation& op) const {
        return number(static_cast<id>(op.stage.value()), op.kind, static_cast<id>(op.microbatch.value()));
    }
    /// The operation of a cell in the slot of `kind`.
    [[nodiscard]] id number_in(std::size_t cell, operation_kind kind) const {
        const id s = static_cast<id>(cell) / microbatches_;
        return number(s, kind, static_cast<id>(cell) - s * microbatches_);
    }
    [[nodiscard]] id gradient_of(std::size_t cell) const { return number_in(cell, operation_kind::backward_input); }
    [[nodiscard]] id weight_of(std::size_t cell) const { return number_in(cell, operation_kind::backward_weight); }
    /// A number that identifies the operation's stage and slot. Operations with equal slot numbers differ only in the
    /// microbatch.
    [[nodiscard]] id slot_number(id i) const { return slot_number_[at(i)]; }
    [[nodiscard]] id slot(id i) const { return slot_number(i) % slot_count; }
    [[nodiscard]] bool is_forward(id i) const { return slot(i) == slot_of(operation_kind::forward); }
    [[nodiscard]] bool is_gradient(id i) const { return slot(i) == slot_of(operation_kind::backward_input); }
    [[nodiscard]] id microbatch_of(id i) const { return i - slot_number(i) * microbatches_; }
    [[nodiscard]] id stage_of(id i) const { return slot_number(i) / slot_count; }
    [[nodiscard]] std::size_t cell_of(id i) const { return at(stage_of(i) * microbatches_ + microbatch_of(i)); }
    [[nodiscard]] std::size_t cell_of(stage s, microbatch m) const {
        return s.position() * at(microbatches_) + m.position();
    }
    /// The operation of the cell of `i` in the slot of `kind`.
    [[nodiscard]] id sibling(id i, operation_kind kind) const { return i + (slot_of(kind) - slot(i)) * microbatches_; }
    /// The operation of the same stage and slot on microbatch `m`.
    [[nodiscard]] id with_microbatch(id i, id m) const { return i + m - microbatch_of(i); }
    /// The operation of the same slot and microbatch, `further` stages later.
    [[nodiscard]] id on_stage(id i, id further) const { return i + further * slot_count * microbatches_; }

    /// The index of the facts of an operation, given the choice of its cell.
    [[nodiscard]] id facts_number(id i, cell_choice chosen) const {
        return first_facts_[cell_of(i)] + static_cast<id>(chosen.storage) * kinds +
               static_cast<id>(kind_of(slot(i), stage_of(i), chosen.is_split));
    }
    [[nodiscard]] const facts& facts_at(id number) const { return facts_[at(number)]; }
    [[nodiscard]] const facts& facts_of(id i, cell_choice chosen) const { return facts_at(facts_number(i, chosen)); }
    [[nodiscard]] std::span<const neighbour> neighbours(neighbour_range r) const {
        return {neighbours_.data() + r.first, r.count};
    }
    /// The time at which all inputs of operation `i` are ready. `end_of(number)` returns the end of an operation.
    template <class EndOf> [[nodiscard]] double ready(id i, const facts& f, const EndOf& end_of) const {
        double begin = f.own_input != 0 ? end_of(i + f.own_input) : 0.0;
        for (const auto& in : neighbours(f.inputs))
            begin = std::max(begin, end_of(i + in.difference) + in.delay);
        return begin;
    }
    /// Calls `visit(number, delay)` for all inputs of operation `i`.
    template <class Visit> void for_each_input(id i, const facts& f, const Visit& visit) const {
        if (f.own_input != 0) visit(i + f.own_input, 0.0);
        for (const auto& in : neighbours(f.inputs))
            visit(i + in.difference, in.delay);
    }

    /// Whether the gradient `b` may be either a B, or an I with a W.
    [[nodiscard]] bool may_split_or_join(id b) const { return optpipe::may_split_or_join(*p_, stage{stage_of(b)}); }
    /// The `overlap` of forward `f` and a backward `b` of this kind, or null.
    [[nodiscard]] const overlap* overlap_of(id f, id b, operation_kind kind) const {
        if (overlaps_.empty() || !is_forward(f) || !is_gradient(b)) return nullptr;
        return overlaps_[overlap_index(stage_of(f), stage_of(b), kind)];
    }

private:
    static constexpr id kinds = static_cast<id>(all_operation_kinds.size());
    struct stage_facts {
        id first_option = 0;
        id options = 0;
        bool offloads = false;
        bool recomputes = false;
        bool full_may_pay = false;
    };
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }
    static constexpr bool is_weight_slot(operation_kind kind) { return kind == operation_kind::backward_weight; }
    static constexpr id slot_of(operation_kind kind) {
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
    [[nodiscard]] operation_kind kind_of(id slot, id s, bool is_split) const {
        const auto kind = slot_kinds[at(slot)];
        const bool is_full =
            kind == operation_kind::backward_input && !is_split && p_->costs[stage{s}].gradients == gradient_kind::full;
        return is_full ? operation_kind::backward : kind;
    }

    /// Gives channels to links that several ranks share. The link of a single rank needs no channel: the rank's engines
    /// have the same limits.
    void number_channels() {
        const auto& transfer = p_->transfer;
        std::vector<id> numbers(2 * transfer.link.size(), none);
        for (const rank r : p_->graph.all_ranks()) {
            const bool alone = std::count(transfer.link.begin(), transfer.link.end(), transfer.link[r]) == 1;
            one_engine_.push_back(shares_engine(transfer) || (alone && shares_channel(transfer)));
            for (const bool inward : {false, true}) {
                id& number = numbers[host_channel_of(transfer, r, inward)];
                if (!alone && number == none) number = channels_++;
                channel_.push_back(number);
            }
        }
    }
    void add_stage(stage s) {
        const auto& p = *p_;
        stage_facts own{static_cast<id>(options_.size()), static_cast<id>(p.storage_options(s))};
        bool saves_memory = false;
        for (std::size_t number = 0; number < p.storage_options(s); ++number) {
            const auto stored = p.storage_of(s, number);
            options_.push_back(
                {stored.offloads(), stored.recomputes(), stored.left_on_device().value(), stored.extra_work().value()});
            own.offloads = own.offloads || stored.offloads();
            own.recomputes = own.recomputes || stored.recomputes();
            saves_memory = saves_memory || p.costs[s].weight_stash > stored.restored(p.costs[s]);
            trades_time_ = trades_time_ || stored.extra_work() != p.storage_of(s, 0).extra_work();
        }
        own.full_may_pay = split() && saves_memory && p.full_backward;
        offloads_ = offloads_ || own.offloads;
        chooses_storage_ = chooses_storage_ || own.options > 1;
        stage_.push_back(own);
        for (const microbatch m : p.graph.all_microbatches()) {
            const bool is_new = m.position() == 0 || !p.microbatches.are_equal();
            first_facts_.push_back(is_new ? static_cast<id>(facts_.size()) : first_facts_.back());
            if (is_new) add_facts(s, m);
        }
    }
    void add_facts(stage s, microbatch m) {
        std::array<facts, all_operation_kinds.size()> of_all_options;
        for (const auto kind : all_operation_kinds)
            of_all_options[static_cast<std::size_t>(kind)] = links_of({s, kind, m});
        for (std::size_t number = 0; number < p_->storage_options(s); ++number)
            for (const auto kind : all_operation_kinds) {
                facts_.push_back(of_all_options[static_cast<std::size_t>(kind)]);
                add_costs(facts_.back(), {s, kind, m, static_cast<storage_index>(number)});
            }
    }
    /// The facts that are the same for all storage options.
    facts links_of(const operation& op) {
        facts f;
        const rank r = p_->rank_of(op.stage);
        const auto occupied = lane_numbering{*p_}.of(op.kind, r);
        f.rank = static_cast<id>(r.value());
        f.kind = op.kind;
        f.lane = static_cast<std::uint32_t>(occupied.own);
        f.shared_lane = static_cast<std::uint32_t>(occupied.shared);
        if (is_transfer(op.kind)) {
            const bool inward = is_inward(op.kind);
            f.channel = channel_[2 * r.position() + (inward ? 1 : 0)];
            f.engine = inward && one_engine_[r.position()] == 0 ? 1 : 0;
        }
        f.inputs = add_neighbours([&](const auto& add) { for_each_input_of_others(*p_, op, add); }, op);
        f.consumers = add_neighbours([&](const auto& add) { for_each_consumer(*p_, op, add); }, op);
        if (op.kind == operation_kind::forward || optpipe::is_gradient(op.kind))
            f.same_rank_before = same_rank_before(op);
        return f;
    }
    template <class ForEach> neighbour_range add_neighbours(const ForEach& for_each, const operation& op) {
        const auto first = neighbours_.size();
        const id i = number(op);
        for_each([&](const operation& other, duration delay) {
            const bool is_same_cell = other.stage == op.stage && other.microbatch == op.microbatch;
            if (!is_same_cell || delay > duration{}) neighbours_.push_back({number(other) - i, delay.value()});
        });
        return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(neighbours_.size() - first)};
    }
    [[nodiscard]] id same_rank_before(const operation& op) const {
        const id step = op.kind == operation_kind::forward ? -1 : 1;
        const id own = static_cast<id>(op.stage.value());
        for (id other = own + step; other >= 0 && other < stages_; other += step)
            if (p_->rank_of(stage{other}) == p_->rank_of(op.stage)) return (other - own) * slot_count * microbatches_;
        return 0;
    }
    void add_costs(facts& f, const operation& op) {
        if (const auto own = own_input_of(op, stash_way_of(*p_, op))) f.own_input = number(*own) - number(op);
        if (!is_possible(*p_, op)) return;
        f.duration = duration_of(*p_, op).value();
        const auto effect = memory_effect_of(*p_, op);
        f.acquired = effect.acquired_at_start.value();
        f.released = f.released_in_all = effect.released_at_end.value();
        f.host_acquired = effect.host_acquired_at_start.value();
        f.host_released = effect.host_released_at_end.value();
        for_each_release_of_others(*p_, op, [&](rank r, memory_size amount) {
            f.frees_others = true;
            const bool is_own = r == p_->rank_of(op.stage);
            if (is_own) f.released_in_all += amount.value();
            frees_memory_of_other_ranks_ = frees_memory_of_other_ranks_ || !is_own;
        });
    }
    [[nodiscard]] std::size_t overlap_index(id f, id b, operation_kind backward) const {
        return at(2 * (f * stages_ + b) + (backward == operation_kind::backward ? 1 : 0));
    }
    void add_overlaps() {
        if (p_->overlaps.empty()) return;
        overlaps_.assign(at(2 * stages_ * stages_), nullptr);
        for (const overlap& each : p_->overlaps) {
            const auto kind =
                each.kind == overlap_kind::backward ? operation_kind::backward : operation_kind::backward_input;
            overlaps_[overlap_index(static_cast<id>(each.forward.value()), static_cast<id>(each.backward.value()),
                                    kind)] = &each;
        }
    }

    const problem* p_;
    id stages_;
    id microbatches_;
    id ranks_;
    bool offloads_ = false;
    bool chooses_storage_ = false;
    bool trades_time_ = false;
    bool frees_memory_of_other_ranks_ = false;
    id channels_ = 0;
    double mean_ = 0.0;
    std::vector<double> limit_{};
    std::vector<double> host_limit_{};
    /// The channel of each rank's link, outwards and inwards.
    std::vector<id> channel_{};
    std::vector<char> one_engine_{};
    std::vector<stage_facts> stage_{};
    std::vector<option_facts> options_{};
    std::vector<neighbour> neighbours_{};
    std::vector<facts> facts_{};
    /// The index of the first facts of each cell. The facts of a cell are sorted by option, then by kind.
    std::vector<id> first_facts_{};
    std::vector<id> slot_number_{};
    /// The pairs of the problem (`overlap_index`). Empty if the problem has no pairs.
    std::vector<const overlap*> overlaps_{};
};

/// The choices of all cells, and the facts of operations that follow from the choices.
class cell_choices {
public:
    using id = flat_problem::id;

    explicit cell_choices(const flat_problem& p) : p_{&p}, choices_(p.cells()), facts_of_(p.size()) {
        for (std::size_t cell = 0; cell < choices_.size(); ++cell)
            choose(cell, {});
    }

    [[nodiscard]] const std::vector<flat_problem::cell_choice>& all() const { return choices_; }
    [[nodiscard]] flat_problem::cell_choice choice(std::size_t cell) const { return choices_[cell]; }
    void choose(std::size_t cell, flat_problem::cell_choice chosen) {
        choices_[cell] = chosen;
        const id first = p_->number_in(cell, operation_kind::forward);
        for (id i = first, slot = 0; slot < flat_problem::slot_count; ++slot, i += p_->microbatches())
            facts_of_[static_cast<std::size_t>(i)] = p_->facts_number(i, chosen);
    }
    [[nodiscard]] const flat_problem::facts& operator[](id i) const {
        return p_->facts_at(facts_of_[static_cast<std::size_t>(i)]);
    }
    [[nodiscard]] operation operation_of(id i) const {
        return {stage{p_->stage_of(i)}, (*this)[i].kind, microbatch{p_->microbatch_of(i)},
                choices_[p_->cell_of(i)].storage};
    }
    /// The `overlap` of forward `f` and backward `b`, or null.
    [[nodiscard]] const overlap* overlap_of(id f, id b) const { return p_->overlap_of(f, b, (*this)[b].kind); }
    /// The `overlap` of the pair with the other kind of backward (B or I). Null if the problem has no such pair.
    [[nodiscard]] const overlap* overlap_of_other_kind(id f, id b) const {
        if (!p_->is_gradient(b) || !p_->may_split_or_join(b)) return nullptr;
        const bool is_split = choices_[p_->cell_of(b)].is_split;
        return p_->overlap_of(f, b, is_split ? operation_kind::backward : operation_kind::backward_input);
    }
    /// The duration of the pair of `f` and `b` that `of` describes.
    [[nodiscard]] double pair_duration(const overlap& of, id f, id b) const {
        return optpipe::pair_duration(p_->of(), of, operation_of(f), operation_of(b)).value();
    }

private:
    const flat_problem* p_;
    std::vector<flat_problem::cell_choice> choices_;
    std::vector<id> facts_of_;
};

} // namespace optpipe::detail
