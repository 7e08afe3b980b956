#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// The storage options of one stage as alternatives: exactly one per stash, each with its optional tasks.
///
/// As without options, the forwards, gradients and weight gradients of every stage can be sorted: the k-th of each
/// waits for the k-th of another stage. The option of its stash determines a gradient's length; gradients of one stage
/// that are sorted by starts are sorted by ends. But a stash, its transfers and its recomputation belong to one forward
/// and one gradient. In FIFO order (`forbidden`), the k-th gradient uses the stash of the k-th forward, and everything
/// is sorted. Otherwise (`pooled`, exact here), two assignments are open:
///
/// - the forward of a stage whose stash each gradient uses,
/// - the next forward and the next gradient of the same microbatch, for each forward and gradient of a stage.
///
/// The assignments of a stage and the next must be consistent. An assignment from the k-th to an earlier operation must
/// wait for the k-th. If two stashes of one option are used in FIFO order, their transfers and recomputations can be
/// sorted.
class stage_storage {
public:
    stage_storage(const problem& p, stage s, overtaking form, const grid& time, stage_tasks& own, model& m)
        : problem_{&p}, stage_{s}, form_{form}, time_{&time}, own_{&own}, model_{&m} {}

    /// To be called after the forwards, gradients and weight gradients exist. `tight`: whether the rank's memory may be
    /// exceeded.
    void add_tasks(bool tight) {
        choose_options(tight);
        for (std::size_t k = 0; k < count(); ++k)
            add_stash();
        if (form_ == overtaking::pooled) own_->storage.uses = add_permutation();
        for (std::size_t k = 0; k < count(); ++k)
            add_gradient(k);
        if (!own_->weight.empty() && tight &&
            std::any_of(used().begin(), used().end(), [&](auto o) { return grows(o); }))
            add_full_backwards();
    }
    /// Adds precedences within the stage; those between gradients of different stages are added for all problems alike.
    void add_inputs() {
        const auto& all = own_->storage;
        for (std::size_t j = 0; j < count(); ++j)
            for (const auto o : used())
                add_stash_inputs(j, all.stashes[j][o]);
        for (std::size_t k = 0; k < count(); ++k)
            for (const auto extra : all.extras_of(k)) {
                add_precedence(extra, own_->gradient[k]);
                model_->add_difference(own_->gradient[k], extra, -model_->tasks[extra].length,
                                       model_->tasks[extra].presence);
            }
        for (std::size_t k = 0; k < count(); ++k)
            for (std::size_t j = 0; j < count(); ++j)
                if (const auto guard = use(k, j); guard != never) add_return(j, k, guard);
    }
    /// To be called after the machines exist.
    void add_orders(order_literals& known) {
        glue_extras(known);
        sort_weights(known);
        if (form_ == overtaking::allowed) return;
        for (std::size_t j = 0; j < count(); ++j)
            for (std::size_t later = j + 1; later < count(); ++later)
                for (const auto o : used())
                    keep_order(j, later, o, known);
        add_passes(known);
    }
    /// In `pooled`, to be called after the machines exist: assigns the microbatches of this stage to those of the stage
    /// before.
    void add_links(const stage_tasks& before, order_literals& known) {
        const auto forwards = add_permutation();
        const auto gradients = add_permutation();
        link_forwards(forwards, before, known);
        link_gradients(gradients, before, known);
        const auto& uses = own_->storage.uses;
        for (std::size_t i = 0; i < count(); ++i)
            for (std::size_t j = 0; j < count(); ++j)
                for (std::size_t k = 0; k < count(); ++k)
                    for (std::size_t l = 0; l < count(); ++l)
                        model_->add_clause({!forwards[i][j], !uses[k][j], !gradients[k][l], before.storage.uses[l][i]});
        own_->storage.next_forward = forwards;
        own_->storage.next_gradient = gradients;
    }

private:
    [[nodiscard]] std::size_t count() const { return own_->forward.size(); }
    [[nodiscard]] storage_option option(std::size_t o) const { return problem_->storage_of(stage_, o); }
    [[nodiscard]] ticks length(duration d) const { return time_->nearest(d.value()); }
    /// Whether the stash grows when its gradient starts, so that a full backward may need less memory.
    [[nodiscard]] bool grows(std::size_t o) const {
        const auto& c = problem_->costs[stage_];
        return option(o).restored(c) < c.weight_stash;
    }
    void add_precedence(task_index from, task_index to, literal guard = always) {
        model_->add_difference(from, to, model_->tasks[from].length, guard);
    }

    // Options.

