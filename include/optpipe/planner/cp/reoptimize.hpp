#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/open_stash.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/partial_order.hpp"
#include "optpipe/planner/cp/pipeline_memory.hpp"
#include "optpipe/planner/cp/solver.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/validate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace optpipe::cp {

struct reoptimize_options {
    /// The conflict limit.
    std::size_t conflicts = 1000;
    /// Skips the search if more operations would be involved: the model grows with their square.
    std::size_t most_tasks = 1000;
    std::uint64_t seed = 1;
    /// Polled; true ends the search.
    std::function<bool()> stop{};
    /// Per stage, the storage options that its stashes may change to.
    storage_candidates candidates{};
};

struct reoptimized {
    /// A valid schedule with an objective of at most the target.
    std::optional<schedule> better{};
    /// Whether the search was complete: it found such a schedule, or proved that no such schedule exists.
    bool settled = false;
    std::size_t conflicts = 0;
    /// The number of tasks of the subproblem.
    std::size_t tasks = 0;
};

namespace detail {

/// The subproblem: free operations, those that they may overlap, and longest paths between them through all others.
class partial_model {
public:
    using node = partial_order::node;

    /// `stop()` is polled; an interrupted model is incomplete and must not be used (`is_stopped`).
    partial_model(const partial_order& fixed, std::size_t most_tasks, std::function<bool()> stop)
        : fixed_{&fixed}, stop_{std::move(stop)}, task_(fixed.items().size(), no_task) {
        choose_tasks(most_tasks);
        too_large_ = node_.size() > most_tasks;
        if (too_large_ || is_stopped()) return;
        contract();
        if (is_stopped()) return;
        for (node n = 0; n < fixed.items().size(); ++n)
            if (is_transfer_pair(n)) add_optional_inputs(n);
        for (const auto& stash : fixed.open_stashes())
            add_stash_inputs(stash);
        order_literals known{model_};
        add_machines(known);
        for (std::size_t r = 0; r < fixed.by_rank().size() && !is_stopped(); ++r)
            add_knapsacks(rank{r}, known);
        if (fixed.source().objective == objective_kind::span) add_spans();
    }

    [[nodiscard]] const model& tasks() const { return model_; }
    [[nodiscard]] bool is_too_large() const { return too_large_; }
    /// Stays true once it is true.
    [[nodiscard]] bool is_stopped() {
        stopped_ = stopped_ || (stop_ && stop_());
        return stopped_;
    }

    template <class Solver> void limit(Solver& solver, ticks most) const {
        for (node n = 0; n < task_.size(); ++n)
            if (task_[n] != no_task) {
                solver.at_least(task_[n], fixed_->earliest(n));
                solver.at_most(task_[n], fixed_->latest(n));
            }
        for (const auto d : span_ends_)
            solver.tighten(d, model_.differences[d].gap + most_time - most);
    }
    /// Hints the values of the current schedule.
    template <class Solver> void hint(Solver& solver) const {
        for (std::uint32_t v = 1; v < model_.variables(); ++v) {
            const auto& c = model_.choices[v];
            if (c.first == c.second) continue;
            const auto a = node_[c.first];
            const auto b = node_[c.second];
            if (a == partial_order::no_node || b == partial_order::no_node) continue;
            const bool holds = item(a).in_schedule && item(b).in_schedule && item(b).start >= item(a).start + c.gap;
            solver.hint({v, !holds});
        }
        for (node n = 0; n < task_.size(); ++n)
            if (item(n).optional) solver.hint(item(n).in_schedule ? presence(n) : !presence(n));
        for (const auto& options : chosen_)
            for (const auto& l : options)
                solver.hint(l == options.front() ? l : !l);
    }
    /// The complete schedule, with the starts found by the solver.
    template <class Trail> [[nodiscard]] schedule complete(const Trail& found) const {
        const auto& items = fixed_->items();
        std::vector<ticks> start(items.size());
        for (const auto n : fixed_->sorted()) {
            start[n] = std::max(start[n], fixed_->earliest(n));
            if (task_[n] != no_task) start[n] = found.earliest(task_[n]);
            if (is_missing(found, n)) continue;
            for (const auto& l : fixed_->out(n))
                start[l.to] = std::max(start[l.to], start[n] + l.gap);
        }
        schedule result{fixed_->source().graph, {}};
        for (node n = 0; n < items.size(); ++n) {
            if (is_missing(found, n) || items[n].is_extra) continue;
            auto op = items[n].op;
            auto first = n;
            if (items[n].stash != partial_order::no_stash) {
                const auto& used = alternative_in(found, items[n].stash);
                op.storage = used.option;
                if (is_gradient(op.kind)) first = fixed_->open_stashes()[items[n].stash].first_of(used);
            }
            const duration begin{fixed_->time().value(start[first])};
            result.operations.push_back({op, begin, begin + duration_of(fixed_->source(), op)});
        }
        return with_plain_storage(fixed_->source(), std::move(result));
    }

private:
    static constexpr ticks most_time = ticks{1} << 55;

