#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/open_stash.hpp"
#include "optpipe/planner/cp/stash_options.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory_resource>
#include <numeric>
#include <optional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// A partially ordered schedule: free operations may move, the others keep their order on every lane and in memory. A
/// stash may change to an option that differs only in transfers if one of its transfers is free, and to a candidate if
/// its forward and its gradient are free.
///
/// For a target objective it computes the window of each operation's start over all schedules that reach the target and
/// keep that order, wherever the free operations go.
class partial_order {
public:
    using node = open_stash::node;
    static constexpr node no_node = open_stash::no_node;
    static constexpr std::uint32_t no_stash = std::numeric_limits<std::uint32_t>::max();

    struct item {
        operation op{};
        std::size_t rank = 0;
        ticks length = 0;
        /// Start in the current schedule.
        ticks start = 0;
        bool free = false;
        /// Whether the item is needed only under some options of an open stash.
        bool optional = false;
        /// Whether the item lengthens the gradient of an open stash, and isn't an operation of its own.
        bool is_extra = false;
        /// Whether the item is part of the current schedule.
        bool in_schedule = true;
        /// For an optional transfer, the other one.
        node partner = no_node;
        /// The open stash to which the item belongs.
        std::uint32_t stash = no_stash;
        /// Memory acquired at its start and released at its end; for an open stash's forward and gradient, the least of
        /// all options.
        ticks takes = 0;
        ticks gives = 0;
        ticks host_takes = 0;
        ticks host_gives = 0;
    };
    struct link {
        node to;
        ticks gap;
    };

    /// `stop()` is polled; an interrupted order is incomplete and must not be used.
    template <class IsFree, class Stop>
    partial_order(const problem& p, const schedule& s, IsFree is_free, const Stop& stop,
                  const storage_candidates& candidates = {})
        : problem_{&p}, time_{time_grid(p)}, memory_{memory_grid(p)}, number_{p.graph}, cell_{p.graph},
          node_of_(number_.size(), no_node) {
        find_open_stashes(s, is_free, candidates);
        for (const auto& timed : s.operations)
            if (!is_alternative(timed.op)) add(timed.op, time_.nearest(timed.start.value()), is_free(timed.op));
        add_alternatives(s);
        if (!time_.is_exact()) slack_ = static_cast<ticks>(items_.size());
        if (stop()) return;
        out_.resize(items_.size());
        in_.resize(items_.size());
        for (const stage at : p.graph.all_stages())
            if (!stop()) add_inputs(at);
        for (const auto& stash : open_stashes_)
            connect_alternatives(stash);
        if (stop()) return;
        sort_items();
        if (stop()) return;
        fill_lanes();
        add_lane_order();
        for (std::size_t r = 0; r < by_rank_.size() && !stop(); ++r)
            add_memory_order(r);
    }

    [[nodiscard]] const problem& source() const { return *problem_; }
    [[nodiscard]] const grid& time() const { return time_; }
    [[nodiscard]] const grid& memory() const { return memory_; }
    [[nodiscard]] const std::vector<item>& items() const { return items_; }
    [[nodiscard]] const std::vector<open_stash>& open_stashes() const { return open_stashes_; }
    [[nodiscard]] node find(const operation& op) const { return node_of_[number_(op)]; }
    [[nodiscard]] std::span<const link> out(node n) const { return out_[n]; }
    [[nodiscard]] std::span<const link> in(node n) const { return in_[n]; }
    /// All items in topological order.
    [[nodiscard]] const std::vector<node>& sorted() const { return sorted_; }
    [[nodiscard]] const std::vector<std::size_t>& place() const { return place_; }
    /// The lanes that an item occupies: the compute lane of its rank, or an engine and a link.
    [[nodiscard]] std::vector<std::size_t> lanes_of(node n) const {
        const auto& p = *problem_;
        const auto& i = items_[n];
        if (!is_transfer(i.op.kind)) return {i.rank};
        const bool inward = is_inward(i.op.kind);
        const auto ranks = p.graph.ranks();
        return {ranks + copy_engine_of(p.transfer, rank{i.rank}, inward),
                3 * ranks + host_channel_of(p.transfer, rank{i.rank}, inward)};
    }
    /// All items of each lane, by their starts in the current schedule.
    [[nodiscard]] const std::vector<std::vector<node>>& lanes() const { return lanes_; }
    [[nodiscard]] const std::vector<std::vector<node>>& by_rank() const { return by_rank_; }