    [[nodiscard]] const std::vector<std::size_t>& used() const { return own_->storage.options; }
    /// If memory is ample, a stash that is kept is at least as good as any other.
    void choose_options(bool tight) {
        auto& options = own_->storage.options;
        options.resize(problem_->storage_options(stage_));
        std::iota(options.begin(), options.end(), std::size_t{0});
        const auto kept = std::find_if(options.begin(), options.end(), [&](std::size_t o) {
            return option(o).extra_work() == duration{} && !option(o).offloads();
        });
        if (!tight && kept != options.end()) options.assign(1, std::size_t{*kept});
    }
    /// One literal per option; exactly one is true. Options that aren't used have `never`.
    [[nodiscard]] std::vector<literal> add_alternatives() {
        std::vector<literal> chosen(problem_->storage_options(stage_), never);
        for (const auto o : used())
            chosen[o] = used().size() == 1 ? always : model_->add_variable();
        if (used().size() > 1) model_->add_exactly_one(chosen);
        return chosen;
    }
    /// Adds a task per distinct value of `properties(option)`, present with every option that has this value, by
    /// `add(value, options, presence)`. Values of zeros get no task.
    template <class Properties, class Add>
    void add_shared(const std::vector<literal>& chosen, Properties properties, Add add) {
        using value = decltype(properties(std::size_t{0}));
        std::map<value, std::vector<std::size_t>> groups;
        for (const auto o : used())
            if (const auto v = properties(o); v != value{}) groups[v].push_back(o);
        for (const auto& [v, options] : groups) {
            std::vector<literal> some;
            for (const auto o : options)
                some.push_back(chosen[o]);
            add(v, options, model_->add_any_of(std::move(some)));
        }
    }
    void add_stash() {
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
                all.recompute.push_back(model_->add_task(length(v.first), presence));
                for (const auto o : options)
                    stash[o].recompute = all.recompute.back();
            });
        using transfers = std::array<double, 5>;
        add_shared(
            chosen,
            [&](std::size_t o) {
                const auto each = option(o);
                if (!each.offloads()) return transfers{};
                return transfers{1.0, each.transfer->offload.value(), each.transfer->reload.value(), each.held.value(),
                                 each.transfer_size.value()};
            },
            [&](const transfers& v, const std::vector<std::size_t>& options, literal presence) {
                all.offload.push_back(model_->add_task(length(duration{v[1]}), presence));
                all.reload.push_back(model_->add_task(length(duration{v[2]}), presence));
                for (const auto o : options) {
                    stash[o].offload = all.offload.back();
                    stash[o].reload = all.reload.back();
                }
            });
    }
    void add_gradient(std::size_t k) {
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
        duration least = duration::unlimited();
        for (const auto o : used())
            least = std::min(least, option(o).backward_extra);
        model_->tasks[own_->gradient[k]].length += length(least);
        add_shared(
            chosen, [&](std::size_t o) { return length(option(o).backward_extra) - length(least); },
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
                if (grows(o) && problem_->full_backward) c.push_back(own_->storage.gradients[k][o].chosen);
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
    void add_stash_inputs(std::size_t j, const stored_stash& each) {
        const auto forward = own_->forward[j];
        if (each.offload != no_task) {
            add_precedence(forward, each.offload);
            add_precedence(each.offload, each.reload);
        }
        if (each.recompute == no_task) return;
        add_precedence(forward, each.recompute);
        // Both belong to one stash, so they have an option in common if both are present.
        if (each.reload != no_task) add_precedence(each.reload, each.recompute);
    }
    /// Requires that gradient `k` waits until the stash of forward `j` is back.
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

    /// Requires that every task before a gradient also runs before its extra.
    void glue_extras(order_literals& known) {
        const auto& all = own_->storage;
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
    /// If no full backward runs, weight gradients are in the order of their gradients.
    void sort_weights(order_literals& known) {
        const auto& full = own_->full;
        if (full.empty()) return;
        for (std::size_t a = 0; a < count(); ++a)
            for (std::size_t b = 0; b < count(); ++b) {
                if (a == b) continue;
                const auto sorted = form_ == overtaking::allowed
                                        ? known.runs_before(own_->gradient[a], own_->gradient[b])
                                    : a < b ? always
                                            : never;
                model_->add_clause({full[a], full[b], !sorted, known.runs_before(own_->weight[a], own_->weight[b])});
            }
    }
    /// Stashes of one option that are used in the order of their forwards come back in that order.
    void keep_order(std::size_t j, std::size_t later, std::size_t o, order_literals& known) {
        const auto& all = own_->storage;
        const auto& a = all.stashes[j][o];
        const auto& b = all.stashes[later][o];
        for (const auto task : {&stored_stash::recompute, &stored_stash::offload, &stored_stash::reload}) {
            if (a.*task == no_task) continue;
            const auto sorted = known.runs_before(a.*task, b.*task);
            if (all.uses.empty()) model_->add_clause({!a.chosen, !b.chosen, sorted});
            for (std::size_t k = 0; k < all.uses.size(); ++k)
                for (std::size_t next = k + 1; next < all.uses.size(); ++next)
                    model_->add_clause({!a.chosen, !b.chosen, !all.uses[k][j], !all.uses[next][later], sorted});
        }
    }
    /// If a gradient uses the stash of a later forward, that microbatch has passed down and up the pipeline.
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
    const grid* time_;
    stage_tasks* own_;
    model* model_;
};

} // namespace optpipe::cp
