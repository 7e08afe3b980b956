#pragma once

#include "optpipe/planner/local_search/flat_pipeline.hpp"
#include "optpipe/planner/local_search/operation_sequences.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The state of a local search. The state has the sequence of compute operations and transfers of each rank, the
/// sequence of transfers of each direction of a shared link, and the storage option of each stage and microbatch.
///
/// A sequence also contains inactive operations that may become active. Inactive operations keep their positions, so no
/// operation shifts when another one becomes active.
class lane_state {
public:
    using id = flat_pipeline::id;
    static constexpr id none = flat_pipeline::none;
    struct range {
        id lane = 0;
        id first = 0;
        id last = 0; ///< inclusive
    };

    /// The data in which one state differs from another.
    struct sequences {
        std::vector<id> order;
        std::vector<id> link_order;
        std::vector<char> active;
        std::vector<storage_index> storage; ///< one per stage and microbatch
    };

    [[nodiscard]] sequences copy() const { return {lanes_.order(), links_.order(), active_, storage_}; }

    [[nodiscard]] const flat_pipeline& pipeline() const { return *p_; }
    /// The facts of an operation with the storage option of its stage and microbatch.
    [[nodiscard]] const flat_pipeline::kind_facts& facts(id i) const { return p_->facts_at(facts_of_[at(i)]); }
    [[nodiscard]] storage_index storage(id i) const { return storage_[at(p_->cell(i))]; }
    [[nodiscard]] operation operation_of(id i) const { return p_->operation_of(i, storage(i)); }
    [[nodiscard]] id begin(id lane) const { return lanes_.begin(lane); }
    [[nodiscard]] id end(id lane) const { return lanes_.end(lane); }
    [[nodiscard]] id operator[](id position) const { return lanes_[position]; }
    [[nodiscard]] id position(id i) const { return lanes_.position(i); }
    [[nodiscard]] bool active(id i) const { return active_[at(i)] != 0; }
    [[nodiscard]] bool active_at(id position) const { return active((*this)[position]); }
    /// The position of the next active operation, or the end of the lane if there is no such operation.
    [[nodiscard]] id next(id position, id lane) const {
        const id last = end(lane);
        for (++position; position < last && !active_at(position);)
            ++position;
        return position;
    }
    /// The position of the previous active operation, or one before the start of the lane if there is no such
    /// operation.
    [[nodiscard]] id previous(id position, id lane) const {
        const id first = begin(lane);
        for (--position; position >= first && !active_at(position);)
            --position;
        return position;
    }
    /// The last active compute operation of the lane, or none.
    [[nodiscard]] id last_compute(id lane) const {
        for (id position = end(lane); position-- > begin(lane);)
            if (active_at(position) && !is_transfer(facts((*this)[position]).kind)) return (*this)[position];
        return none;
    }
    /// The operation that passes on the gradient of this stage and microbatch. The result is B if B is active, and I
    /// otherwise.
    [[nodiscard]] id gradient(id i) const {
        const id full = p_->sibling(i, operation_kind::backward);
        return active(full) ? full : p_->sibling(i, operation_kind::backward_input);
    }
    /// The input of `i` on another stage, or none.
    [[nodiscard]] id input(id i) const { return other_stage(i, facts(i).input); }
    /// The input of `i` on its own stage, or none.
    [[nodiscard]] id own_input(id i) const {
        const auto& f = facts(i);
        return f.own_input == 0 ? none : i + f.own_input;
    }
    /// The operation on another stage that waits for `i`, or none.
    [[nodiscard]] id consumer(id i) const { return other_stage(i, facts(i).consumer); }
    [[nodiscard]] bool is_offloaded(id i) const { return active(p_->sibling(i, operation_kind::offload)); }
    /// The operation that waits for the reload of a stage and microbatch.
    [[nodiscard]] id user_of_stash(id i) const {
        const id again = p_->sibling(i, operation_kind::recompute);
        return active(again) ? again : gradient(i);
    }