    /// Whether `a` ends no later than `b` starts in the current schedule.
    [[nodiscard]] bool ended_before(node a, node b) const {
        return items_[a].start + items_[a].length <= items_[b].start + slack_;
    }
    [[nodiscard]] ticks earliest(node n) const { return earliest_[n]; }
    [[nodiscard]] ticks latest(node n) const { return latest_[n]; }
    /// Computes the windows. False if the fixed operations alone exceed an objective of `most`.
    bool set_windows(ticks most) {
        const bool span = problem_->objective == objective_kind::span;
        earliest_.assign(items_.size(), 0);
        latest_.resize(items_.size());
        for (node n = 0; n < items_.size(); ++n)
            latest_[n] = (span ? 2 * most : most) - items_[n].length;
        // All starts count from the first one, which is on the rank of stage 0.
        if (span)
            for (const auto n : lanes_[problem_->rank_of(stage{0}).position()])
                latest_[n] = most - items_[n].length;
        constexpr int most_rounds = 8; // windows of spans depend on each other; wider ones are also valid
        for (int round = 0; round < most_rounds; ++round) {
            sweep();
            if (!span || !narrow_spans(most)) break;
        }
        for (node n = 0; n < items_.size(); ++n)
            if (!items_[n].optional && earliest_[n] > latest_[n]) return false;
        return true;
    }

private:
    [[nodiscard]] ticks size_of(memory_size m) const { return memory_.below(m.value()); }

    [[nodiscard]] ticks length_of(const operation& op) const {
        return time_.nearest(duration_of(*problem_, op).value());
    }

    node add(const item& i) {
        items_.push_back(i);
        return static_cast<node>(items_.size() - 1);
    }
    node add(const operation& op, ticks start, bool free) {
        const auto n = add(item_of(op, start, free));
        node_of_[number_(op)] = n;
        if (const auto which = items_[n].stash; which != no_stash) {
            if (op.kind == operation_kind::forward) open_stashes_[which].forward = n;
            if (is_gradient(op.kind)) open_stashes_[which].gradient = n;
        }
        return n;
    }
    [[nodiscard]] item item_of(const operation& op, ticks start, bool free) const {
        const auto effect = memory_effect_of(*problem_, op);
        item i{op, problem_->rank_of(op.stage).position(), length_of(op), start, free};
        i.stash = stash_of(op);
        i.takes = size_of(effect.acquired_at_start);
        i.gives = size_of(effect.released_at_end);
        i.host_takes = size_of(effect.host_acquired_at_start);
        i.host_gives = size_of(effect.host_released_at_end);
        return i;
    }

    // Stashes whose storage option may change.

    using kind_starts = std::array<ticks, all_operation_kinds.size()>;
    using alternative = open_stash::alternative;

