#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/planner/local_search/flat_pipeline.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The state that a local search changes: for each rank the sequence of its compute operations and transfers, and for
/// each direction of a shared link the sequence of its transfers.
///
/// A sequence contains every operation that may be in it. Inactive ones keep their place, so nothing shifts when one
/// becomes active. Edits are tentative until all of them are committed or rolled back. If microbatches are
/// interchangeable, those of one kind stay in rising order on their rank: an operation that moves past one of the same
/// kind and stage swaps microbatches with it.
class lane_orders {
public:
    using id = flat_pipeline::id;
    static constexpr id none = flat_pipeline::none;
    struct range {
        id lane = 0;
        id first = 0;
        id last = 0; ///< inclusive
    };

    /// The data that distinguish one state from another.
    struct sequences {
        std::vector<id> order;
        std::vector<id> link_order;
        std::vector<char> active;
        std::vector<storage_index> storage; ///< per cell
    };

    explicit lane_orders(const flat_pipeline& p)
        : p_{&p}, position_(p.size(), none), link_position_(p.size(), none), active_(p.size(), 0),
          facts_of_(p.size(), 0), storage_(at(p.stages() * p.microbatches()), 0), last_acquisition_(at(p.ranks()), 0),
          touched_of_(at(p.ranks()), none) {
        for (id i = 0; i < static_cast<id>(p.size()); ++i)
            facts_of_[at(i)] = p_->facts_number(i, 0);
        lay_out();
        level_.assign(order_.size(), 0.0);
        host_level_ = level_;
    }

    /// Loads the order of a schedule without renumbering its microbatches.
    void load(const schedule& given) {
        auto sorted = order_of(given);
        std::fill(active_.begin(), active_.end(), char{0});
        for (const auto& op : sorted.operations) {
            active_[at(p_->number(op))] = 1;
            if (op.kind == operation_kind::forward || op.kind == operation_kind::offload)
                note_storage(p_->number(op), static_cast<storage_index>(p_->option_told_by(op)));
        }
        split_full();
        load_lanes(sorted);
        load_links(sorted);
        refresh();
    }
    /// Numbers the microbatches of each kind in the order in which the ranks run them. This may make an order illegal
    /// if it offloads and doesn't run microbatches in FIFO order.
    void sort_microbatches() {
        for (id r = 0; r < p_->ranks(); ++r) {
            sort_microbatches(begin(r), end(r));
            number_lanes(begin(r), end(r));
            if (p_->channels() > 0) refill_links(begin(r), end(r));
        }
        refresh();
    }
    /// Whether edits keep the microbatches of each kind in rising order. If storage options differ in a rank's time,
    /// another order may be better, because microbatches aren't interchangeable then.
    void keep_fifo(bool keep) { keeps_fifo_ = keep; }
    [[nodiscard]] sequences copy() const { return {order_, link_order_, active_, storage_}; }
    /// Restores a copy.
    void load(const sequences& given) {
        order_ = given.order;
        link_order_ = given.link_order;
        active_ = given.active;
        for (id s = 0; s < p_->stages(); ++s)
            for (id m = 0; m < p_->microbatches() && p_->options(s) > 1; ++m)
                note_storage(p_->number(s, operation_kind::forward, m), given.storage[at(s * p_->microbatches() + m)]);
        number_lanes(0, static_cast<id>(order_.size()));
        number_link(0, static_cast<id>(link_order_.size()));
        refresh();
    }