    [[nodiscard]] id link_begin(id channel) const { return links_.begin(channel); }
    [[nodiscard]] id link_end(id channel) const { return links_.end(channel); }
    [[nodiscard]] id link_position(id i) const { return links_.position(i); }
    [[nodiscard]] id link_at(id position) const { return links_[position]; }
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

protected:
    explicit lane_state(const flat_pipeline& p) : lane_state{p, lengths_of(p)} {}

    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    /// Takes the order of a schedule without renumbering its microbatches. On their links, active transfers are also in
    /// the schedule's order. Inactive transfers may be anywhere.
    void assign(const schedule& given) {
        const auto sorted = order_of(given);
        std::fill(active_.begin(), active_.end(), char{0});
        for (const auto& op : sorted.operations) {
            active_[at(p_->number(op))] = 1;
            if (op.kind == operation_kind::forward) note_storage(p_->number(op), op.storage);
        }
        split_full();
        lanes_.assign(grouped(sorted, p_->ranks(), [](const auto& f) { return f.rank; }));
        links_.assign(grouped(sorted, p_->channels(), [](const auto& f) { return f.channel; }));
    }
    void assign(const sequences& given) {
        active_ = given.active;
        for (id s = 0; s < p_->stages(); ++s)
            for (id m = 0; m < p_->microbatches() && p_->options(s) > 1; ++m)
                note_storage(p_->number(s, operation_kind::forward, m), given.storage[at(s * p_->microbatches() + m)]);
        lanes_.assign(given.order);
        links_.assign(given.link_order);
    }
    void note_storage(id i, storage_index option) {
        storage_[at(p_->cell(i))] = option;
        for (const auto kind : all_operation_kinds) {
            const id other = p_->sibling(i, kind);
            facts_of_[at(other)] = p_->facts_number(other, option);
        }
    }

    const flat_pipeline* p_;
    operation_sequences lanes_;
    operation_sequences links_;
    std::vector<char> active_;

private:
    /// The operation with the number `i` + `difference`, or none if `difference` is 0. If the result is a gradient, it
    /// is I or B, whichever is active.
    [[nodiscard]] id other_stage(id i, id difference) const {
        if (difference == 0) return none;
        return is_gradient(facts(i).kind) ? gradient(i + difference) : i + difference;
    }
    /// Number of operations of each lane and of each link.
    struct lengths {
        std::vector<id> of_lanes;
        std::vector<id> of_links;
    };

    lane_state(const flat_pipeline& p, const lengths& given)
        : p_{&p}, lanes_{p.size(), given.of_lanes}, links_{p.size(), given.of_links}, active_(p.size(), 0),
          storage_(at(p.stages() * p.microbatches()), 0) {
        for (id i = 0; i < static_cast<id>(p.size()); ++i)
            facts_of_.push_back(p.facts_number(i, 0));
    }
    static lengths lengths_of(const flat_pipeline& p) {
        lengths result{std::vector<id>(at(p.ranks()), 0), std::vector<id>(at(p.channels()), 0)};
        for (id s = 0; s < p.stages(); ++s)
            for (const auto kind : all_operation_kinds) {
                if (!p.may_be_active(s, kind)) continue;
                const auto& f = p.facts(p.number(s, kind, 0), 0);
                result.of_lanes[at(f.rank)] += p.microbatches();
                if (f.channel != none) result.of_links[at(f.channel)] += p.microbatches();
            }
        return result;
    }
    /// Splits every B on stages where splitting never takes more memory, because splitting is at least as good there.
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
    /// Calls `visit` with an active operation, and with the inactive operations at adjacent positions.
    template <class Visit> void for_each_beside(id i, Visit visit) const {
        const id s = p_->stage_of(i);
        const auto kind = p_->kind(i);
        const auto visit_inactive = [&](operation_kind other) {
            const id beside = p_->sibling(i, other);
            if (p_->may_be_active(s, other) && !active(beside)) visit(beside);
        };
        if (is_gradient(kind)) {
            visit_inactive(operation_kind::reload);
            visit_inactive(operation_kind::recompute);
        }
        if (kind == operation_kind::backward && p_->split()) {
            if (p_->full_may_pay(s)) visit(i);
            visit(p_->sibling(i, operation_kind::backward_input));
            visit(p_->sibling(i, operation_kind::backward_weight));
        } else {
            visit(i);
        }
        if (kind == operation_kind::backward_input) visit_inactive(operation_kind::backward);
        if (kind == operation_kind::forward) visit_inactive(operation_kind::offload);
    }
    /// The operations of each group in the given order, one group after the other. `group_of(facts)` may return none.
    template <class GroupOf>
    [[nodiscard]] std::vector<id> grouped(const optpipe::order& sorted, id groups, GroupOf group_of) const {
        std::vector<std::vector<id>> by_group(at(groups));
        for (const auto& op : sorted.operations)
            for_each_beside(p_->number(op), [&](id i) {
                const id group = group_of(facts(i));
                if (group != none) by_group[at(group)].push_back(i);
            });
        std::vector<id> result;
        for (const auto& each : by_group)
            result.insert(result.end(), each.begin(), each.end());
        return result;
    }

    std::vector<id> facts_of_;
    std::vector<storage_index> storage_;
};

} // namespace optpipe::detail
