#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cp/grid.hpp"
#include "optpipe/planner/cp/knapsack_builder.hpp"
#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/order_literals.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// The knapsack constraints of one rank's memory. There is one constraint for each start of a task that may acquire
/// memory. The constraint limits all memory in use at the start, including the task's own.
///
/// Some memory of a stash is held on the device whichever option is chosen. Memory held under every option is acquired
/// and released by the forward, the transfers, and the gradient or weight gradient. Memory that every option holds is
/// counted without knowing which tasks belong to one stash.
///
/// Memory held only under some options is cut into layers, at the possible sizes of the stash. One literal per layer
/// and start of a task tells whether the layer is in use. A layer is in use if three conditions hold. The stash has an
/// option with this layer. The task that brings the layer (forward, reload or recomputation) has started. The task that
/// removes the layer (offload, gradient or weight gradient) hasn't ended.
///
/// Layers are nested: a layer in use implies that all layers below it are in use. Every option of a stash brings lower
/// layers no later than higher layers, and removes lower layers no earlier. Recomputations start after reloads, reloads
/// start after forwards, and weight gradients end after gradients. The knapsack can count nested layers together before
/// the option is known. If two tasks start together, the literal for their order may be true or false. Layers aren't
/// nested if there are tasks without duration: nesting requires different starts and ends. The layers that a gradient
/// adds to its stash are always nested.
///
/// Memory in addition to stashes is for attention keys and values, and for data that waits for far stages. Forwards and
/// backwards acquire and release additional memory. Operations of other ranks may also release additional memory. A
/// backward with an extra task acquires memory when the extra task starts. A full backward releases memory when its
/// weight gradient ends.
class pipeline_memory {
public:
    pipeline_memory(const problem& p, rank r, const grid& units, const per_stage<stage_tasks>& tasks,
                    order_literals& known, model& m)
        : problem_{&p}, rank_{r}, units_{&units}, tasks_{&tasks}, known_{&known}, model_{&m} {
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) own_.push_back(s);
        for (const stage s : own_)
            add_exchanges(s);
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) != r) add_releases_from_afar(s);
    }

    void add_knapsacks() {
        if (!problem_->memory_limit[rank_].is_unlimited())
            for (const stage s : own_)
                for (const auto at : acquisitions(s))
                    add_device(at);
        if (!problem_->host_memory_limit[rank_].is_unlimited())
            for (const stage s : own_)
                for (const auto at : (*tasks_)[s].storage.offload)
                    add_host(at);
    }