    template <class IsFree>
    void find_open_stashes(const schedule& s, const IsFree& is_free, const storage_candidates& candidates) {
        std::vector<bool> offloaded(cell_.size(), false);
        std::vector<int> free_ends(cell_.size(), 0);
        for (const auto& [op, start, end] : s.operations) {
            if (op.kind == operation_kind::offload) offloaded[cell_(op)] = true;
            const bool is_end = op.kind == operation_kind::forward || is_gradient(op.kind);
            if (is_end && !candidates.empty() && is_free(op)) ++free_ends[cell_(op)];
        }
        stash_of_cell_.assign(cell_.size(), no_stash);
        for (const auto& [op, start, end] : s.operations) {
            if (op.kind != operation_kind::forward || problem_->storage_options(op.stage) == 1) continue;
            const auto used = option_in_use(*problem_, op, offloaded[cell_(op)]);
            open_stash stash;
            stash.alternatives.push_back({static_cast<storage_index>(used)});
            if (free_ends[cell_(op)] == 2)
                for (const auto o : candidates[op.stage.position()])
                    if (o != used) stash.alternatives.push_back({o});
            add_transfer_options(stash, op, used, is_free);
            if (stash.alternatives.size() == 1) continue;
            stash_of_cell_[cell_(op)] = static_cast<std::uint32_t>(open_stashes_.size());
            open_stashes_.push_back(std::move(stash));
        }
    }
    /// Adds the options that differ only in transfers from the one in use, if one of these is free. Only if memory is
    /// limited may any stash be offloaded that isn't.
    template <class IsFree>
    void add_transfer_options(open_stash& stash, const operation& op, std::size_t used, const IsFree& is_free) const {
        const auto current = option(op.stage, used);
        const bool may_add = !problem_->memory_limit[problem_->rank_of(op.stage)].is_unlimited();
        std::optional<bool> any_free;
        for (std::size_t o = 0; o < problem_->storage_options(op.stage); ++o) {
            const auto other = option(op.stage, o);
            const auto is_other = [o](const alternative& each) { return each.option != o; };
            if (!std::all_of(stash.alternatives.begin(), stash.alternatives.end(), is_other)) continue;
            if (!differ_only_in_transfers(current, other) || (other.offloads() && !may_add)) continue;
            if (!any_free)
                any_free = is_free(offload_of(op.stage, op.microbatch)) || is_free(reload_of(op.stage, op.microbatch));
            if (*any_free) stash.alternatives.push_back({static_cast<storage_index>(o)});
        }
    }
    [[nodiscard]] std::uint32_t stash_of(const operation& op) const { return stash_of_cell_[cell_(op)]; }
    /// Whether the operation belongs to an open stash, and other options may not need it.
    [[nodiscard]] bool is_alternative(const operation& op) const {
        return stash_of(op) != no_stash && (is_transfer(op.kind) || op.kind == operation_kind::recompute);
    }
    void add_alternatives(const schedule& s) {
        std::vector<kind_starts> starts(open_stashes_.size());
        for (const auto& timed : s.operations)
            if (const auto which = stash_of(timed.op); which != no_stash)
                starts[which][static_cast<std::size_t>(timed.op.kind)] = time_.nearest(timed.start.value());
        for (std::uint32_t which = 0; which < open_stashes_.size(); ++which)
            add_alternatives(which, starts[which]);
    }
    void add_alternatives(std::uint32_t which, const kind_starts& starts) {
        auto& all = open_stashes_[which].alternatives;
        const auto gradient = items_[open_stashes_[which].gradient];
        const auto length = [&](storage_index o) { return length_of(with_option(*problem_, gradient.op, o)); };
        auto shortest = length(all.front().option);
        for (const auto& each : all)
            shortest = std::min(shortest, length(each.option));
        for (auto& each : all) {
            add_transfers(which, each, starts);
            add_recomputation(which, each, starts);
            add_extra(which, each, length(each.option) - shortest);
            const auto effect = memory_effect_of(*problem_, with_option(*problem_, gradient.op, each.option));
            each.held = size_of(option(gradient.op.stage, each.option).held);
            each.grown = size_of(effect.acquired_at_start);
            each.released = size_of(effect.released_at_end);
        }
        auto& last = items_[open_stashes_[which].gradient];
        last.start += last.length - shortest;
        last.length = shortest;
        const auto least = [&](ticks alternative::*amount) {
            auto result = all.front().*amount;
            for (const auto& each : all)
                result = std::min(result, each.*amount);
            return result;
        };
        items_[open_stashes_[which].forward].takes = least(&alternative::held);
        last.takes = least(&alternative::grown);
        last.gives = least(&alternative::released);
    }
    [[nodiscard]] storage_option option(stage s, std::size_t o) const { return problem_->storage_of(s, o); }
    /// An earlier alternative with the same optional item, as decided by `same(option)`; null if there is none.
    template <class Same>
    [[nodiscard]] const alternative* shared(std::uint32_t which, const alternative& each, const Same& same) const {
        const auto& stash = open_stashes_[which];
        const auto s = items_[stash.forward].op.stage;
        for (const auto* other = stash.alternatives.data(); other != &each; ++other)
            if (same(option(s, other->option))) return other;
        return nullptr;
    }
    /// Adds an item that other options may not need; it is in the schedule if it belongs to the option in use.
    node add_alternative(std::uint32_t which, const alternative& each, const operation& op, ticks start) {
        auto i = item_of(with_option(*problem_, op, each.option), start, true);
        i.optional = true;
        i.in_schedule = &each == open_stashes_[which].alternatives.data();
        return add(i);
    }
    void add_transfers(std::uint32_t which, alternative& each, const kind_starts& starts) {
        const auto& ends = open_stashes_[which];
        const auto forward = items_[ends.forward];
        const auto gradient_start = items_[ends.gradient].start;
        const auto stored = option(forward.op.stage, each.option);
        if (!stored.offloads()) return;
        const auto* other = shared(which, each, [&](const storage_option& o) {
            return o.transfer == stored.transfer && o.transfer_size == stored.transfer_size;
        });
        if (other) {
            each.offload = other->offload;
            each.reload = other->reload;
            return;
        }
        const bool in_use = &each == ends.alternatives.data();
        // A transfer that isn't in the schedule must not delay its gradient.
        const auto at = [&](operation_kind kind, ticks otherwise) {
            return in_use ? starts[static_cast<std::size_t>(kind)] : std::min(otherwise, gradient_start);
        };
        const auto ready = forward.start + forward.length;
        each.offload = add_alternative(which, each, sibling(forward.op, operation_kind::offload),
                                       at(operation_kind::offload, ready));
        each.reload = add_alternative(which, each, sibling(forward.op, operation_kind::reload),
                                      at(operation_kind::reload, ready + items_[each.offload].length));
        items_[each.offload].partner = each.reload;
        items_[each.reload].partner = each.offload;
    }
    void add_recomputation(std::uint32_t which, alternative& each, const kind_starts& starts) {
        const auto& ends = open_stashes_[which];
        const auto gradient = items_[ends.gradient];
        const auto stored = option(gradient.op.stage, each.option);
        if (!stored.recomputes()) return;
        const auto* other = shared(which, each, [&](const storage_option& o) {
            return o.recompute == stored.recompute && o.held == stored.held;
        });
        const bool in_use = &each == ends.alternatives.data();
        const auto start = in_use ? starts[static_cast<std::size_t>(operation_kind::recompute)] : gradient.start;
        each.recompute = other ? other->recompute
                               : add_alternative(which, each, sibling(gradient.op, operation_kind::recompute), start);
    }
    void add_extra(std::uint32_t which, alternative& each, ticks length) {
        if (length <= 0) return;
        const auto& ends = open_stashes_[which];
        const auto gradient = items_[ends.gradient];
        const alternative* const end = &each;
        const auto* other = std::find_if(ends.alternatives.data(), end, [&](const alternative& o) {
            return o.extra != no_node && items_[o.extra].length == length;
        });
        if (other != end) {
            each.extra = other->extra;
            return;
        }
        each.extra = add_alternative(which, each, gradient.op, gradient.start);
        auto& extra = items_[each.extra];
        extra.is_extra = true;
        extra.length = length;
        extra.takes = extra.gives = 0;
    }

