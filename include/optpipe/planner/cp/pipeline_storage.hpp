#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/microbatch_order.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"
#include "optpipe/schedule/rules/needed_options.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// The storage options of one stage as alternatives. Exactly one option is chosen for each stash. Each option has
/// optional tasks.
///
/// Forwards, gradients and weight gradients can be sorted: the k-th of each kind waits for another stage's k-th
/// operation. Gradients of a stage that are sorted by their starts are also sorted by their ends, with any storage
/// options. Transfers and recomputations can't always be sorted, because a stash belongs to one forward and one
/// gradient. In FIFO order (`forbidden`), the k-th gradient uses the stash of the k-th forward, and all tasks are
/// sorted. In the exact form (`allowed`) of plain problems, the model decides which forward's stash each gradient uses.
/// For each forward, the model decides which forward of the next stage runs the same microbatch. For each gradient, the
/// model decides which gradient of the previous stage runs the same microbatch.
///
/// The assignments of consecutive stages must be consistent. The k-th operation of a stage may share its microbatch
/// with an operation of the next stage with an index below k. The operation of the next stage must wait for the k-th
/// operation. If two stashes of one option are used in FIFO order, their transfers and recomputations can be sorted.
///
/// In `pooled`, transfers of a stage with several options belong to no stash (see `pipeline_model`).
///
/// In problems that aren't plain, all tasks with index k belong to microbatch k. Only tasks of interchangeable
/// microbatches are sorted (`microbatch_order`).
class stage_storage {
public:
    stage_storage(const problem& p, stage s, overtaking form, const microbatch_order& order, const grid& time,
                  stage_tasks& own, model& m)
        : problem_{&p}, stage_{s}, form_{form}, order_{&order}, time_{&time}, own_{&own}, model_{&m} {}

