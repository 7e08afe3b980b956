#pragma once

#include "optpipe/planner/flat_problem.hpp"
#include "optpipe/planner/local_search/lane_memory.hpp"
#include "optpipe/planner/local_search/lane_state.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A state that can be edited. Edits are tentative until all of them are committed or rolled back. If microbatches are
/// interchangeable, operations of the same kind and stage stay in ascending order of microbatches. I and B count as one
/// kind here. An operation that moves past another operation of its kind and stage swaps microbatches with it.
class lane_orders : public lane_state {
public:
    explicit lane_orders(const flat_problem& p) : lane_state{p}, memory_{*this}, touched_of_(at(p.ranks()), none) {}
    lane_orders(const lane_orders&) = delete;
    lane_orders& operator=(const lane_orders&) = delete;

    /// Loads the order of a schedule without renumbering its microbatches.
    void load(const schedule& given) {
        assign(given);
        if (p_->channels() > 0)
            for (id r = 0; r < p_->ranks(); ++r)
                refill_links(begin(r), end(r));
        restart();
    }
    /// Restores a copy of the sequences.
    void load(const sequences& given) {
        assign(given);
        restart();
    }
    /// Numbers the microbatches of each kind in the order in which the ranks run them. Sorting may make an order with
    /// offloads illegal.
    void sort_microbatches() {
        for (id r = 0; r < p_->ranks(); ++r) {
            sort_microbatches(begin(r), end(r));
            if (p_->channels() > 0) refill_links(begin(r), end(r));
        }
        restart();
    }
    /// Sets whether edits keep the microbatches of each kind in ascending order. The ascending order may not be the
    /// best if storage options take different amounts of a rank's time.
    void keep_fifo(bool keep) { keeps_fifo_ = keep; }

    /// Moves the operation at `from` to `to` in its lane. The operations between these positions shift.
    void shift(id from, id to) {
        if (from == to) return;
        touch(facts((*this)[from]).rank, std::min(from, to), std::max(from, to));
        lanes_.shift(from, to);
        restore_order(std::min(from, to), std::max(from, to) + 1);
    }
    /// Swaps the blocks [first, middle) and [middle, last) of one lane.
    void rotate(id first, id middle, id last) {
        touch(facts((*this)[first]).rank, first, last - 1);
        lanes_.rotate(first, middle, last);
        restore_order(first, last);
    }
    /// Activates or deactivates the transfers of the stage and microbatch of operation `i`.
    void use_transfers(id i, bool use) {
        use_operation(p_->sibling(i, operation_kind::offload), use);
        use_operation(p_->sibling(i, operation_kind::reload), use);
    }
    /// Gives the stage and microbatch of operation `i` another choice. Contract: operations that become active are
    /// already at their positions.
    void choose(id i, flat_problem::cell_choice chosen) {
        const auto old = choice(i);
        choice_log_.push_back({p_->cell_of(i), old});
        choices_.choose(p_->cell_of(i), chosen);
        for (const auto kind : slot_kinds) {
            const id other = p_->sibling(i, kind);
            const bool is_required = p_->requires_operation(p_->stage_of(i), chosen, kind);
            if (p_->requires_operation(p_->stage_of(i), old, kind) != is_required)
                use_operation(other, is_required);
            else if (active(other) && !(p_->facts_of(other, old) == p_->facts_of(other, chosen)))
                touch_operation(other);
        }
    }
    /// Moves a transfer on its link without renumbering microbatches.
    void shift_on_link(id i, id to) {
        const id from = link_position(i);
        links_.shift(from, to);
        touched_links_.push_back({facts(i).channel, std::min(from, to), std::max(from, to)});
    }

    /// Whether each edited sequence is executable, considering only its rank. A sequence is executable if its rank's
    /// precedences hold and memory stays within the limits.
    [[nodiscard]] bool legal() const {
        return std::all_of(touched_.begin(), touched_.end(), [this](const range& t) { return is_legal(t); });
    }
    /// The first position of an edited sequence at which the device memory doesn't suffice. None if there is no fault,
    /// or if the first fault isn't a lack of device memory.
    [[nodiscard]] id overflow() const {
        for (const auto& t : touched_)
            if (const auto found = memory_.find_fault(t); found.what != lane_memory::fault_kind::none)
                return found.what == lane_memory::fault_kind::device_memory ? found.position : none;
        return none;
    }
    /// Whether all sequences are legal, not only the edited ones.
    [[nodiscard]] bool all_legal() const {
        for (id r = 0; r < p_->ranks(); ++r)
            if (!is_legal({r, begin(r), end(r) - 1})) return false;
        return true;
    }
    [[nodiscard]] const std::vector<range>& touched() const { return touched_; }
    [[nodiscard]] const std::vector<range>& touched_links() const { return touched_links_; }
    /// Operations that were activated or deactivated.
    [[nodiscard]] const std::vector<id>& flipped() const { return flipped_; }