private:
    /// The sizes of a stash under one option, rounded down.
    struct stash_sizes {
        ticks held;
        ticks left;
        ticks restored;
        ticks moved;
    };
    struct layer {
        ticks low;
        ticks high;
    };
    /// Memory that a task acquires at its start and releases at its end.
    struct exchange {
        task_index by;
        ticks acquired;
        ticks released;
    };
    /// Memory that a backward acquires and releases. The backward may consist of several tasks.
    struct backward_exchange {
        stage of;
        std::size_t k;
        ticks acquired;
        ticks released;
    };
    /// The exchanges of a stage that don't depend on options, and the layers of its stashes.
    struct stage_exchanges {
        std::vector<exchange> of_tasks{};
        std::vector<backward_exchange> of_backwards{};
        /// For each stash, the layers above the memory that all options hold.
        std::vector<std::vector<layer>> layers{};
    };
    /// The transfers of one stash.
    struct moved_part {
        std::size_t stash;
        task_index offload;
        task_index reload;
        /// An option with the transfers of this entry.
        std::size_t option;
    };
    /// Literals and weights. Each literal implies the literals before it.
    using nested_terms = std::vector<std::pair<literal, ticks>>;

    [[nodiscard]] ticks most(memory_size limit) const {
        return units_->below((limit + tolerance{}.at(problem_->memory_scale())).value());
    }
    [[nodiscard]] ticks size_of(stage s, std::size_t k, memory_size m) const {
        return units_->below((problem_->microbatches.factors(s, microbatch{k}).memory * m).value());
    }
    [[nodiscard]] stash_sizes sizes_of(stage s, std::size_t k, std::size_t o) const {
        const auto& each = problem_->storage_of(s, o);
        const auto size = [&](memory_size m) { return size_of(s, k, m); };
        return {size(each.held), size(each.left_on_device()), size(each.restored(problem_->costs[s])),
                size(each.transfer_size)};
    }
    /// Memory held from the start of I to the end of W, or 0 if the backward isn't split.
    [[nodiscard]] ticks weight_stash(stage s, std::size_t k) const {
        return (*tasks_)[s].weight.empty() ? 0 : size_of(s, k, problem_->costs[s].weight_stash);
    }
    /// Memory that stash `k` holds after its forward under every option.
    [[nodiscard]] ticks common(stage s, std::size_t k) const {
        const auto& options = (*tasks_)[s].storage.options;
        auto least = sizes_of(s, k, options.front()).held;
        for (const auto o : options)
            least = std::min(least, sizes_of(s, k, o).held);
        return least;
    }
    /// The layers of stash `k` above the memory that all options hold.
    [[nodiscard]] std::vector<layer> layers_of(stage s, std::size_t k) const {
        const auto least = common(s, k);
        std::vector<ticks> cuts{least, weight_stash(s, k)};
        for (const auto o : (*tasks_)[s].storage.options) {
            const auto sizes = sizes_of(s, k, o);
            cuts.insert(cuts.end(), {sizes.held, sizes.left, sizes.restored});
        }
        std::erase_if(cuts, [least](ticks cut) { return cut < least; });
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        std::vector<layer> result;
        for (std::size_t i = 1; i < cuts.size(); ++i)
            result.push_back({cuts[i - 1], cuts[i]});
        return result;
    }
    /// All transfers of a stage. Each pair of an offload and a reload is listed once.
    [[nodiscard]] std::vector<moved_part> transfers_of(stage s) const {
        const auto& storage = (*tasks_)[s].storage;
        std::vector<moved_part> result;
        for (const auto& pairs : storage.pairs)
            for (std::size_t k = 0; k < pairs.offload.size(); ++k)
                result.push_back({k, pairs.offload[k], pairs.reload[k], pairs.options.front()});
        for (std::size_t k = 0; k < storage.stashes.size(); ++k)
            for (const auto o : storage.options) {
                const auto& stash = storage.stashes[k];
                const auto offload = stash[o].offload;
                const auto known = [&](const moved_part& each) { return each.offload == offload; };
                if (offload != no_task && std::none_of(result.begin(), result.end(), known))
                    result.push_back({k, offload, stash[o].reload, o});
            }
        return result;
    }

    // Memory in addition to stashes. The sum for one operation has few terms, and a rounding error below the tolerance.

    [[nodiscard]] exchange beside_stash(const operation& op, task_index by) const {
        if (problem_->is_simple()) return {by, 0, 0};
        const bool is_own = problem_->rank_of(op.stage) == rank_;
        const auto effect = is_own ? memory_effect_beside_stash(*problem_, op) : memory_effect{};
        auto released = effect.released_at_end;
        for_each_release_of_others(*problem_, op, [&](rank r, memory_size amount) {
            if (r == rank_) released += amount;
        });
        return {by, units_->below(effect.acquired_at_start.value()), units_->above(released.value())};
    }
    [[nodiscard]] exchange beside_stash_of_forward(stage s, std::size_t k) const {
        return beside_stash(forward(s, microbatch{k}), (*tasks_)[s].forward[k]);
    }
    [[nodiscard]] exchange beside_stash_of_gradient(stage s, std::size_t k) const {
        return beside_stash(backward_input(s, microbatch{k}), (*tasks_)[s].gradient[k]);
    }
    void add_exchanges(stage s) {
        const auto& t = (*tasks_)[s];
        auto& all = exchanges_[s];
        for (std::size_t k = 0; k < t.forward.size(); ++k) {
            auto each = beside_stash_of_forward(s, k);
            each.acquired += common(s, k);
            if (t.gradient.empty()) each.released += common(s, k);
            all.of_tasks.push_back(each);
            all.layers.push_back(layers_of(s, k));
        }
        for (const auto& each : transfers_of(s)) {
            const auto amount = common(s, each.stash);
            const auto moved = amount - std::min(amount, sizes_of(s, each.stash, each.option).left);
            all.of_tasks.push_back({each.offload, 0, moved});
            all.of_tasks.push_back({each.reload, moved, 0});
        }
        for (std::size_t k = 0; k < t.gradient.size(); ++k)
            add_exchange_of_gradient(s, k, common(s, k) - kept_for_weight(s, k), all);
        for (std::size_t k = 0; k < t.weight.size(); ++k)
            all.of_tasks.push_back({t.weight[k], 0, kept_for_weight(s, k)});
    }
    [[nodiscard]] ticks kept_for_weight(stage s, std::size_t k) const {
        return std::min(common(s, k), weight_stash(s, k));
    }
    void add_exchange_of_gradient(stage s, std::size_t k, ticks released, stage_exchanges& all) const {
        auto each = beside_stash_of_gradient(s, k);
        if (may_be_several_tasks(s, k)) {
            if (each.acquired > 0 || each.released > 0)
                all.of_backwards.push_back({s, k, each.acquired, each.released});
            each = {each.by, 0, 0};
        }
        each.released += released;
        all.of_tasks.push_back(each);
    }
    [[nodiscard]] bool may_be_several_tasks(stage s, std::size_t k) const {
        const auto& t = (*tasks_)[s];
        return !t.full.empty() || !t.storage.extras_of(k).empty();
    }
    /// Adds the releases of this rank's memory by tasks of stage `s`, which is on another rank.
    void add_releases_from_afar(stage s) {
        const auto& t = (*tasks_)[s];
        auto& all = exchanges_[s];
        for (std::size_t k = 0; k < t.forward.size(); ++k)
            if (const auto each = beside_stash_of_forward(s, k); each.released > 0) all.of_tasks.push_back(each);
        for (std::size_t k = 0; k < t.gradient.size(); ++k)
            if (beside_stash_of_gradient(s, k).released > 0) add_exchange_of_gradient(s, k, 0, all);
    }

    /// The tasks that may acquire memory: forwards, reloads and recomputations, and gradients that enlarge their stash.
    [[nodiscard]] std::vector<task_index> acquisitions(stage s) const {
        const auto& t = (*tasks_)[s];
        std::vector<task_index> result;
        for (std::size_t k = 0; k < t.forward.size(); ++k) {
            const auto holds = [&](auto o) { return sizes_of(s, k, o).held > 0; };
            if (std::any_of(t.storage.options.begin(), t.storage.options.end(), holds) ||
                beside_stash_of_forward(s, k).acquired > 0)
                result.push_back(t.forward[k]);
        }
        for (const auto* tasks : {&t.storage.reload, &t.storage.recompute})
            result.insert(result.end(), tasks->begin(), tasks->end());
        std::vector<task_index> grown;
        for (std::size_t k = 0; k < t.gradient.size(); ++k) {
            const bool grows = beside_stash_of_gradient(s, k).acquired > 0;
            for (const auto o : t.storage.options)
                if (grows || sizes_of(s, k, o).restored < weight_stash(s, k))
                    grown.push_back(t.storage.first_of(t.gradient, k, o));
        }
        std::sort(grown.begin(), grown.end());
        grown.erase(std::unique(grown.begin(), grown.end()), grown.end());
        result.insert(result.end(), grown.begin(), grown.end());
        return result;
    }

    [[nodiscard]] literal starts_before(task_index t, task_index at) {
        return t == at ? always : known_->starts_before(t, at);
    }

    void add_device(task_index at) {
        knapsack_builder use{*model_, *known_, at};
        use.capacity = most(problem_->memory_limit[rank_]);
        for (const stage s : problem_->graph.all_stages()) {
            for (const auto& each : exchanges_[s].of_tasks)
                add_exchange(use, each, at);
            for (const auto& each : exchanges_[s].of_backwards)
                add_exchange(use, each, at);
            if (problem_->rank_of(s) == rank_) add_layers(use, s, at);
        }
        use.finish(model_->tasks[at].presence);
    }
    static void add_exchange(knapsack_builder& use, const exchange& each, task_index at) {
        if (each.by != at) return use.exchanged(each.by, each.acquired, each.released);
        use.capacity -= each.acquired;
        use.given(each.by, each.released);
    }
    void add_exchange(knapsack_builder& use, const backward_exchange& each, task_index at) {
        const auto& t = (*tasks_)[each.of];
        const auto gradient = t.gradient[each.k];
        if (each.acquired > 0) {
            std::vector<literal> started{starts_before(gradient, at)};
            for (const auto extra : t.storage.extras_of(each.k))
                started.push_back(starts_before(extra, at));
            use.used_if(model_->add_any_of(std::move(started)), each.acquired);
        }
        if (each.released <= 0) return;
        std::vector<std::vector<literal>> ended{{known_->ends_before(gradient, at)}};
        if (!t.full.empty()) ended.push_back({!t.full[each.k], known_->ends_before(t.weight[each.k], at)});
        use.capacity += each.released;
        use.used_if(model_->add_any_fails(std::move(ended)), each.released);
    }
    void add_layers(knapsack_builder& use, stage s, task_index at) {
        for (std::size_t k = 0; k < (*tasks_)[s].forward.size(); ++k) {
            const auto& layers = exchanges_[s].layers[k];
            if (layers.empty()) continue;
            nested_terms stash;
            nested_terms added;
            for (const auto& each : layers) {
                stash.emplace_back(in_stash(s, k, each, at), each.high - each.low);
                if (each.high <= weight_stash(s, k))
                    added.emplace_back(in_gradient(s, k, each, at), each.high - each.low);
            }
            std::reverse(added.begin(), added.end());
            if (known_->has_instants())
                for (const auto& [l, amount] : stash)
                    use.used_if(l, amount);
            else
                add_nested(use, stash, at);
            add_nested(use, added, at);
        }
    }
    void add_nested(knapsack_builder& use, const nested_terms& terms, task_index at) {
        use.used_if_nested(terms);
        for (std::size_t i = 1; i < terms.size(); ++i)
            model_->add_clause({!model_->tasks[at].presence, terms[i - 1].first, !terms[i].first});
    }
    /// Whether a layer of the stash of forward `j` is in use when `at` starts.
    literal in_stash(stage s, std::size_t j, const layer& each, task_index at) {
        const auto& t = (*tasks_)[s];
        if (t.storage.stashes.empty()) return never; // all options hold the same memory
        const auto& release = each.high > weight_stash(s, j) ? t.gradient : t.weight;
        const auto forward = starts_before(t.forward[j], at);
        std::vector<std::vector<literal>> uses;
        for (const auto o : t.storage.options) {
            const auto& stash = t.storage.stashes[j][o];
            const auto sizes = sizes_of(s, j, o);
            if (each.high <= sizes.left) {
                uses.push_back({!forward, !stash.chosen});
            } else if (each.high <= sizes.held) {
                uses.push_back({!forward, !stash.chosen, known_->ends_before(stash.offload, at)});
                uses.push_back({!starts_before(stash.reload, at)});
            } else if (each.high <= sizes.restored) {
                uses.push_back({!starts_before(stash.recompute, at)});
            }
        }
        if (uses.empty()) return never;
        const auto held = is_held(t, j, release, at);
        if (held == never) return never;
        for (auto& c : uses)
            c.push_back(!held);
        return model_->add_any_fails(std::move(uses));
    }
    /// Whether the operation that releases stash `j` hasn't ended when `at` starts. `release` lists the stage's
    /// gradients (for layers above the weight stash) or weight gradients (for all other layers). The releasing
    /// operation is the gradient that uses the stash, or its weight gradient. All options and layers with the same
    /// `release` share this literal. In learned clauses, this literal replaces one literal per gradient that may use
    /// the stash.
    literal is_held(const stage_tasks& t, std::size_t j, const std::vector<task_index>& release, task_index at) {
        const auto found = held_.find({release[j], at});
        if (found != held_.end()) return found->second;
        const auto& by = t.storage.uses;
        std::vector<std::vector<literal>> clauses;
        for (std::size_t k = 0; k < release.size(); ++k)
            if (const auto used = by.empty() ? (j == k ? always : never) : by[k][j]; used != never)
                clauses.push_back({!used, known_->ends_before(release[k], at)});
        const auto held = model_->add_any_fails(std::move(clauses));
        held_.emplace(std::pair{release[j], at}, held);
        if (&release == &t.weight && !known_->has_instants())
            model_->add_clause({!model_->tasks[at].presence, !is_held(t, j, t.gradient, at), held});
        return held;
    }
    /// Whether a layer of the memory that gradient `k` adds is in use when `at` starts. A gradient adds memory if its
    /// weight stash is larger than the stash that it uses.
    literal in_gradient(stage s, std::size_t k, const layer& each, task_index at) {
        const auto& t = (*tasks_)[s];
        std::vector<std::vector<literal>> uses;
        for (const auto o : t.storage.options) {
            if (each.high <= sizes_of(s, k, o).restored) continue;
            uses.push_back({!starts_before(t.storage.first_of(t.gradient, k, o), at), !t.storage.chosen_of(k, o),
                            t.full.empty() ? never : t.full[k], known_->ends_before(t.weight[k], at)});
            if (t.storage.gradients.empty()) break; // gradients are the same under all options
        }
        return model_->add_any_fails(std::move(uses));
    }

    void add_host(task_index at) {
        knapsack_builder use{*model_, *known_, at};
        use.capacity = most(problem_->host_memory_limit[rank_]);
        for (const stage s : own_)
            for (const auto& each : transfers_of(s)) {
                const auto moved = sizes_of(s, each.stash, each.option).moved;
                add_exchange(use, exchange{each.offload, moved, 0}, at);
                use.given(each.reload, moved);
            }
        use.finish(model_->tasks[at].presence);
    }

    const problem* problem_;
    rank rank_;
    const grid* units_;
    const per_stage<stage_tasks>* tasks_;
    order_literals* known_;
    model* model_;
    std::vector<stage> own_;
    per_stage<stage_exchanges> exchanges_{problem_->graph.stages()};
    /// The literals of `is_held`. The first part of the key is the task of `release` with the index of the stash. The
    /// second part is the starting task `at`.
    std::map<std::pair<task_index, task_index>, literal> held_;
};

} // namespace optpipe::cp