    /// Adds the tasks of the storage options. Call `add_tasks` after the forwards, gradients and weight gradients
    /// exist.
    void add_tasks(const needed_options& needed) {
        auto& options = own_->storage.options;
        options.assign(needed.of(stage_).begin(), needed.of(stage_).end());
        std::stable_partition(options.begin(), options.end(), [&](std::size_t o) { return keeps(o); });
        if (is_pooled())
            add_pairs();
        else
            for (std::size_t k = 0; k < count(); ++k)
                add_stash(k);
        if (order_->has_permutations()) own_->storage.uses = add_permutation();
        add_gradients();
        const bool may_grow = std::any_of(used().begin(), used().end(), [&](auto o) { return grows(o); });
        if (!own_->weight.empty() && may_grow && needed.is_limited(problem_->rank_of(stage_))) add_full_backwards();
    }
    /// Adds precedences within the stage. `pipeline_model` adds the precedences between stages.
    void add_inputs() {
        const auto& all = own_->storage;
        for (const auto& pairs : all.pairs)
            add_pair_inputs(pairs);
        for (std::size_t j = 0; j < all.stashes.size(); ++j)
            for (const auto o : used())
                add_stash_inputs(j, all.stashes[j][o]);
        for (std::size_t k = 0; k < count(); ++k)
            for (const auto extra : all.extras_of(k)) {
                add_precedence(extra, own_->gradient[k]);
                model_->add_difference(own_->gradient[k], extra, -model_->tasks[extra].length,
                                       model_->tasks[extra].presence);
            }
        for (std::size_t j = 0; j < all.stashes.size(); ++j)
            for (std::size_t k = 0; k < own_->gradient.size(); ++k)
                if (const auto guard = use(k, j); guard != never) add_return(j, k, guard);
        if (all.stashes.empty() || order_->has_permutations() || !order_->is_sorted()) return;
        for (const auto& list : order_->lists())
            for (std::size_t i = 0; i < list.size(); ++i)
                for (const auto o : used())
                    add_order(list, i, o);
    }
    /// Adds the orders of the tasks. Call `add_orders` after the machines exist.
    void add_orders(order_literals& known) {
        glue_extras(known);
        sort_weights(known);
        const auto fifo = fifo_literals();
        for (std::size_t j = 0; j < fifo.size(); ++j)
            for (std::size_t later = j + 1; later < count(); ++later)
                for (const auto o : used())
                    if (fifo[j][later] != never) keep_order(j, later, o, fifo[j][later], known);
        add_passes(known);
    }
    /// Assigns the microbatches of this stage to the microbatches of the previous stage. Call `add_links` after the
    /// machines exist, and only in models with permutations.
    void add_links(const stage_tasks& before, order_literals& known) {
        const auto forwards = add_permutation();
        const auto gradients = add_permutation();
        link_forwards(forwards, before, known);
        link_gradients(gradients, before, known);
        for (std::size_t k = 0; k < count(); ++k)
            for (std::size_t i = 0; i < count(); ++i) {
                // Whether gradient k of this stage and forward i of the previous stage have the same microbatch.
                const auto same = model_->add_variable();
                for (std::size_t j = 0; j < count(); ++j)
                    model_->add_clause({!forwards[i][j], !own_->storage.uses[k][j], same});
                for (std::size_t l = 0; l < count(); ++l)
                    model_->add_clause({!same, !gradients[k][l], before.storage.uses[l][i]});
            }
        own_->storage.next_forward = forwards;
        own_->storage.next_gradient = gradients;
    }

private:
    [[nodiscard]] std::size_t count() const { return own_->forward.size(); }
    /// Whether transfers belong to no stash.
    [[nodiscard]] bool is_pooled() const { return form_ == overtaking::pooled && used().size() > 1; }
    [[nodiscard]] storage_option option(std::size_t o) const { return problem_->storage_of(stage_, o); }
    [[nodiscard]] ticks length(duration d) const { return time_->nearest(d.value()); }
    [[nodiscard]] const cost_factors& factors(std::size_t k) const {
        return problem_->microbatches.factors(stage_, microbatch{k});
    }
    /// Whether the stash grows when its gradient starts. If the stash grows, a full backward may need less memory.
    [[nodiscard]] bool grows(std::size_t o) const {
        const auto& c = problem_->costs[stage_];
        return option(o).restored(c) < c.weight_stash;
    }
    /// Whether the stash stays on the device as it is.
    [[nodiscard]] bool keeps(std::size_t o) const {
        return !option(o).offloads() && option(o).extra_work() == duration{};
    }
    void add_precedence(task_index from, task_index to, literal guard = always) {
        model_->add_difference(from, to, model_->tasks[from].length, guard);
    }

    // Options.