    void commit() {
        for (const auto& t : touched_)
            memory_.update(t);
        lanes_.commit();
        links_.commit();
        forget();
    }
    void rollback() {
        for (std::size_t k = choice_log_.size(); k-- > 0;)
            choices_.choose(choice_log_[k].first, choice_log_[k].second);
        for (const id i : flipped_)
            active_[at(i)] ^= 1;
        lanes_.rollback();
        links_.rollback();
        forget();
    }

private:
    void flip(id i) {
        active_[at(i)] ^= 1;
        flipped_.push_back(i);
    }
    void touch(id lane, id first, id last) {
        auto& which = touched_of_[at(lane)];
        if (which == none) {
            which = static_cast<id>(touched_.size());
            touched_.push_back({lane, first, last});
        } else {
            auto& t = touched_[at(which)];
            t.first = std::min(t.first, first);
            t.last = std::max(t.last, last);
        }
    }
    void touch_operation(id i) {
        touch(facts(i).rank, position(i), position(i));
        if (facts(i).channel != none) touched_links_.push_back({facts(i).channel, link_position(i), link_position(i)});
    }
    void use_operation(id i, bool use) {
        if (active(i) == use) return;
        flip(i);
        touch_operation(i);
    }
    void forget() {
        for (const auto& t : touched_)
            touched_of_[at(t.lane)] = none;
        touched_.clear();
        touched_links_.clear();
        flipped_.clear();
        choice_log_.clear();
    }
    void restart() {
        for (id r = 0; r < p_->ranks(); ++r)
            memory_.update({r, begin(r), end(r) - 1});
        lanes_.commit();
        links_.commit();
        forget();
    }
    [[nodiscard]] bool is_legal(const range& t) const {
        return memory_.find_fault(t).what == lane_memory::fault_kind::none;
    }

    void restore_order(id first, id last) {
        if (keeps_fifo_) sort_microbatches(first, last);
        if (p_->channels() > 0) refill_links(first, last);
    }
    /// Restores the ascending order of microbatches of each kind within a segment. Numbers of operations ascend with
    /// the kind and then with the microbatch.
    void sort_microbatches(id first, id last) {
        by_slot_.clear();
        for (id position = first; position < last; ++position)
            if (active_at(position)) by_slot_.push_back({p_->slot_number((*this)[position]), position});
        if (by_slot_.size() < 2 || (by_slot_.size() == 2 && by_slot_[0].first != by_slot_[1].first)) return;
        std::sort(by_slot_.begin(), by_slot_.end());
        ids_.clear();
        for (const auto& each : by_slot_)
            ids_.push_back((*this)[each.second]);
        if (std::is_sorted(ids_.begin(), ids_.end())) return;
        std::sort(ids_.begin(), ids_.end());
        for (std::size_t k = 0; k < ids_.size(); ++k)
            lanes_.replace(by_slot_[k].second, ids_[k]);
    }
    /// Sorts the transfers of a rank on its links in the order of its lane.
    void refill_links(id first, id last) {
        for (const auto kind : {operation_kind::offload, operation_kind::reload}) {
            id channel = none;
            ids_.clear();
            link_positions_.clear();
            for (id position = first; position < last; ++position) {
                const id i = (*this)[position];
                const auto& f = facts(i);
                if (!active(i) || !is_transfer(f.kind) || f.channel == none) continue;
                if (channel == none && f.kind == kind) channel = f.channel;
                if (f.channel != channel) continue;
                ids_.push_back(i);
                link_positions_.push_back(link_position(i));
            }
            // Sorted positions need no change.
            if (std::is_sorted(link_positions_.begin(), link_positions_.end())) continue;
            std::sort(link_positions_.begin(), link_positions_.end());
            links_.save(link_positions_.front(), link_positions_.back() + 1);
            touched_links_.push_back({channel, link_positions_.front(), link_positions_.back()});
            for (std::size_t k = 0; k < ids_.size(); ++k)
                links_.replace(link_positions_[k], ids_[k]);
        }
    }

    lane_memory memory_;
    bool keeps_fifo_ = true;
    std::vector<range> touched_;
    std::vector<id> touched_of_;
    std::vector<range> touched_links_;
    std::vector<id> flipped_;
    /// Cells with their choices before the edit.
    std::vector<std::pair<std::size_t, flat_problem::cell_choice>> choice_log_;
    std::vector<std::pair<id, id>> by_slot_; ///< pairs of slot number and position
    std::vector<id> ids_;
    std::vector<id> link_positions_;
};

} // namespace optpipe::detail