    [[nodiscard]] const flat_pipeline& pipeline() const { return *p_; }
    /// The facts of an operation with the storage option of its stage and microbatch.
    [[nodiscard]] const flat_pipeline::kind_facts& facts(id i) const { return p_->facts_at(facts_of_[at(i)]); }
    [[nodiscard]] storage_index storage(id i) const { return storage_[at(p_->cell(i))]; }
    [[nodiscard]] operation operation_of(id i) const { return p_->operation_of(i, storage(i)); }
    [[nodiscard]] id begin(id lane) const { return begin_[at(lane)]; }
    [[nodiscard]] id end(id lane) const { return begin_[at(lane) + 1]; }
    [[nodiscard]] id operator[](id position) const { return order_[at(position)]; }
    [[nodiscard]] id position(id i) const { return position_[at(i)]; }
    [[nodiscard]] bool active(id i) const { return active_[at(i)] != 0; }
    [[nodiscard]] bool active_at(id position) const { return active((*this)[position]); }
    /// The position of the next active operation, or the end of the lane.
    [[nodiscard]] id next(id position, id lane) const {
        const id last = end(lane);
        for (++position; position < last && !active_at(position);)
            ++position;
        return position;
    }
    /// The position of the previous active operation, or one before the start of the lane.
    [[nodiscard]] id previous(id position, id lane) const {
        const id first = begin(lane);
        for (--position; position >= first && !active_at(position);)
            --position;
        return position;
    }
    /// The last compute operation of the lane.
    [[nodiscard]] id last_compute(id lane) const {
        for (id position = end(lane); position-- > begin(lane);)
            if (active_at(position) && !is_transfer(facts((*this)[position]).kind)) return (*this)[position];
        return none;
    }
    /// The position of the last operation that acquires memory.
    [[nodiscard]] id last_acquisition(id lane) const { return last_acquisition_[at(lane)]; }
    /// The operation that passes on the gradient of this stage and microbatch: B if it is active, else I.
    [[nodiscard]] id gradient(id i) const {
        const id full = p_->sibling(i, operation_kind::backward);
        return active(full) ? full : p_->sibling(i, operation_kind::backward_input);
    }
    /// The input of `i` on another stage, or none.
    [[nodiscard]] id input(id i) const {
        const auto& f = facts(i);
        if (!f.has_input) return none;
        return f.kind == operation_kind::forward ? p_->on_stage(i, -1) : gradient(p_->on_stage(i, 1));
    }
    /// The input of `i` on its own stage, or none.
    [[nodiscard]] id own_input(id i) const {
        const auto& f = facts(i);
        return f.own_input == 0 ? none : i + f.own_input;
    }
    /// The operation on another stage that waits for `i`, or none.
    [[nodiscard]] id consumer(id i) const {
        const auto kind = facts(i).kind;
        if (kind == operation_kind::forward) return p_->is_last_stage(i) ? none : p_->on_stage(i, 1);
        return is_gradient(kind) && p_->stage_of(i) > 0 ? gradient(p_->on_stage(i, -1)) : none;
    }
    [[nodiscard]] bool is_offloaded(id i) const { return active(p_->sibling(i, operation_kind::offload)); }
    /// The operation that waits for the reload of a stage and microbatch.
    [[nodiscard]] id user_of_stash(id i) const {
        const id again = p_->sibling(i, operation_kind::recompute);
        return active(again) ? again : gradient(i);
    }

    [[nodiscard]] id link_begin(id channel) const { return link_begin_[at(channel)]; }
    [[nodiscard]] id link_end(id channel) const { return link_begin_[at(channel) + 1]; }
    [[nodiscard]] id link_position(id i) const { return link_position_[at(i)]; }
    [[nodiscard]] id link_at(id position) const { return link_order_[at(position)]; }
    [[nodiscard]] id link_previous(id i) const {
        const id first = link_begin(facts(i).channel);
        for (id position = link_position(i); position-- > first;)
            if (active(link_at(position))) return link_at(position);
        return none;
    }
    [[nodiscard]] id link_next(id i) const { return link_next_from(link_position(i) + 1, facts(i).channel); }
    [[nodiscard]] id link_next_from(id position, id channel) const {
        for (; position < link_end(channel); ++position)
            if (active(link_at(position))) return link_at(position);
        return none;
    }