    [[nodiscard]] const std::vector<std::size_t>& used() const { return own_->storage.options; }
    /// One literal per option: whether the option is chosen. Exactly one option is chosen. Options that aren't used
    /// have the literal `never`.
    [[nodiscard]] std::vector<literal> add_alternatives() {
        std::vector<literal> chosen(problem_->storage_options(stage_), never);
        const auto some = model_->add_alternatives(used().size());
        for (std::size_t i = 0; i < some.size(); ++i)
            chosen[used()[i]] = some[i];
        return chosen;
    }
    /// The options, grouped by the value of `properties(option)`. Options whose properties are all zero are left out.
    template <class Properties> [[nodiscard]] auto grouped(Properties properties) const {
        using value = decltype(properties(std::size_t{0}));
        std::map<value, std::vector<std::size_t>> groups;
        for (const auto o : used())
            if (const auto v = properties(o); v != value{}) groups[v].push_back(o);
        return groups;
    }
    /// Calls `add(value, options, presence)` for each distinct nonzero value of `properties(option)`. `options` are the
    /// options with this value. `presence` tells whether one of `options` is chosen.
    template <class Properties, class Add>
    void add_shared(const std::vector<literal>& chosen, Properties properties, Add add) {
        for (const auto& [v, options] : grouped(properties)) {
            std::vector<literal> some;
            for (const auto o : options)
                some.push_back(chosen[o]);
            add(v, options, some.size() == used().size() ? always : model_->add_any_of(std::move(some)));
        }
    }
    /// Properties of an option's transfers, all zero if the option has no transfers. Options with equal properties
    /// share their transfers.
    using transfers = std::array<double, 5>;
    [[nodiscard]] transfers transfers_of(std::size_t o) const {
        const auto each = option(o);
        if (!each.offloads()) return {};
        return {1.0, each.transfer->offload.value(), each.transfer->reload.value(), each.held.value(),
                each.transfer_size.value()};
    }
    std::pair<task_index, task_index> add_transfers(const transfers& v, std::size_t k, literal presence) {
        auto& all = own_->storage;
        const auto factor = factors(k).memory;
        all.offload.push_back(model_->add_task(length(duration{factor * v[1]}), presence));
        all.reload.push_back(model_->add_task(length(duration{factor * v[2]}), presence));
        return {all.offload.back(), all.reload.back()};
    }
    void add_pairs() {
        for (const auto& [v, options] : grouped([&](std::size_t o) { return transfers_of(o); })) {
            auto& pairs = own_->storage.pairs.emplace_back();
            pairs.options = options;
            literal before = always;
            for (std::size_t k = 0; k < count(); ++k) {
                const auto present = model_->add_variable();
                if (k > 0) model_->add_implication(present, before);
                before = present;
                const auto [offload, reload] = add_transfers(v, k, present);
                pairs.offload.push_back(offload);
                pairs.reload.push_back(reload);
            }
        }
    }
    void add_stash(std::size_t k) {
        const auto chosen = add_alternatives();
        auto& all = own_->storage;
        auto& stash = all.stashes.emplace_back(chosen.size());
        for (std::size_t o = 0; o < chosen.size(); ++o)
            stash[o].chosen = chosen[o];
        using recomputation = std::pair<duration, memory_size>;
        add_shared(
            chosen,
            [&](std::size_t o) {
                const auto each = option(o);
                return each.recomputes() ? recomputation{each.recompute, each.held} : recomputation{};
            },
            [&](const recomputation& v, const std::vector<std::size_t>& options, literal presence) {
                all.recompute.push_back(model_->add_task(length(factors(k).forward * v.first), presence));
                for (const auto o : options)
                    stash[o].recompute = all.recompute.back();
            });
        add_shared(
            chosen, [&](std::size_t o) { return transfers_of(o); },
            [&](const transfers& v, const std::vector<std::size_t>& options, literal presence) {
                const auto [offload, reload] = add_transfers(v, k, presence);
                for (const auto o : options) {
                    stash[o].offload = offload;
                    stash[o].reload = reload;
                }
            });
    }
    [[nodiscard]] ticks extra_of(std::size_t o, std::size_t k) const {
        return length(factors(k).forward * option(o).backward_extra);
    }
    /// The additional time of gradient k under the option with the shortest gradient.
    [[nodiscard]] ticks least_extra(std::size_t k) const {
        ticks least = extra_of(used().front(), k);
        for (const auto o : used())
            least = std::min(least, extra_of(o, k));
        return least;
    }
    void add_gradients() {
        for (std::size_t k = 0; k < own_->gradient.size(); ++k)
            model_->tasks[own_->gradient[k]].length += least_extra(k);
        if (std::all_of(used().begin(), used().end(), [&](auto o) { return is_same_gradient(o, used().front()); }))
            return;
        for (std::size_t k = 0; k < own_->gradient.size(); ++k)
            add_gradient(k, least_extra(k));
    }
    /// Whether gradients take the same time and add the same memory under both options.
    [[nodiscard]] bool is_same_gradient(std::size_t a, std::size_t b) const {
        const auto& c = problem_->costs[stage_];
        const auto before = [&](std::size_t o) { return std::min(option(o).restored(c), c.weight_stash); };
        for (std::size_t k = 0; k < own_->gradient.size(); ++k)
            if (extra_of(a, k) != extra_of(b, k)) return false;
        return own_->weight.empty() || before(a) == before(b);
    }
    void add_gradient(std::size_t k, ticks least) {
        auto& all = own_->storage;
        std::vector<literal> chosen;
        if (all.uses.empty()) {
            for (const auto& each : all.stashes[k])
                chosen.push_back(each.chosen);
        } else {
            chosen = add_alternatives();
            for (std::size_t j = 0; j < count(); ++j)
                for (const auto o : used()) {
                    model_->add_clause({!all.uses[k][j], !all.stashes[j][o].chosen, chosen[o]});
                    model_->add_clause({!all.uses[k][j], !chosen[o], all.stashes[j][o].chosen});
                }
        }
        auto& gradient = all.gradients.emplace_back(chosen.size());
        for (std::size_t o = 0; o < chosen.size(); ++o)
            gradient[o].chosen = chosen[o];
        add_shared(
            chosen, [&](std::size_t o) { return extra_of(o, k) - least; },
            [&](ticks extra, const std::vector<std::size_t>& options, literal presence) {
                all.extra.push_back(model_->add_task(extra, presence));
                for (const auto o : options)
                    gradient[o].extra = all.extra.back();
            });
    }
    /// A square matrix of literals with exactly one true literal in each row and column.
    [[nodiscard]] std::vector<std::vector<literal>> add_permutation() {
        std::vector rows(count(), std::vector<literal>(count()));
        for (auto& row : rows)
            for (auto& l : row)
                l = model_->add_variable();
        for (std::size_t k = 0; k < count(); ++k) {
            std::vector<literal> column;
            for (const auto& row : rows)
                column.push_back(row[k]);
            model_->add_exactly_one(rows[k]);
            model_->add_exactly_one(column);
        }
        return rows;
    }
    void add_full_backwards() {
        for (std::size_t k = 0; k < count(); ++k) {
            own_->full.push_back(model_->add_variable());
            std::vector<literal> c;
            for (const auto o : used())
                if (grows(o) && problem_->full_backward) c.push_back(own_->storage.chosen_of(k, o));
            c.push_back(!own_->full.back());
            model_->add_clause(std::move(c));
        }
    }