    [[nodiscard]] const partial_order::item& item(node n) const { return fixed_->items()[n]; }
    [[nodiscard]] literal presence(node n) const { return model_.tasks[task_[n]].presence; }
    template <class Trail> bool is_missing(const Trail& found, node n) const {
        return item(n).optional && !found.is_true(presence(n));
    }

    /// The alternative of an open stash in a solution.
    template <class Trail>
    [[nodiscard]] const open_stash::alternative& alternative_in(const Trail& found, std::uint32_t stash) const {
        const auto& options = chosen_[stash];
        const auto used = std::find_if(options.begin(), options.end(), [&](literal l) { return found.is_true(l); });
        return fixed_->open_stashes()[stash].alternatives[static_cast<std::size_t>(used - options.begin())];
    }

    // The operations of the subproblem.

    [[nodiscard]] bool surely_ends_before(node a, node b) const {
        return fixed_->latest(a) + item(a).length <= fixed_->earliest(b);
    }
    /// Whether their windows leave their order open.
    [[nodiscard]] bool may_overlap(node a, node b) const {
        return !surely_ends_before(a, b) && !surely_ends_before(b, a);
    }

    void take(node n) {
        if (task_[n] != no_task) return;
        auto here = always;
        if (item(n).optional) {
            const auto partner = item(n).partner;
            here = task_[partner] != no_task ? presence(partner) : model_.add_variable();
        }
        take(n, here);
    }
    void take(node n, literal here) {
        task_[n] = model_.add_task(item(n).length, here);
        node_.push_back(n);
    }
    /// Chooses the operations of the subproblem; ends early if there are more than `most`.
    void choose_tasks(std::size_t most) {
        for (const auto& stash : fixed_->open_stashes())
            take_alternatives(stash);
        for (node n = 0; n < task_.size(); ++n)
            if (item(n).free) take(n);
        const auto free_count = node_.size();
        for (std::size_t i = 0; i < free_count; ++i) {
            if (node_.size() > most || is_stopped()) return;
            const auto n = node_[i];
            for (const auto lane : fixed_->lanes_of(n))
                take_overlapping(n, fixed_->lanes()[lane]);
            if (is_limited(rank{item(n).rank})) take_overlapping(n, fixed_->by_rank()[item(n).rank]);
            if (is_transfer_pair(n)) take_transfer_pair(n);
            if (item(n).stash != partial_order::no_stash && item(n).optional) take_acquisitions(n);
        }
        if (fixed_->source().objective != objective_kind::span) return;
        for (std::size_t r = 0; r < fixed_->by_rank().size(); ++r) {
            const auto& lane = fixed_->lanes()[r];
            const auto is_fixed = [&](node n) { return !item(n).free; };
            const auto first = std::find_if(lane.begin(), lane.end(), is_fixed);
            const auto last = std::find_if(lane.rbegin(), lane.rend(), is_fixed);
            if (first != lane.end()) take(*first);
            if (last != lane.rend()) take(*last);
        }
    }
    /// Whether `n` is the reload of an optional transfer pair, in problems without lists of storage options.
    [[nodiscard]] bool is_transfer_pair(node n) const {
        return item(n).optional && item(n).op.kind == operation_kind::reload &&
               item(n).stash == partial_order::no_stash;
    }
    /// Whether `n` acquires device memory under any option of its stash.
    [[nodiscard]] bool acquires(node n) const {
        if (item(n).takes > 0) return true;
        if (item(n).stash == partial_order::no_stash) return false;
        const auto& stash = fixed_->open_stashes()[item(n).stash];
        return std::any_of(stash.alternatives.begin(), stash.alternatives.end(), [&](const auto& each) {
            return (n == stash.forward && each.held > 0) || (n == stash.first_of(each) && each.grown > 0);
        });
    }
    [[nodiscard]] bool acquires_any(node n) const { return item(n).host_takes > 0 || acquires(n); }
    [[nodiscard]] bool is_limited(rank r) const {
        const auto& p = fixed_->source();
        return !p.memory_limit[r].is_unlimited() || !p.host_memory_limit[r].is_unlimited();
    }
    /// Takes the acquisitions at times when the stash may be offloaded.
    void take_transfer_pair(node reload) {
        take(gradient_of(reload));
        if (!is_limited(rank{item(reload).rank})) return;
        for (const auto other : fixed_->by_rank()[item(reload).rank])
            if (acquires_any(other) && !surely_ends_before(other, item(reload).partner) &&
                !surely_ends_before(reload, other))
                take(other);
    }
    /// Adds one presence per option, and the tasks that the option needs.
    void take_alternatives(const open_stash& stash) {
        auto& options = chosen_.emplace_back();
        for (std::size_t i = 0; i < stash.alternatives.size(); ++i)
            options.push_back(model_.add_variable());
        model_.add_exactly_one(options);
        for (const auto which : open_stash::all_items)
            for (const auto n : stash.items(which)) {
                std::vector<literal> some;
                for (std::size_t i = 0; i < options.size(); ++i)
                    if (stash.alternatives[i].*which == n) some.push_back(options[i]);
                const bool in_all = some.size() == options.size();
                take(n, in_all ? always : model_.add_any_of(std::move(some)));
            }
    }
    /// Takes the acquisitions that may follow an optional item, but not its gradient.
    void take_acquisitions(node optional) {
        const auto gradient = fixed_->open_stashes()[item(optional).stash].gradient;
        for (const auto other : fixed_->by_rank()[item(optional).rank])
            if (acquires_any(other) && !surely_ends_before(other, optional) && !surely_ends_before(gradient, other))
                take(other);
    }
    void take_overlapping(node n, const std::vector<node>& others) {
        for (const auto other : others)
            if (other != n && may_overlap(n, other)) take(other);
    }
    [[nodiscard]] node gradient_of(node n) const {
        const auto& op = item(n).op;
        const auto full = fixed_->find(backward(op.stage, op.microbatch));
        return full != partial_order::no_node ? full : fixed_->find(backward_input(op.stage, op.microbatch));
    }
    void add_optional_inputs(node reload) {
        model_.add_difference(task_[reload], task_[gradient_of(reload)], item(reload).length);
    }

