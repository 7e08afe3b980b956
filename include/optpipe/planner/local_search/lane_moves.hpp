#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/planner/local_search/lane_orders.hpp"
#include "optpipe/planner/local_search/lane_times.hpp"
#include "optpipe/planner/local_search/parameters.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::detail {

/// The neighbourhood of the local search. The neighbourhood consists of small random edits of the sequences around
/// critical operations.
class lane_moves {
public:
    using id = flat_problem::id;
    static constexpr id none = flat_problem::none;

    lane_moves(lane_orders& lanes, const lane_times& times, const move_parameters& with = {})
        : p_{&lanes.flat()}, lanes_{&lanes}, times_{&times}, with_{with} {
        for (id s = 0; s < p_->stages(); ++s)
            may_be_full_ = may_be_full_ || p_->full_may_pay(s);
    }

    /// Applies a random move to operation `i`, to nearby operations, or sometimes to distant operations. Returns false
    /// if nothing changed.
    bool propose(id i, random_numbers& random) {
        if (may_be_full_ && random.chance(with_.full_backward_chance))
            return set_full_backward(random_operation(random));
        if (p_->chooses_storage() && random.chance(with_.storage_chance)) return propose_storage_move(i, random);
        const auto kind = lanes_->facts(i).kind;
        if (p_->offloads() && (is_transfer(kind) || random.chance(with_.transfer_chance)))
            return propose_transfer_move(i, random);
        switch (draw<sequence_move>(with_.sequence_moves, random)) {
        case sequence_move::swap_blocks: return swap_blocks(i, random);
        case sequence_move::shift_later_ones: return shift_later_ones(i, random);
        case sequence_move::shift_neighbours: return shift_neighbours(i, random);
        case sequence_move::move_ahead: return move_ahead(i, random);
        case sequence_move::shift: break;
        }
        return shift(i, distance(i, random), flip(random));
    }
    /// Changes the storage option of a stash, and places the operations of the new option. Returns false if nothing
    /// changed or an operation can't be placed.
    bool set_storage(id i, id option, random_numbers& random) {
        const id s = p_->stage_of(i);
        const id old = lanes_->storage(i);
        if (option == old) return false;
        const auto& now = p_->option(s, old);
        const auto& then = p_->option(s, option);
        std::optional<double> comes;
        if (then.offloads && !now.offloads) {
            comes = place_transfers(i, option, random);
            if (!comes) return false;
        }
        if (then.recomputes && !now.recomputes && !place_recompute(i, option, random)) return false;
        lanes_->choose(i, with_option(i, option));
        if (comes) place_on_link(p_->sibling(i, operation_kind::reload), *comes);
        return true;
    }
    /// Moves operation `i` right behind a later operation of its lane, or ahead of an earlier operation. Returns false
    /// if the two operations are already in that order.
    bool shift_past(id i, id other, bool forwards) {
        if (!lanes_->active(i) || !lanes_->active(other)) return false;
        const id from = lanes_->position(i);
        const id to = lanes_->position(other);
        if (forwards ? to <= from : to >= from) return false;
        lanes_->shift(from, to);
        return true;
    }
    /// Repairs a move that takes too much of a rank's memory. At the first position without enough memory, a stash in
    /// memory gets an option that leaves less on the device. Returns false if no stash can leave less on the device, or
    /// if a fault of another kind comes first.
    bool relieve(random_numbers& random) {
        const id here = lanes_->overflow();
        if (here == none) return false;
        const id lane = lanes_->facts((*lanes_)[here]).rank;
        smaller_.clear();
        for (id s = 0; s < p_->stages(); ++s) {
            const id first = p_->number(s, operation_kind::forward, 0);
            if (p_->options(s) < 2 || lanes_->facts(first).rank != lane) continue;
            for (id m = 0; m < p_->microbatches(); ++m) {
                const id i = first + m;
                if (lanes_->position(i) > here || lanes_->position(lanes_->gradient(i)) < here) continue;
                const double now = p_->option(s, lanes_->storage(i)).left_on_device;
                for (id option = 0; option < p_->options(s); ++option)
                    if (p_->option(s, option).left_on_device < now) smaller_.push_back({i, option});
            }
        }
        if (smaller_.empty()) return false;
        const auto chosen = smaller_[random.below(smaller_.size())];
        return set_storage(chosen.forward, chosen.option, random);
    }
    /// A random active operation.
    id random_operation(random_numbers& random) const {
        for (;;) {
            const id r = static_cast<id>(random.below(at(p_->ranks())));
            const id count = lanes_->end(r) - lanes_->begin(r);
            if (count == 0) continue;
            const id i = (*lanes_)[lanes_->begin(r) + static_cast<id>(random.below(at(count)))];
            if (lanes_->active(i)) return i;
        }
    }

private:
    struct stored_stash {
        id forward = none;
        id option = 0;
    };
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }
    static constexpr unsigned half = 50; ///< percent
    static constexpr double quarter = 0.25;
    static bool flip(random_numbers& random) { return random.chance(half); }

    id distance(id i, random_numbers& random) const {
        auto most = draw<std::size_t>(with_.shift_lengths, random);
        if (most == 0) {
            const id r = lanes_->facts(i).rank;
            most = at(lanes_->end(r) - lanes_->begin(r)) / with_.longest_shift_part + 1;
        }
        return 1 + static_cast<id>(random.below(most));
    }
    /// The position after `count` operations of other kinds or stages, in one direction. The end of the lane if fewer
    /// operations of other kinds or stages are left.
    id target(id i, id count, bool forwards) const {
        const id lane = lanes_->facts(i).rank;
        id to = lanes_->position(i);
        for (id here = to; count > 0;) {
            here = forwards ? lanes_->next(here, lane) : lanes_->previous(here, lane);
            if (here < lanes_->begin(lane) || here >= lanes_->end(lane)) break;
            to = here;
            if (p_->slot_number((*lanes_)[here]) != p_->slot_number(i)) --count;
        }
        return to;
    }
    bool shift(id i, id count, bool forwards) {
        const id to = target(i, count, forwards);
        if (to == lanes_->position(i)) return false;
        lanes_->shift(lanes_->position(i), to);
        return true;
    }
    bool swap_blocks(id i, random_numbers& random) {
        const id lane = lanes_->facts(i).rank;
        const id first = lanes_->position(i);
        id middle = first;
        for (auto length = random.between(with_.first_block_min, with_.first_block_max);
             length > 0 && middle < lanes_->end(lane); --length)
            middle = lanes_->next(middle, lane);
        id last = middle;
        for (auto length = random.between(with_.second_block_min, with_.second_block_max);
             length > 0 && last < lanes_->end(lane); --length)
            last = lanes_->next(last, lane);
        if (middle >= last) return false;
        lanes_->rotate(first, middle, last);
        return true;
    }
    /// Applies one shift to operation `i` and to the same operation of some consecutive later microbatches.
    bool shift_later_ones(id i, random_numbers& random) {
        const id left = p_->microbatches() - p_->microbatch_of(i);
        const id few = 1 + static_cast<id>(random.below(at(left)));
        const bool forwards = flip(random);
        const id count = 1 + static_cast<id>(random.below(2));
        bool moved = false;
        for (id k = 0; k < few; ++k) {
            const id later = forwards ? i + few - 1 - k : i + k;
            if (lanes_->active(later)) moved = shift(later, count, forwards) || moved;
        }
        return moved;
    }
    /// Applies one shift to an operation and to the same operation on some adjacent stages.
    bool shift_neighbours(id i, random_numbers& random) {
        const id step = flip(random) ? 1 : -1;
        const bool forwards = flip(random);
        const id count = distance(i, random);
        bool moved = false;
        for (auto few = 1 + random.below(at(p_->ranks())); few > 0; --few) {
            if (lanes_->active(i)) moved = shift(i, count, forwards) || moved;
            const id s = p_->stage_of(i) + step;
            if (s < 0 || s >= p_->stages()) break;
            i = p_->on_stage(i, step);
        }
        return moved;
    }
    /// Moves the operation ahead of the operations that start within a random time before it.
    bool move_ahead(id i, random_numbers& random) {
        const id lane = lanes_->facts(i).rank;
        const auto halves = static_cast<double>(random.between(1, with_.most_halves_ahead));
        const double from = times_->start(i) - p_->mean_duration() * halves / 2.0;
        id to = lanes_->position(i);
        for (id here = lanes_->previous(to, lane); here >= lanes_->begin(lane); here = lanes_->previous(here, lane)) {
            if (times_->start((*lanes_)[here]) < from) break;
            to = here;
        }
        if (to == lanes_->position(i)) return false;
        lanes_->shift(lanes_->position(i), to);
        return true;
    }
    /// Replaces I and W by a B, or a B by I and W. A new W comes right after its I.
    bool set_full_backward(id i) {
        if (!p_->full_may_pay(p_->stage_of(i))) return false;
        auto chosen = lanes_->choice(i);
        chosen.is_split = !chosen.is_split;
        const id weight = p_->sibling(i, operation_kind::backward_weight);
        if (chosen.is_split) place_behind(weight, lanes_->position(lanes_->gradient(i)));
        lanes_->choose(i, chosen);
        return true;
    }
    [[nodiscard]] flat_problem::cell_choice with_option(id i, id option) const {
        return {static_cast<storage_index>(option), lanes_->choice(i).is_split};
    }

    /// Changes how an offloaded stash is transferred. A stash that isn't offloaded gets another option.
    bool propose_transfer_move(id i, random_numbers& random) {
        if (!p_->can_offload(p_->stage_of(i))) return shift(i, distance(i, random), flip(random));
        if (!lanes_->is_offloaded(i)) return propose_storage_move(i, random);
        const bool is_outward = flip(random);
        const id transfer = is_transfer(lanes_->facts(i).kind)
                                ? i
                                : p_->sibling(i, is_outward ? operation_kind::offload : operation_kind::reload);
        std::span<const weighted_move<transfer_move>> moves{with_.transfer_moves};
        if (lanes_->facts(transfer).channel == none) moves = moves.first(moves.size() - 1);
        switch (draw(moves, random)) {
        case transfer_move::place_anew: return place_anew(i, random);
        case transfer_move::shift: return shift(transfer, distance(i, random), flip(random));
        case transfer_move::swap_on_link: break;
        }
        return swap_on_link(transfer);
    }
    bool place_anew(id i, random_numbers& random) {
        lanes_->use_transfers(i, false);
        const auto comes = place_transfers(i, lanes_->storage(i), random);
        if (!comes) return false;
        lanes_->use_transfers(i, true);
        place_on_link(p_->sibling(i, operation_kind::reload), *comes);
        return true;
    }
    /// Places the two inactive transfers of the stash in their lane. Also places the offload on its link. Returns the
    /// approximate start of the reload. Once both transfers are active, the caller must place the reload on its link by
    /// the returned time. If the link is half duplex, the reload's place must be after the offload. Empty if the
    /// transfers can't be placed.
    std::optional<double> place_transfers(id i, id option, random_numbers& random) {
        const id out = p_->sibling(i, operation_kind::offload);
        const id in = p_->sibling(i, operation_kind::reload);
        const id ahead = p_->sibling(i, operation_kind::forward);
        const id back = lanes_->user_of_stash(i);
        if (lanes_->position(back) < lanes_->position(ahead)) return std::nullopt; // possible after an earlier edit
        const double leaves = place_offload(out, ahead, back, random);
        const double comes = place_reload(in, out, back, p_->facts_of(in, with_option(i, option)).duration, random);
        if (lanes_->position(out) > lanes_->position(in)) return std::nullopt;
        place_on_link(out, leaves);
        return std::max(comes, leaves);
    }
    /// Places an offload right after the forward, or some operations later. Returns the approximate start of the
    /// offload.
    double place_offload(id out, id ahead, id back, random_numbers& random) {
        const id lane = lanes_->facts(ahead).rank;
        id to = lanes_->position(ahead);
        for (auto more = random.chance(with_.offload_at_once_chance) ? 0 : random.below(with_.latest_offload); more > 0;
             --more)
            to = std::min(lanes_->next(to, lane), lanes_->position(back) - 1);
        const double leaves = std::max(times_->end(ahead), times_->start((*lanes_)[to]));
        place_behind(out, to);
        return leaves;
    }
    /// Places a reload that ends no later than `back` now starts. Returns the approximate start of the reload.
    double place_reload(id in, id out, id back, double length, random_numbers& random) {
        const id lane = lanes_->facts(back).rank;
        const auto quarters =
            random.chance(with_.reload_in_time_chance) ? 0 : random.below(with_.earliest_reload_quarters);
        const double early = length * static_cast<double>(quarters) * quarter;
        const double comes = times_->start(back) - length - early;
        id before = lanes_->position(back);
        for (id here = lanes_->previous(before, lane); here > lanes_->position(out);
             here = lanes_->previous(here, lane)) {
            if (times_->start((*lanes_)[here]) < comes) break;
            before = here;
        }
        place_behind(in, before - 1);
        return comes;
    }
    void place_behind(id i, id position) {
        const id from = lanes_->position(i);
        lanes_->shift(from, from > position ? position + 1 : position);
    }
    /// Sets another storage option for one or several stashes, or swaps the options of two stashes.
    bool propose_storage_move(id i, random_numbers& random) {
        const id options = p_->options(p_->stage_of(i));
        if (options < 2) return false;
        const id m = p_->microbatch_of(i);
        const id another = (lanes_->storage(i) + 1 + static_cast<id>(random.below(at(options - 1)))) % options;
        switch (draw<storage_move>(with_.storage_moves, random)) {
        case storage_move::as_neighbour:
            return p_->microbatches() > 1 &&
                   set_storage(i, lanes_->storage(p_->with_microbatch(i, m > 0 ? m - 1 : 1)), random);
        case storage_move::exchange: return exchange_storage(i, random);
        case storage_move::in_a_row: return set_storage_in_a_row(i, another, random);
        case storage_move::along_stages: return set_storage_along_stages(i, another, random);
        case storage_move::of_one: break;
        }
        return set_storage(i, another, random);
    }
    /// Swaps the options of two microbatches.
    bool exchange_storage(id i, random_numbers& random) {
        const id other = p_->with_microbatch(i, static_cast<id>(random.below(at(p_->microbatches()))));
        const id own = lanes_->storage(i);
        const id others = lanes_->storage(other);
        return set_storage(i, others, random) && set_storage(other, own, random);
    }
    /// Sets this option for the stashes of some consecutive microbatches.
    bool set_storage_in_a_row(id i, id option, random_numbers& random) {
        const id m = p_->microbatch_of(i);
        const id last = std::min(p_->microbatches(), m + 1 + static_cast<id>(random.below(with_.most_in_a_row)));
        bool changed = false;
        for (id k = m; k < last; ++k)
            changed = set_storage(p_->with_microbatch(i, k), option, random) || changed;
        return changed;
    }
    /// Sets the option with this index for one microbatch's stashes on some consecutive stages. Stages without such an
    /// option are left unchanged. An index may stand for different options on different stages.
    bool set_storage_along_stages(id i, id option, random_numbers& random) {
        const id step = flip(random) ? 1 : -1;
        bool changed = false;
        for (auto few = 1 + random.below(with_.most_along_stages); few > 0; --few) {
            if (option < p_->options(p_->stage_of(i))) changed = set_storage(i, option, random) || changed;
            const id s = p_->stage_of(i) + step;
            if (s < 0 || s >= p_->stages()) break;
            i = p_->on_stage(i, step);
        }
        return changed;
    }
    /// Places a recomputation right before the gradient or earlier, with the stash on the device.
    bool place_recompute(id i, id option, random_numbers& random) {
        const id lane = lanes_->facts(i).rank;
        const id again = p_->sibling(i, operation_kind::recompute);
        const id back = lanes_->gradient(i);
        const id brought = p_->sibling(i, p_->option(p_->stage_of(i), option).offloads ? operation_kind::reload
                                                                                       : operation_kind::forward);
        id before = lanes_->position(back);
        if (before < lanes_->position(brought)) return false; // possible after an earlier edit of the same move
        for (auto more = random.chance(with_.recompute_at_once_chance) ? 0 : random.below(with_.earliest_recompute);
             more > 0; --more) {
            const id here = lanes_->previous(before, lane);
            if (here <= lanes_->position(brought)) break;
            before = here;
        }
        place_behind(again, before - 1);
        return true;
    }
    /// Places the transfer on its shared link, if any, by time and between its neighbours on the lane.
    void place_on_link(id transfer, double when) {
        const auto& f = lanes_->facts(transfer);
        if (f.channel == none) return;
        const auto like = [&](id here) {
            const id i = (*lanes_)[here];
            return i != transfer && is_transfer(lanes_->facts(i).kind) && lanes_->facts(i).channel == f.channel;
        };
        id first = lanes_->link_begin(f.channel);
        for (id here = lanes_->position(transfer); here >= lanes_->begin(f.rank); here = lanes_->previous(here, f.rank))
            if (like(here)) {
                first = lanes_->link_position((*lanes_)[here]) + 1;
                break;
            }
        id last = lanes_->link_end(f.channel);
        for (id here = lanes_->position(transfer); here < lanes_->end(f.rank); here = lanes_->next(here, f.rank))
            if (like(here)) {
                last = lanes_->link_position((*lanes_)[here]);
                break;
            }
        id to = first;
        for (id position = first; position < last; ++position) {
            const id i = lanes_->link_at(position);
            if (i == transfer || !lanes_->active(i)) continue;
            if (times_->start(i) > when) break;
            to = position + 1;
        }
        lanes_->shift_on_link(transfer, lanes_->link_position(transfer) < to ? to - 1 : to);
    }
    bool swap_on_link(id transfer) {
        const id after = lanes_->link_next(transfer);
        if (after == none || lanes_->facts(after).rank == lanes_->facts(transfer).rank) return false;
        lanes_->shift_on_link(transfer, lanes_->link_position(after));
        return true;
    }

    const flat_problem* p_;
    lane_orders* lanes_;
    const lane_times* times_;
    move_parameters with_;
    bool may_be_full_ = false;
    std::vector<stored_stash> smaller_;
};

} // namespace optpipe::detail