    // Precedences.

    [[nodiscard]] literal use(std::size_t k, std::size_t j) const {
        const auto& uses = own_->storage.uses;
        if (uses.empty()) return k == j ? always : never;
        return uses[k][j];
    }
    void add_pair_inputs(const transfer_pairs& pairs) {
        for (std::size_t k = 0; k < count(); ++k) {
            add_precedence(own_->forward[k], pairs.offload[k]);
            add_precedence(pairs.offload[k], pairs.reload[k]);
            if (k == 0) continue;
            add_precedence(pairs.offload[k - 1], pairs.offload[k]);
            add_precedence(pairs.reload[k - 1], pairs.reload[k]);
        }
    }
    void add_stash_inputs(std::size_t j, const stored_stash& each) {
        const auto forward = own_->forward[j];
        if (each.offload != no_task) {
            add_precedence(forward, each.offload);
            add_precedence(each.offload, each.reload);
        }
        if (each.recompute == no_task) return;
        add_precedence(forward, each.recompute);
        // The reload and the recomputation belong to one stash. If both tasks are present, they belong to the same
        // option.
        if (each.reload != no_task) add_precedence(each.reload, each.recompute);
    }
    /// Requires that the stash of forward `j` is restored before gradient `k` starts.
    void add_return(std::size_t j, std::size_t k, literal guard) {
        std::set<std::pair<task_index, task_index>> pairs;
        for (const auto o : used()) {
            const auto& stash = own_->storage.stashes[j][o];
            const auto first = own_->storage.first_of(own_->gradient, k, o);
            for (const auto back : {stash.reload, stash.recompute})
                if (back != no_task) pairs.insert({{back, own_->gradient[k]}, {back, first}});
        }
        for (const auto& [back, task] : pairs)
            add_precedence(back, task, guard);
    }