    /// Precedences between optional items of one stash; both are present only if its option needs both.
    void add_stash_inputs(const open_stash& stash) {
        std::set<std::pair<node, node>> pairs;
        for (const auto& each : stash.alternatives)
            for (const auto& [from, to] : {std::pair{each.reload, each.recompute}, std::pair{each.reload, each.extra},
                                           std::pair{each.recompute, each.extra}})
                if (from != partial_order::no_node && to != partial_order::no_node) pairs.emplace(from, to);
        for (const auto& [from, to] : pairs)
            model_.add_difference(task_[from], task_[to], item(from).length);
        for (const auto extra : stash.items(&open_stash::alternative::extra))
            model_.add_difference(task_[stash.gradient], task_[extra], -item(extra).length, presence(extra));
    }

    /// Adds the longest path from each task to the next ones, through operations that aren't tasks.
    void contract() {
        std::size_t last = 0;
        for (const auto n : node_)
            last = std::max(last, fixed_->place()[n]);
        std::vector<ticks> way(task_.size(), longest_paths::none);
        std::vector<std::size_t> reached;
        for (const auto from : node_) {
            if (is_stopped()) return;
            reached.clear();
            spread(from, 0, way, reached, last);
            for (std::size_t i = 0; i < reached.size();) {
                std::pop_heap(reached.begin(), reached.end(), std::greater<>{});
                const auto n = fixed_->sorted()[reached.back()];
                reached.pop_back();
                if (task_[n] == no_task)
                    spread(n, way[n], way, reached, last);
                else
                    model_.add_difference(task_[from], task_[n], way[n]);
                way[n] = longest_paths::none;
            }
        }
    }
    void spread(node n, ticks so_far, std::vector<ticks>& way, std::vector<std::size_t>& reached, std::size_t last) {
        for (const auto& l : fixed_->out(n)) {
            if (fixed_->place()[l.to] > last) continue;
            if (way[l.to] == longest_paths::none) {
                reached.push_back(fixed_->place()[l.to]);
                std::push_heap(reached.begin(), reached.end(), std::greater<>{});
            }
            way[l.to] = std::max(way[l.to], so_far + l.gap);
        }
    }