    /// Moves the operation at `from` to `to` in its lane; operations between them shift.
    void shift(id from, id to) {
        if (from < to)
            rotate(from, from + 1, to + 1);
        else if (to < from)
            rotate(to, from, from + 1);
    }
    /// Swaps the blocks [first, middle) and [middle, last) of one lane.
    void rotate(id first, id middle, id last) {
        const id lane = facts((*this)[first]).rank;
        touch(lane, first, last - 1);
        save(order_, false, first, last);
        auto* const data = order_.data();
        std::rotate(data + first, data + middle, data + last);
        if (keeps_fifo_) sort_microbatches(first, last);
        number_lanes(first, last);
        if (p_->channels() > 0) refill_links(first, last);
    }
    /// Activates or deactivates the transfers of a stage and microbatch, given any of its operations.
    void use_transfers(id i, bool use) {
        use_operation(p_->sibling(i, operation_kind::offload), use);
        use_operation(p_->sibling(i, operation_kind::reload), use);
    }
    /// Gives a stage and microbatch another storage option, given any of its operations. Contract: operations that
    /// become active are in their places already.
    void set_storage(id i, id option) {
        const id old = storage(i);
        storage_log_.push_back({i, static_cast<storage_index>(old)});
        note_storage(i, static_cast<storage_index>(option));
        const id s = p_->stage_of(i);
        for (const auto kind : all_operation_kinds) {
            const id op = p_->sibling(i, kind);
            const bool is_required = p_->requires_operation(s, option, kind);
            if (p_->requires_operation(s, old, kind) != is_required)
                use_operation(op, is_required);
            else if (active(op) && !(p_->facts(op, old) == p_->facts(op, option)))
                touch_operation(op);
        }
    }
    /// Replaces I and W of a stage and microbatch by B in the place of I, or B by the two.
    void set_full_backward(id i, bool use) {
        const id full = p_->sibling(i, operation_kind::backward);
        const id input = p_->sibling(i, operation_kind::backward_input);
        const id weight = p_->sibling(i, operation_kind::backward_weight);
        if (active(full) == use) return;
        if (use) {
            shift(position(full), position(input));
        } else {
            shift(position(input), position(full));
            shift(position(weight), position(full));
        }
        for (const id op : {full, input, weight})
            flip(op);
        const auto [first, last] = std::minmax({position(full), position(input), position(weight)});
        touch(facts(i).rank, first, last);
    }
    /// Moves a transfer on its link without renumbering microbatches.
    void shift_on_link(id i, id to) {
        const id from = link_position(i);
        const id first = std::min(from, to);
        const id last = std::max(from, to) + 1;
        save(link_order_, true, first, last);
        auto* const data = link_order_.data();
        if (from < to)
            std::rotate(data + from, data + from + 1, data + to + 1);
        else
            std::rotate(data + to, data + from, data + from + 1);
        number_link(first, last);
        touched_links_.push_back({facts(i).channel, first, last - 1});
    }

    /// To be called after edits, before `last_acquisition`.
    void find_last_acquisition(id lane) {
        id here = end(lane) - 1;
        while (here > begin(lane) && !(active_at(here) && facts((*this)[here]).acquired > 0.0))
            --here;
        last_acquisition_[at(lane)] = here;
    }

    /// Whether each edited sequence is executable, considering only its rank: precedences on the rank hold, and memory
    /// stays within the limits.
    [[nodiscard]] bool legal() const {
        return std::all_of(touched_.begin(), touched_.end(), [this](const range& t) { return legal(t); });
    }
    /// The first position of an edited sequence at which the memory of the device doesn't suffice. None if there is no
    /// fault, or if another fault comes first.
    [[nodiscard]] id overflow() const {
        for (const auto& t : touched_)
            if (const auto found = find_fault(t); found.what != fault_kind::none)
                return found.what == fault_kind::device_memory ? found.position : none;
        return none;
    }
    /// `legal` for all sequences, edited or not.
    [[nodiscard]] bool all_legal() const {
        for (id r = 0; r < p_->ranks(); ++r)
            if (!legal({r, begin(r), end(r) - 1})) return false;
        return true;
    }
    [[nodiscard]] const std::vector<range>& touched() const { return touched_; }
    [[nodiscard]] const std::vector<range>& touched_links() const { return touched_links_; }