    // Orders.

    /// Requires that tasks before a gradient also run before its extra task.
    void glue_extras(order_literals& known) {
        const auto& all = own_->storage;
        if (all.extra.empty()) return;
        for (const auto& on : model_->machines) {
            if (std::find(on.tasks.begin(), on.tasks.end(), own_->gradient.front()) == on.tasks.end()) continue;
            const auto tasks = on.tasks;
            for (std::size_t k = 0; k < count(); ++k)
                for (const auto extra : all.extras_of(k))
                    for (const auto t : tasks)
                        if (t != extra && t != own_->gradient[k]) glue(known, extra, own_->gradient[k], t);
            return;
        }
    }
    void glue(order_literals& known, task_index extra, task_index gradient, task_index other) {
        const auto here = !model_->tasks[extra].presence;
        const auto there = !model_->tasks[other].presence;
        const auto before_gradient = known.runs_before(other, gradient);
        const auto before_extra = known.runs_before(other, extra);
        model_->add_clause({here, there, !before_gradient, before_extra});
        model_->add_clause({here, there, before_gradient, !before_extra});
    }
    /// Requires that weight gradients outside full backwards run in the order of their gradients.
    void sort_weights(order_literals& known) {
        const auto& full = own_->full;
        if (full.empty()) return;
        for_each_sorted_pair([&](std::size_t a, std::size_t b) {
            model_->add_clause({full[a], full[b], known.runs_before(own_->weight[a], own_->weight[b])});
        });
    }
    using task_of_stash = task_index stored_stash::*;
    static constexpr task_of_stash all_tasks[] = {&stored_stash::recompute, &stored_stash::offload,
                                                  &stored_stash::reload};
    /// Whether only this option of a stash needs the task.
    [[nodiscard]] bool is_alone(std::size_t o, task_of_stash task) const {
        const auto& stash = own_->storage.stashes.front();
        return std::count_if(stash.begin(), stash.end(),
                             [&](const stored_stash& each) { return each.*task == stash[o].*task; }) == 1;
    }
    /// Requires, for FIFO order, that tasks of one option run in the order of their stashes. Adds the precedences from
    /// the i-th stash of `list` to later stashes.
    void add_order(const std::vector<std::size_t>& list, std::size_t i, std::size_t o) {
        const auto& stashes = own_->storage.stashes;
        for (const auto task : all_tasks) {
            const auto own = stashes[list[i]][o].*task;
            if (own == no_task || !is_alone(o, task)) continue;
            // If no task is optional, ordering neighbours suffices.
            const auto last = used().size() == 1 ? std::min(i + 2, list.size()) : list.size();
            for (std::size_t later = i + 1; later < last; ++later)
                add_precedence(own, stashes[list[later]][o].*task);
        }
    }
    /// If two stashes of one option are used in the order of their forwards, their tasks also run in this order.
    void keep_order(std::size_t j, std::size_t later, std::size_t o, literal fifo, order_literals& known) {
        const auto& a = own_->storage.stashes[j][o];
        const auto& b = own_->storage.stashes[later][o];
        for (const auto task : all_tasks)
            if (a.*task != no_task)
                model_->add_clause({!a.chosen, !b.chosen, !fifo, known.runs_before(a.*task, b.*task)});
    }
    /// Calls `visit(j, later)` for each pair of interchangeable microbatches with sorted operations.
    template <class Visit> void for_each_sorted_pair(const Visit& visit) const {
        if (!order_->is_sorted()) return;
        for (const auto& list : order_->lists())
            for (std::size_t i = 0; i < list.size(); ++i)
                for (std::size_t later = i + 1; later < list.size(); ++later)
                    visit(list[i], list[later]);
    }
    /// For each pair of stashes, whether they are used in the order of their forwards. Empty if no stash has tasks.
    [[nodiscard]] std::vector<std::vector<literal>> fifo_literals() {
        const auto& all = own_->storage;
        if (all.stashes.empty() || (all.offload.empty() && all.recompute.empty())) return {};
        std::vector fifo(count(), std::vector<literal>(count(), never));
        if (all.uses.empty()) {
            for_each_sorted_pair([&](std::size_t j, std::size_t later) { fifo[j][later] = always; });
            return fifo;
        }
        const auto used_by = add_prefixes();
        for (std::size_t j = 0; j < count(); ++j)
            for (std::size_t later = j + 1; later < count(); ++later) {
                fifo[j][later] = model_->add_variable();
                for (std::size_t k = 0; k < count(); ++k)
                    model_->add_clause({!used_by[k][j], used_by[k][later], fifo[j][later]});
            }
        return fifo;
    }
    /// For each gradient and stash, whether this gradient or an earlier gradient uses the stash.
    [[nodiscard]] std::vector<std::vector<literal>> add_prefixes() {
        auto used_by = own_->storage.uses;
        for (std::size_t k = 1; k < count(); ++k)
            for (std::size_t j = 0; j < count(); ++j) {
                const auto here = own_->storage.uses[k][j];
                used_by[k][j] = model_->add_variable();
                model_->add_implication(used_by[k - 1][j], used_by[k][j]);
                model_->add_clause({!here, used_by[k][j]});
                model_->add_clause({here, used_by[k - 1][j], !used_by[k][j]});
            }
        return used_by;
    }
    /// Requires a full pass between a forward and a gradient that uses its stash, if the forward's index is larger. In
    /// the full pass, a microbatch goes to the last stage and back.
    void add_passes(order_literals& known) {
        const auto& uses = own_->storage.uses;
        for (std::size_t k = 0; k < uses.size(); ++k)
            for (std::size_t n = k + 1; n < uses.size(); ++n)
                model_->add_clause({!uses[k][n], known.separated(own_->forward[n], own_->gradient[k],
                                                                 known.paths()(own_->forward[n], own_->gradient[n]))});
    }
    void link_forwards(const std::vector<std::vector<literal>>& next, const stage_tasks& before,
                       order_literals& known) {
        const auto gap =
            model_->tasks[before.forward.front()].length + length(problem_->hop(stage_.previous(), stage_));
        for (std::size_t k = 0; k < count(); ++k)
            for (std::size_t j = 0; j < k; ++j)
                model_->add_clause({!next[k][j], known.separated(before.forward[k], own_->forward[j], gap)});
    }
    void link_gradients(const std::vector<std::vector<literal>>& next, const stage_tasks& before,
                        order_literals& known) {
        const auto hop = length(problem_->hop(stage_, stage_.previous()));
        const auto gap = model_->tasks[own_->gradient.front()].length + hop;
        for (std::size_t k = 0; k < count(); ++k)
            for (std::size_t l = 0; l < k; ++l) {
                model_->add_clause({!next[k][l], known.separated(own_->gradient[k], before.gradient[l], gap)});
                auto first = before.storage.extras_of(l);
                for (const auto extra : first)
                    model_->add_difference(own_->gradient[k], extra, gap, next[k][l]);
                if (own_->full.empty()) continue;
                first.push_back(before.gradient[l]);
                const auto both = model_->add_variable();
                model_->add_clause({!next[k][l], !own_->full[k], both});
                for (const auto t : first)
                    model_->add_difference(own_->weight[k], t, model_->tasks[own_->weight[k]].length + hop, both);
            }
    }

    const problem* problem_;
    stage stage_;
    overtaking form_;
    const microbatch_order* order_;
    const grid* time_;
    stage_tasks* own_;
    model* model_;
};

} // namespace optpipe::cp
