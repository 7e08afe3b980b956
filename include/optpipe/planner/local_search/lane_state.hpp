#pragma once

#include "optpipe/planner/flat_problem.hpp"
#include "optpipe/planner/local_search/operation_sequences.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The state of a local search. The state has each rank's sequence of computations and transfers, and each shared
/// link's sequences of transfers. The state also has the choice of each stage and microbatch.
///
/// A sequence also contains inactive operations that may become active. Inactive operations keep their positions:
/// activation shifts no operation.
class lane_state {
public:
    using id = flat_problem::id;
    static constexpr id none = flat_problem::none;
    struct range {
        id lane = 0;
        id first = 0;
        id last = 0; ///< inclusive
    };

    /// The data in which one state differs from another.
    struct sequences {
        std::vector<id> order;
        std::vector<id> link_order;
        std::vector<flat_problem::cell_choice> choices; ///< one per stage and microbatch
    };

    [[nodiscard]] sequences copy() const { return {lanes_.order(), links_.order(), choices_.all()}; }

    [[nodiscard]] const flat_problem& flat() const { return *p_; }
    [[nodiscard]] const flat_problem::facts& facts(id i) const { return choices_[i]; }
    [[nodiscard]] flat_problem::cell_choice choice(id i) const { return choices_.choice(p_->cell_of(i)); }
    [[nodiscard]] storage_index storage(id i) const { return choice(i).storage; }
    [[nodiscard]] operation operation_of(id i) const { return choices_.operation_of(i); }
    [[nodiscard]] id begin(id lane) const { return lanes_.begin(lane); }
    [[nodiscard]] id end(id lane) const { return lanes_.end(lane); }
    [[nodiscard]] id operator[](id position) const { return lanes_[position]; }
    [[nodiscard]] id position(id i) const { return lanes_.position(i); }
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
    /// The last active compute operation of the lane, or none.
    [[nodiscard]] id last_compute(id lane) const {
        for (id position = end(lane); position-- > begin(lane);)
            if (active_at(position) && !is_transfer(facts((*this)[position]).kind)) return (*this)[position];
        return none;
    }
    /// The I or B of the stage and microbatch of `i`.
    [[nodiscard]] id gradient(id i) const { return p_->sibling(i, operation_kind::backward_input); }
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
    explicit lane_state(const flat_problem& p) : lane_state{p, lengths_of(p)} {}

    static std::size_t at(id i) { return static_cast<std::size_t>(i); }

    /// Takes the order of a schedule without renumbering its microbatches. The order of active transfers on a link is
    /// the schedule's order, too. Inactive transfers may be anywhere. Splits every B on stages where splitting never
    /// takes more memory.
    void assign(const schedule& given) {
        const auto sorted = order_of(given);
        for (const auto& op : sorted.operations) {
            if (op.kind != operation_kind::forward && !is_gradient(op.kind)) continue;
            const id i = p_->number(op);
            auto chosen = choice(i);
            chosen.storage = op.storage;
            if (is_gradient(op.kind))
                chosen.is_split =
                    op.kind == operation_kind::backward_input || (p_->split() && !p_->full_may_pay(p_->stage_of(i)));
            reset(p_->cell_of(i), chosen);
        }
        lanes_.assign(grouped(sorted, p_->ranks(), [](const auto& f) { return f.rank; }));
        links_.assign(grouped(sorted, p_->channels(), [](const auto& f) { return f.channel; }));
    }
    void assign(const sequences& given) {
        for (std::size_t cell = 0; cell < given.choices.size(); ++cell)
            reset(cell, given.choices[cell]);
        lanes_.assign(given.order);
        links_.assign(given.link_order);
    }

    const flat_problem* p_;
    operation_sequences lanes_;
    operation_sequences links_;
    cell_choices choices_;
    std::vector<char> active_;

private:
    /// Makes a choice, and activates exactly the operations that the choice requires.
    void reset(std::size_t cell, flat_problem::cell_choice chosen) {
        choices_.choose(cell, chosen);
        for (const auto kind : slot_kinds) {
            const id i = p_->number_in(cell, kind);
            active_[at(i)] = p_->requires_operation(p_->stage_of(i), chosen, kind) ? 1 : 0;
        }
    }
    /// Number of operations of each lane and of each link.
    struct lengths {
        std::vector<id> of_lanes;
        std::vector<id> of_links;
    };

    lane_state(const flat_problem& p, const lengths& given)
        : p_{&p}, lanes_{p.size(), given.of_lanes}, links_{p.size(), given.of_links}, choices_{p},
          active_(p.size(), 0) {}
    static lengths lengths_of(const flat_problem& p) {
        lengths result{std::vector<id>(at(p.ranks()), 0), std::vector<id>(at(p.channels()), 0)};
        for (id s = 0; s < p.stages(); ++s)
            for (const auto kind : slot_kinds) {
                if (!p.may_be_active(s, kind)) continue;
                const auto& f = p.facts_of(p.number(s, kind, 0), {});
                result.of_lanes[at(f.rank)] += p.microbatches();
                if (f.channel != none) result.of_links[at(f.channel)] += p.microbatches();
            }
        return result;
    }
    /// Calls `visit` for `op`, the inactive transfers and recomputation of its stash, and the W of a B that may be
    /// split.
    template <class Visit> void for_each_beside(const operation& op, Visit visit) const {
        const id i = p_->number(op);
        const id s = p_->stage_of(i);
        const auto visit_inactive = [&](operation_kind other) {
            const id beside = p_->sibling(i, other);
            if (p_->may_be_active(s, other) && !active(beside)) visit(beside);
        };
        if (is_gradient(op.kind)) {
            visit_inactive(operation_kind::reload);
            visit_inactive(operation_kind::recompute);
        }
        visit(i);
        if (op.kind == operation_kind::backward && p_->split()) visit(p_->sibling(i, operation_kind::backward_weight));
        if (op.kind == operation_kind::forward) visit_inactive(operation_kind::offload);
    }
    /// The operations of each group in the given order, group by group. `group_of(facts)` may return none.
    template <class GroupOf>
    [[nodiscard]] std::vector<id> grouped(const optpipe::order& sorted, id groups, GroupOf group_of) const {
        std::vector<std::vector<id>> by_group(at(groups));
        for (const auto& op : sorted.operations)
            for_each_beside(op, [&](id i) {
                const id group = group_of(facts(i));
                if (group != none) by_group[at(group)].push_back(i);
            });
        std::vector<id> result;
        for (const auto& each : by_group)
            result.insert(result.end(), each.begin(), each.end());
        return result;
    }
};

} // namespace optpipe::detail