    /// Operations that were activated or deactivated.
    [[nodiscard]] const std::vector<id>& flipped() const { return flipped_; }

    void commit() {
        for (const auto& t : touched_)
            refresh(t.lane, t.first, t.last);
        forget();
    }
    void rollback() {
        for (std::size_t i = storage_log_.size(); i-- > 0;)
            note_storage(storage_log_[i].first, storage_log_[i].second);
        for (std::size_t i = flipped_.size(); i-- > 0;)
            active_[at(flipped_[i])] ^= 1;
        for (std::size_t i = saved_.size(); i-- > 0;) {
            const auto& s = saved_[i];
            auto& target = s.link ? link_order_ : order_;
            auto& positions = s.link ? link_position_ : position_;
            for (id k = 0; k < s.count; ++k) {
                const id op = buffer_[s.offset + at(k)];
                target[at(s.first + k)] = op;
                positions[at(op)] = s.first + k;
            }
        }
        if (p_->offloads())
            for (const auto& t : touched_)
                find_last_acquisition(t.lane);
        forget();
    }

private:
    struct segment {
        bool link = false;
        id first = 0;
        id count = 0;
        std::size_t offset = 0;
    };
    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    void lay_out() {
        std::vector<id> lanes(at(p_->ranks()), 0);
        std::vector<id> links(at(p_->channels()), 0);
        for (id s = 0; s < p_->stages(); ++s)
            for (const auto kind : all_operation_kinds) {
                if (!p_->may_be_active(s, kind)) continue;
                const auto& f = facts(p_->number(s, kind, 0));
                lanes[at(f.rank)] += p_->microbatches();
                if (f.channel != none) links[at(f.channel)] += p_->microbatches();
            }
        begin_ = link_begin_ = {0};
        for (const id count : lanes)
            begin_.push_back(begin_.back() + count);
        for (const id count : links)
            link_begin_.push_back(link_begin_.back() + count);
        order_.assign(at(begin_.back()), none);
        link_order_.assign(at(link_begin_.back()), none);
    }

    /// Splits every B of stages for which splitting never takes more memory: I and W are at least as good.
    void split_full() {
        if (!p_->split()) return;
        for (id s = 0; s < p_->stages(); ++s)
            for (id m = 0; m < p_->microbatches() && !p_->full_may_pay(s); ++m) {
                const id full = p_->number(s, operation_kind::backward, m);
                if (!active(full)) continue;
                active_[at(full)] = 0;
                active_[at(p_->sibling(full, operation_kind::backward_input))] = 1;
                active_[at(p_->sibling(full, operation_kind::backward_weight))] = 1;
            }
    }
    template <class Sink> void for_each_slot(id i, Sink sink) const {
        const id s = p_->stage_of(i);
        const bool gradient = is_gradient(facts(i).kind);
        if (gradient && p_->can_offload(s) && !is_offloaded(i)) sink(p_->sibling(i, operation_kind::reload));
        const id again = p_->sibling(i, operation_kind::recompute);
        if (gradient && p_->can_recompute(s) && !active(again)) sink(again);
        const bool full = facts(i).kind == operation_kind::backward;
        if (gradient && p_->split() && full) {
            if (p_->full_may_pay(s)) sink(i);
            sink(p_->sibling(i, operation_kind::backward_input));
            sink(p_->sibling(i, operation_kind::backward_weight));
        } else {
            sink(i);
            if (gradient && p_->full_may_pay(s)) sink(p_->sibling(i, operation_kind::backward));
        }
        const bool is_forward = facts(i).kind == operation_kind::forward;
        if (is_forward && p_->can_offload(s) && !is_offloaded(i)) sink(p_->sibling(i, operation_kind::offload));
    }
    void load_lanes(const optpipe::order& sorted) {
        std::vector<std::vector<id>> lanes(at(p_->ranks()));
        for (const auto& op : sorted.operations) {
            auto& lane = lanes[at(facts(p_->number(op)).rank)];
            for_each_slot(p_->number(op), [&](id i) { lane.push_back(i); });
        }
        order_.clear();
        for (const auto& lane : lanes)
            order_.insert(order_.end(), lane.begin(), lane.end());
        number_lanes(0, static_cast<id>(order_.size()));
    }
    /// Links have active transfers in the order of the schedule, and inactive ones at the places of their rank's lane.
    void load_links(const optpipe::order& sorted) {
        std::vector<std::vector<id>> links(at(p_->channels()));
        for (const auto& op : sorted.operations)
            for_each_slot(p_->number(op), [&](id i) {
                const id channel = facts(i).channel;
                if (channel != none) links[at(channel)].push_back(i);
            });
        link_order_.clear();
        for (const auto& link : links)
            link_order_.insert(link_order_.end(), link.begin(), link.end());
        number_link(0, static_cast<id>(link_order_.size()));
        if (p_->channels() > 0)
            for (id r = 0; r < p_->ranks(); ++r)
                refill_links(begin(r), end(r));
    }