    /// Topological order, earliest start first. All other orders follow this one, so that operations at one instant,
    /// such as transfers without duration or shorter than the grid, form no cycle.
    void sort_items() {
        std::vector<node> by_start(items_.size());
        std::iota(by_start.begin(), by_start.end(), node{0});
        std::stable_sort(by_start.begin(), by_start.end(), [&](node a, node b) {
            const auto end_of = [&](node n) {
                return items_[n].start + (items_[n].in_schedule ? items_[n].length : 0);
            };
            if (items_[a].start != items_[b].start) return items_[a].start < items_[b].start;
            return end_of(a) != end_of(b) ? end_of(a) < end_of(b) : items_[a].op.kind < items_[b].op.kind;
        });
        std::vector<node> position(items_.size());
        std::vector<std::size_t> missing(items_.size());
        std::priority_queue<node, std::vector<node>, std::greater<>> ready;
        for (node i = 0; i < by_start.size(); ++i) {
            position[by_start[i]] = i;
            missing[by_start[i]] = in_[by_start[i]].size();
            if (missing[by_start[i]] == 0) ready.push(i);
        }
        place_.resize(items_.size());
        while (!ready.empty()) {
            const auto n = by_start[ready.top()];
            ready.pop();
            place_[n] = sorted_.size();
            sorted_.push_back(n);
            for (const auto& l : out_[n])
                if (--missing[l.to] == 0) ready.push(position[l.to]);
        }
    }
    void fill_lanes() {
        lanes_.resize(5 * problem_->graph.ranks());
        by_rank_.resize(problem_->graph.ranks());
        for (const auto n : sorted_) {
            by_rank_[items_[n].rank].push_back(n);
            for (const auto lane : lanes_of(n))
                lanes_[lane].push_back(n);
        }
    }