    void add_machines(order_literals& known) {
        for (const auto& lane : fixed_->lanes()) {
            std::vector<task_index> tasks;
            for (const auto n : lane)
                if (task_[n] != no_task) tasks.push_back(task_[n]);
            known.add_machine(std::move(tasks));
        }
    }

    // Memory: amounts that windows or the order of fixed operations decide are constants.

    void add_knapsacks(rank r, order_literals& known) {
        const auto& p = fixed_->source();
        const auto& own = fixed_->by_rank()[r.position()];
        if (std::none_of(own.begin(), own.end(), [&](node n) { return item(n).free; })) return;
        const auto slack = tolerance{}.at(p.memory_scale());
        using amount = ticks partial_order::item::*;
        const auto add = [&](memory_size limit, amount takes, amount gives) {
            if (limit.is_unlimited()) return;
            const auto most = fixed_->memory().below((limit + slack).value());
            const bool on_host = takes == &partial_order::item::host_takes;
            for (const auto at : own)
                if (on_host ? item(at).*takes > 0 : acquires(at)) add_knapsack(at, own, most, takes, gives, known);
        };
        add(p.memory_limit[r], &partial_order::item::takes, &partial_order::item::gives);
        add(p.host_memory_limit[r], &partial_order::item::host_takes, &partial_order::item::host_gives);
    }
    void add_knapsack(node at, const std::vector<node>& own, ticks most, ticks partial_order::item::*takes,
                      ticks partial_order::item::*gives, order_literals& known) {
        knapsack_builder use{model_, known, task_[at]};
        use.capacity = most - item(at).*takes;
        const bool on_device = takes == &partial_order::item::takes;
        for (const auto n : own) {
            if (on_device && item(n).optional && item(n).stash != partial_order::no_stash) continue;
            if (item(n).*takes > 0 && n != at) {
                if (is_open(n, at))
                    use.taken(task_[n], item(n).*takes);
                else if (taken_before(n, at))
                    use.capacity -= item(n).*takes;
            }
            if (item(n).*gives > 0 && n != at) {
                if (is_open(n, at))
                    use.given(task_[n], item(n).*gives);
                else if (given_before(n, at))
                    use.capacity += item(n).*gives;
            }
        }
        if (on_device)
            for (std::size_t i = 0; i < chosen_.size(); ++i) {
                const auto& stash = fixed_->open_stashes()[i];
                if (item(stash.forward).rank == item(at).rank) add_alternatives(use, stash, chosen_[i], at, known);
            }
        use.finish(task_[at] == no_task ? always : model_.tasks[task_[at]].presence);
    }
    /// Adds the memory that the option of an open stash acquires and releases beyond the amounts common to all its
    /// options.
    void add_alternatives(knapsack_builder& use, const open_stash& stash, const std::vector<literal>& chosen, node at,
                          order_literals& known) {
        if (given_literal(stash.gradient, at, known) == always) {
            use.capacity -= kept_after(stash);
            return;
        }
        for (const auto which : open_stash::all_items)
            for (const auto n : stash.items(which)) {
                if (n != at) use.used_if(taken_literal(n, at, known), item(n).takes);
                if (item(n).gives > 0) give(use, given_literal(n, at, known), item(n).gives);
            }
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            const auto& each = stash.alternatives[i];
            const auto taken = [&](node n) { return model_.add_both(chosen[i], taken_literal(n, at, known)); };
            if (each.held > item(stash.forward).takes)
                use.used_if(taken(stash.forward), each.held - item(stash.forward).takes);
            if (each.grown > item(stash.gradient).takes)
                use.used_if(taken(stash.first_of(each)), each.grown - item(stash.gradient).takes);
            if (each.released > item(stash.gradient).gives)
                give(use, model_.add_both(chosen[i], given_literal(stash.gradient, at, known)),
                     each.released - item(stash.gradient).gives);
        }
    }
    static void give(knapsack_builder& use, literal given, ticks amount) {
        use.capacity += amount;
        use.used_if(!given, amount);
    }
    /// Memory held after the gradient, beyond the amounts that forward and gradient acquire and release under all
    /// options. It is the same for each option, up to rounding.
    [[nodiscard]] ticks kept_after(const open_stash& stash) const {
        ticks least = std::numeric_limits<ticks>::max();
        for (const auto& each : stash.alternatives) {
            const auto restored = each.recompute == partial_order::no_node ? 0 : item(each.recompute).takes;
            least = std::min(least, each.held + restored + each.grown - each.released);
        }
        return least - (item(stash.forward).takes + item(stash.gradient).takes - item(stash.gradient).gives);
    }
    /// Whether `n` starts no later than `at`.
    [[nodiscard]] literal taken_literal(node n, node at, order_literals& known) const {
        if (n == at) return always;
        if (is_open(n, at)) return known.starts_before(task_[n], task_[at]);
        return taken_before(n, at) ? always : never;
    }
    /// Whether `n` has ended when `at` starts.
    [[nodiscard]] literal given_literal(node n, node at, order_literals& known) const {
        if (n == at) return never;
        if (is_open(n, at)) return known.ends_before(task_[n], task_[at]);
        return given_before(n, at) ? always : never;
    }
    /// An optional transfer is always undecided unless it comes later. If two transfers without duration are at one
    /// instant, either may come later.
    [[nodiscard]] bool is_open(node n, node at) const {
        if (!item(n).free && !item(at).free) return false;
        if (item(n).optional) return task_[at] != no_task && (!surely_ends_before(at, n) || surely_ends_before(n, at));
        return may_overlap(n, at);
    }
    [[nodiscard]] bool taken_before(node n, node at) const {
        if (item(n).optional) return false;
        if (item(n).free || item(at).free) return surely_ends_before(n, at);
        return item(n).start <= item(at).start;
    }
    [[nodiscard]] bool given_before(node n, node at) const {
        if (item(n).optional) return false;
        if (item(n).free || item(at).free) return surely_ends_before(n, at);
        return fixed_->ended_before(n, at);
    }