    void save(const std::vector<id>& from, bool link, id first, id last) {
        saved_.push_back({link, first, last - first, buffer_.size()});
        buffer_.insert(buffer_.end(), from.begin() + first, from.begin() + last);
    }
    void note_storage(id i, storage_index option) {
        storage_[at(p_->cell(i))] = option;
        for (const auto kind : all_operation_kinds) {
            const id op = p_->sibling(i, kind);
            facts_of_[at(op)] = p_->facts_number(op, option);
        }
    }
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
        saved_.clear();
        buffer_.clear();
        flipped_.clear();
        storage_log_.clear();
    }

    /// Restores the rising order of microbatches of each kind within a segment.
    void sort_microbatches(id first, id last) {
        by_kind_.clear();
        for (id position = first; position < last; ++position)
            if (active_at(position)) by_kind_.push_back({p_->kind_number((*this)[position]), position});
        const auto by_kind = [](const std::pair<id, id>& a, const std::pair<id, id>& b) { return a < b; };
        if (by_kind_.size() > 2 || (by_kind_.size() == 2 && by_kind_[0].first == by_kind_[1].first))
            std::sort(by_kind_.begin(), by_kind_.end(), by_kind);
        for (std::size_t i = 0; i < by_kind_.size();) {
            std::size_t j = i;
            ids_.clear();
            for (; j < by_kind_.size() && by_kind_[j].first == by_kind_[i].first; ++j)
                ids_.push_back((*this)[by_kind_[j].second]);
            if (!std::is_sorted(ids_.begin(), ids_.end())) {
                std::sort(ids_.begin(), ids_.end());
                for (std::size_t k = i; k < j; ++k)
                    order_[at(by_kind_[k].second)] = ids_[k - i];
            }
            i = j;
        }
    }
    /// Refills the slots of a rank on its links in the order of its lane.
    void refill_links(id first, id last) {
        for (const auto kind : {operation_kind::offload, operation_kind::reload}) {
            id channel = none;
            ids_.clear();
            slots_.clear();
            for (id position = first; position < last; ++position) {
                const id i = (*this)[position];
                const auto& f = facts(i);
                if (!active(i) || !is_transfer(f.kind) || f.channel == none) continue;
                if (channel == none && f.kind == kind) channel = f.channel;
                if (f.channel != channel) continue;
                ids_.push_back(i);
                slots_.push_back(link_position(i));
            }
            // Sorted slots need no change; on a half-duplex link the second pass does nothing.
            if (slots_.empty() || std::is_sorted(slots_.begin(), slots_.end())) continue;
            std::sort(slots_.begin(), slots_.end());
            save(link_order_, true, slots_.front(), slots_.back() + 1);
            touched_links_.push_back({channel, slots_.front(), slots_.back()});
            for (std::size_t k = 0; k < ids_.size(); ++k) {
                link_order_[at(slots_[k])] = ids_[k];
                link_position_[at(ids_[k])] = slots_[k];
            }
        }
    }
    void number_lanes(id first, id last) {
        for (id position = first; position < last; ++position)
            position_[at((*this)[position])] = position;
    }
    void number_link(id first, id last) {
        for (id position = first; position < last; ++position)
            link_position_[at(link_at(position))] = position;
    }

    [[nodiscard]] bool in_place(id i, id here) const {
        if (const id own = own_input(i); own != none && position(own) > here) return false;
        const auto& f = facts(i);
        if (f.same_rank_before == 0) return true;
        const id before = i + f.same_rank_before;
        return position(is_gradient(f.kind) ? gradient(before) : before) < here;
    }
    enum class fault_kind { none, order, device_memory, host_memory };
    struct fault {
        fault_kind what = fault_kind::none;
        id position = none;
    };
    [[nodiscard]] bool legal(const range& t) const { return find_fault(t).what == fault_kind::none; }
    [[nodiscard]] fault find_fault(const range& t) const {
        const bool at_begin = t.first == begin(t.lane);
        double level = at_begin ? 0.0 : level_[at(t.first - 1)];
        double host = at_begin ? 0.0 : host_level_[at(t.first - 1)];
        for (id here = t.first; here <= t.last; ++here) {
            const id i = (*this)[here];
            if (!active(i)) continue;
            if (!in_place(i, here)) return {fault_kind::order, here};
            const auto& f = facts(i);
            level += f.acquired;
            host += f.host_acquired;
            if (f.acquired > 0.0 && level > p_->limit(t.lane)) return {fault_kind::device_memory, here};
            if (f.host_acquired > 0.0 && host > p_->host_limit(t.lane)) return {fault_kind::host_memory, here};
            level -= f.released;
            host -= f.host_released;
        }
        return {};
    }
    void refresh() {
        for (id r = 0; r < p_->ranks(); ++r) {
            refresh(r, begin(r), end(r) - 1);
            find_last_acquisition(r);
        }
        forget();
    }
    void refresh(id lane, id first, id last) {
        const bool at_begin = first == begin(lane);
        double level = at_begin ? 0.0 : level_[at(first - 1)];
        double host = at_begin ? 0.0 : host_level_[at(first - 1)];
        for (id here = first; here <= last; ++here) {
            const id i = (*this)[here];
            if (active(i)) {
                const auto& f = facts(i);
                level += f.acquired - f.released;
                host += f.host_acquired - f.host_released;
            }
            level_[at(here)] = level;
            host_level_[at(here)] = host;
        }
    }

    const flat_pipeline* p_;
    std::vector<id> order_;
    std::vector<id> begin_;
    std::vector<id> position_;
    std::vector<id> link_order_;
    std::vector<id> link_begin_;
    std::vector<id> link_position_;
    std::vector<char> active_;
    std::vector<id> facts_of_;
    std::vector<storage_index> storage_;
    std::vector<double> level_;
    std::vector<double> host_level_;
    std::vector<id> last_acquisition_;
    bool keeps_fifo_ = true;

    std::vector<range> touched_;
    std::vector<id> touched_of_;
    std::vector<range> touched_links_;
    std::vector<segment> saved_;
    std::vector<id> buffer_;
    std::vector<id> flipped_;
    std::vector<std::pair<id, storage_index>> storage_log_;
    std::vector<std::pair<id, id>> by_kind_;
    std::vector<id> ids_;
    std::vector<id> slots_;
};

} // namespace optpipe::detail