    void connect(node from, node to, ticks gap) {
        if (from == no_node || to == no_node) return;
        out_[from].push_back({to, gap});
        in_[to].push_back({from, gap});
    }
    void add_precedence(node from, node to, ticks hop = 0) {
        if (from != no_node) connect(from, to, items_[from].length + hop);
    }
    [[nodiscard]] node gradient(stage s, microbatch m) const {
        const auto full = find(backward(s, m));
        return full != no_node ? full : find(backward_input(s, m));
    }
    void add_inputs_of(node n, bool is_offloaded) {
        if (n == no_node) return;
        const bool is_open = items_[n].stash != no_stash; // the items that bring its stash back are optional
        const auto way = is_open ? stash_way{} : stash_way_of(*problem_, items_[n].op, is_offloaded);
        for_each_dependency(*problem_, items_[n].op, way, [&](const operation& before, duration delay) {
            const auto from = is_gradient(before.kind) ? gradient(before.stage, before.microbatch) : find(before);
            add_precedence(from, n, time_.nearest(delay.value()));
        });
    }
    void add_inputs(stage s) {
        for (const microbatch m : problem_->graph.all_microbatches()) {
            add_inputs_of(gradient(s, m), find(reload_of(s, m)) != no_node);
            for (const auto kind : {operation_kind::forward, operation_kind::backward_weight, operation_kind::offload,
                                    operation_kind::reload, operation_kind::recompute})
                add_inputs_of(find({s, kind, m}), false);
        }
    }
    void connect_alternatives(const open_stash& stash) {
        for (const auto n : stash.items(&alternative::offload)) {
            add_precedence(stash.forward, n);
            add_precedence(n, items_[n].partner);
            add_precedence(items_[n].partner, stash.gradient);
        }
        for (const auto n : stash.items(&alternative::recompute)) {
            add_precedence(stash.forward, n);
            add_precedence(n, stash.gradient);
        }
        for (const auto n : stash.items(&alternative::extra)) {
            add_inputs_of(n, false);
            add_precedence(n, stash.gradient);
        }
    }
    void add_lane_order() {
        for (const auto& lane : lanes_) {
            node before = no_node;
            for (const auto n : lane) {
                if (items_[n].free) continue;
                add_precedence(before, n);
                before = n;
            }
        }
    }
    /// Transfers and computations of one rank keep the order of their acquisitions, and each release stays before the
    /// acquisitions that it precedes.
    void add_memory_order(std::size_t r) {
        std::vector<node> own;
        for (const auto n : by_rank_[r])
            if (!items_[n].free) own.push_back(n);
        if (!problem_->memory_limit[rank{r}].is_unlimited()) keep_memory(own, &item::takes, &item::gives);
        if (!problem_->host_memory_limit[rank{r}].is_unlimited())
            keep_memory(own, &item::host_takes, &item::host_gives);
    }
    void keep_memory(const std::vector<node>& own, ticks item::*takes, ticks item::*gives) {
        node taker = no_node;
        for (const auto n : own) {
            if (items_[n].*takes <= 0) continue;
            // Lanes keep their order already.
            if (taker != no_node && is_transfer(items_[n].op.kind) != is_transfer(items_[taker].op.kind))
                connect(taker, n, 0);
            taker = n;
        }
        for (const bool compute : {false, true})
            keep_releases(own, takes, gives, compute);
    }
    /// Keeps releases of transfers, or of computations, before the acquisitions that follow them.
    void keep_releases(const std::vector<node>& own, ticks item::*takes, ticks item::*gives, bool compute) {
        std::vector<node> givers;
        for (const auto n : own)
            if (items_[n].*gives > 0 && is_transfer(items_[n].op.kind) != compute) givers.push_back(n);
        std::stable_sort(givers.begin(), givers.end(), [&](node a, node b) {
            return items_[a].start + items_[a].length < items_[b].start + items_[b].length;
        });
        std::size_t next = 0;
        for (const auto n : own) {
            if (items_[n].*takes <= 0) continue;
            const auto begin = next;
            while (next < givers.size() && ended_before(givers[next], n) && place_[givers[next]] < place_[n])
                ++next;
            if (next > begin) add_precedence(givers[next - 1], n);
        }
    }
    void sweep() {
        for (const auto n : sorted_)
            for (const auto& l : out_[n])
                if (passes_on(n, l.to)) earliest_[l.to] = std::max(earliest_[l.to], earliest_[n] + l.gap);
        for (std::size_t i = sorted_.size(); i-- > 0;)
            for (const auto& l : out_[sorted_[i]])
                if (passes_on(l.to, sorted_[i]))
                    latest_[sorted_[i]] = std::min(latest_[sorted_[i]], latest_[l.to] - l.gap);
    }
    /// An optional item only bounds its own partner.
    [[nodiscard]] bool passes_on(node from, node to) const {
        return !items_[from].optional || items_[from].partner == to;
    }
    bool narrow_spans(ticks most) {
        bool changed = false;
        for (std::size_t r = 0; r < by_rank_.size(); ++r) {
            ticks begin_latest = std::numeric_limits<ticks>::max();
            ticks begin_earliest = 0;
            for (const auto n : lanes_[r]) {
                if (items_[n].optional) continue; // an item that may be missing bounds nothing
                begin_latest = std::min(begin_latest, latest_[n]);
                begin_earliest = std::max(begin_earliest, earliest_[n] + items_[n].length - most);
            }
            for (const auto n : lanes_[r]) {
                const auto last = begin_latest + most - items_[n].length;
                changed = changed || last < latest_[n] || begin_earliest > earliest_[n];
                latest_[n] = std::min(latest_[n], last);
                earliest_[n] = std::max(earliest_[n], begin_earliest);
            }
        }
        return changed;
    }

    const problem* problem_;
    grid time_;
    grid memory_;
    operation_numbering<any_graph> number_;
    cell_numbering cell_;
    std::vector<node> node_of_;
    /// The open stash per cell.
    std::vector<std::uint32_t> stash_of_cell_;
    std::vector<open_stash> open_stashes_;
    ticks slack_ = 0;
    std::vector<item> items_;
    /// Several short lists per item; freeing them one by one would take as long as making them.
    std::pmr::monotonic_buffer_resource links_{};
    std::pmr::vector<std::pmr::vector<link>> out_{&links_};
    std::pmr::vector<std::pmr::vector<link>> in_{&links_};
    std::vector<std::vector<node>> lanes_;
    std::vector<std::vector<node>> by_rank_;
    std::vector<node> sorted_;
    std::vector<std::size_t> place_;
    std::vector<ticks> earliest_;
    std::vector<ticks> latest_;
};

} // namespace optpipe::cp