    void add_spans() {
        for (std::size_t r = 0; r < fixed_->by_rank().size(); ++r) {
            const auto begin = model_.add_task(0);
            node_.push_back(partial_order::no_node);
            add_span(begin, r);
        }
    }
    void add_span(task_index begin, std::size_t r) {
        for (const auto n : fixed_->lanes()[r]) {
            if (task_[n] == no_task) continue;
            model_.add_difference(begin, task_[n], 0);
            span_ends_.push_back(model_.differences.size());
            model_.add_difference(task_[n], begin, item(n).length - most_time);
        }
    }

    const partial_order* fixed_;
    std::function<bool()> stop_;
    model model_;
    std::vector<task_index> task_;
    std::vector<node> node_;
    /// Per open stash and alternative, whether that alternative is in use.
    std::vector<std::vector<literal>> chosen_;
    std::vector<std::size_t> span_ends_;
    bool too_large_ = false;
    bool stopped_ = false;
};

} // namespace detail

/// Reoptimizes a valid schedule: looks for one with an objective of at most `target` that differs from `current` only
/// in free operations. All others keep their order on lanes and in memory, and their offloads; their times may move.
/// Free operations may swap places with others that they may overlap.
///
/// `is_free(operation)` is called for every operation of the schedule, and for both transfers of every stash that can
/// be offloaded. An offload with a free transfer may be dropped, or added if memory is limited. If its stage lists
/// storage options, a stash keeps its own, unless there are candidates and both its forward and its gradient are free.
///
/// The effort depends on the free operations and those that they may overlap at the target. It doesn't depend on the
/// size of the problem, except for one pass through it. A looser target means more overlaps.
template <class IsFree>
[[nodiscard]] reoptimized reoptimize(const problem& p, const schedule& current, IsFree is_free, duration target,
                                     const reoptimize_options& options = {}) {
    reoptimized result;
    const auto stopped = [&] { return options.stop && options.stop(); };
    partial_order fixed{p, current, is_free, stopped, options.candidates};
    if (stopped()) return result;
    const auto rounding = fixed.time().is_exact() ? 0 : static_cast<ticks>(fixed.items().size());
    const auto most = fixed.time().below(target.value()) + rounding;
    if (!fixed.set_windows(most)) {
        result.settled = true;
        return result;
    }
    detail::partial_model partial{fixed, options.most_tasks, options.stop};
    result.tasks = partial.tasks().tasks.size();
    if (partial.is_too_large() || partial.is_stopped()) return result;
    solver<> search{partial.tasks(), options.seed};
    partial.limit(search, most);
    partial.hint(search);
    const auto how = search.search(options.conflicts, stopped);
    result.conflicts = search.conflicts();
    result.settled = how != search_status::stopped;
    if (how != search_status::solved) return result;
    auto found = partial.complete(search.now());
    if (is_valid(p, found)) result.better = std::move(found);
    return result;
}

} // namespace optpipe::cp
