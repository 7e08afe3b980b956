#pragma once

#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/pipeline_tasks.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Starts of all tasks and values of all variables of a model.
struct assignment {
    /// The start of each task. Absent tasks start at 0.
    std::vector<ticks> starts{};
    /// The value of each Boolean variable.
    std::vector<bool> values{};

    [[nodiscard]] bool is_true(literal l) const { return values[l.variable()] != l.negated(); }
};

namespace detail {

/// Reads one stage of a schedule into an assignment.
class stage_to_assignment {
public:
    /// `all` has the operations of the stage, sorted by start.
    stage_to_assignment(const pipeline_model& m, stage s, const std::vector<timed_operation>& all, assignment& into)
        : model_{&m}, stage_{s}, own_{&m.stages()[s]}, into_{&into}, of_(m.source().graph.microbatches()) {
        for (const auto& timed : all) {
            const auto b = timed.op.microbatch.position();
            of_[b][static_cast<std::size_t>(timed.op.kind)] = timed;
            if (timed.op.kind == operation_kind::forward) forwards_.push_back(b);
            if (is_gradient(timed.op.kind)) gradients_.push_back(b);
        }
        forwards_ = in_order_of_model(forwards_);
        gradients_ = in_order_of_model(gradients_);
    }

    void read() {
        for (const auto& pairs : own_->storage.pairs)
            read_pairs(pairs);
        for (const auto o : own_->storage.options)
            if (!own_->storage.stashes.empty()) read_option(o);
        for (std::size_t j = 0; j < forwards_.size(); ++j)
            set(own_->forward[j], *of(forwards_[j], operation_kind::forward));
        for (std::size_t k = 0; k < gradients_.size(); ++k)
            read_gradient(k);
        read_weights();
        if (own_->storage.uses.empty()) return;
        for (std::size_t j = 0; j < forwards_.size(); ++j)
            set(own_->storage.uses[user_of(j)][j]);
    }
    /// Sets the literals that link operations of this stage to the previous stage's operations of the same microbatch.
    void read_links(const stage_to_assignment& before) {
        const auto& all = own_->storage;
        if (all.next_forward.empty()) return;
        for (std::size_t b = 0; b < forwards_.size(); ++b) {
            set(all.next_forward[place_in(before.forwards_, b)][place_in(forwards_, b)]);
            set(all.next_gradient[place_in(gradients_, b)][place_in(before.gradients_, b)]);
        }
    }

private:
    using place = std::optional<timed_operation>;

    /// The microbatch of each task. `run` has the microbatches in the order in which they run. If the model sorts
    /// interchangeable microbatches, their tasks are in the order of `run`.
    [[nodiscard]] std::vector<std::size_t> in_order_of_model(std::vector<std::size_t> run) const {
        auto result = run;
        if (!model_->order().is_sorted()) std::sort(result.begin(), result.end());
        if (!model_->order().is_sorted() || run.empty()) return result;
        for (const auto& list : model_->order().lists()) {
            auto next = list.begin();
            for (const auto b : run)
                if (std::binary_search(list.begin(), list.end(), b)) result[*next++] = b;
        }
        return result;
    }
    [[nodiscard]] const place& of(std::size_t b, operation_kind kind) const {
        return of_[b][static_cast<std::size_t>(kind)];
    }
    [[nodiscard]] const place& gradient_of(std::size_t b) const {
        const auto& full = of(b, operation_kind::backward);
        return full ? full : of(b, operation_kind::backward_input);
    }
    /// The storage option of microbatch `b`, or its replacement in the model.
    [[nodiscard]] std::size_t option_of(std::size_t b) const {
        return model_->needed().replacement(stage_, of(b, operation_kind::forward)->op.storage);
    }
    [[nodiscard]] ticks time(duration d) const { return model_->time().nearest(d.value()); }
    [[nodiscard]] ticks length(task_index t) const { return model_->tasks().tasks[t].length; }
    void set(literal l) {
        if (l != always) into_->values[l.variable()] = !l.negated();
    }
    void set(task_index t, ticks start) {
        into_->starts[t] = start;
        set(model_->tasks().tasks[t].presence);
    }
    void set(task_index t, const timed_operation& as) { set(t, time(as.start)); }

    /// The k-th pair consists of the k-th offload and the k-th reload.
    void read_pairs(const transfer_pairs& pairs) {
        const auto read_all = [&](operation_kind kind, const std::vector<task_index>& tasks) {
            std::vector<ticks> starts;
            for (const auto b : forwards_)
                if (std::find(pairs.options.begin(), pairs.options.end(), option_of(b)) != pairs.options.end())
                    starts.push_back(time(of(b, kind)->start));
            std::sort(starts.begin(), starts.end());
            for (std::size_t k = 0; k < starts.size(); ++k)
                set(tasks[k], starts[k]);
        };
        read_all(operation_kind::offload, pairs.offload);
        read_all(operation_kind::reload, pairs.reload);
    }
    void read_option(std::size_t o) {
        std::vector<std::size_t> stashes;
        for (std::size_t j = 0; j < forwards_.size(); ++j)
            if (option_of(forwards_[j]) == o) {
                stashes.push_back(j);
                set(own_->storage.stashes[j][o].chosen);
            }
        for (std::size_t k = 0; k < own_->storage.gradients.size(); ++k)
            if (option_of(gradients_[k]) == o) set(own_->storage.gradients[k][o].chosen);
        for (const auto& [task, kind] : {std::pair{&stored_stash::recompute, operation_kind::recompute},
                                         std::pair{&stored_stash::offload, operation_kind::offload},
                                         std::pair{&stored_stash::reload, operation_kind::reload}})
            for (const auto j : stashes)
                if (own_->storage.stashes[j][o].*task != no_task)
                    set(own_->storage.stashes[j][o].*task, *of(forwards_[j], kind));
        if (!model_->order().is_sorted()) return;
        while (sort_pairs(o, stashes)) {
        }
    }
    /// Swaps the tasks of two stashes whose uses are in forward order, but whose copies or recomputations aren't.
    /// Returns whether any tasks were swapped.
    bool sort_pairs(std::size_t o, const std::vector<std::size_t>& stashes) {
        bool any = false;
        for (std::size_t a = 0; a < stashes.size(); ++a)
            for (std::size_t b = a + 1; b < stashes.size(); ++b) {
                const bool fifo = own_->storage.uses.empty()
                                      ? model_->order().are_interchangeable(stashes[a], stashes[b])
                                      : user_of(stashes[a]) < user_of(stashes[b]);
                for (const auto task : {&stored_stash::recompute, &stored_stash::offload, &stored_stash::reload}) {
                    const auto first = own_->storage.stashes[stashes[a]][o].*task;
                    const auto second = own_->storage.stashes[stashes[b]][o].*task;
                    if (!fifo || first == no_task || into_->starts[first] <= into_->starts[second]) continue;
                    std::swap(into_->starts[first], into_->starts[second]);
                    any = true;
                }
            }
        return any;
    }
    /// The gradient that uses the stash of forward `j`.
    [[nodiscard]] std::size_t user_of(std::size_t j) const { return place_in(gradients_, forwards_[j]); }
    [[nodiscard]] static std::size_t place_in(const std::vector<std::size_t>& order, std::size_t b) {
        return static_cast<std::size_t>(std::find(order.begin(), order.end(), b) - order.begin());
    }
    void read_gradient(std::size_t k) {
        const auto b = gradients_[k];
        const auto& read = *gradient_of(b);
        const auto& p = model_->source();
        const auto gradient = own_->gradient[k];
        // A B ends with its W. The I of a B ends earlier than the B, by the duration of the W.
        const auto after = read.op.kind == operation_kind::backward && !own_->weight.empty()
                               ? p.cost(stage_, microbatch{b}).backward_weight
                               : duration{};
        const auto first = own_->storage.first_of(own_->gradient, k, option_of(b));
        if (first == gradient) {
            set(gradient, time(read.end - after) - length(gradient));
            return;
        }
        set(first, read);
        set(gradient, time(read.start) + length(first));
    }
    /// Sorted weight gradients outside full backwards run in the order of their gradients.
    void read_weights() {
        if (own_->weight.empty()) return;
        if (model_->order().is_sorted())
            for (const auto& list : model_->order().lists())
                read_weights(list);
        else
            for (std::size_t k = 0; k < gradients_.size(); ++k)
                read_weights({k});
    }
    void read_weights(const std::vector<std::size_t>& sorted) {
        std::vector<std::size_t> waiting;
        std::vector<ticks> starts;
        for (const auto k : sorted) {
            const auto& weight = of(gradients_[k], operation_kind::backward_weight);
            const auto at_once = into_->starts[own_->gradient[k]] + length(own_->gradient[k]);
            if (!weight && stays_full(k)) {
                set(own_->full[k]);
                set(own_->weight[k], at_once);
                continue;
            }
            waiting.push_back(k);
            starts.push_back(weight ? time(weight->start) : at_once);
        }
        std::sort(starts.begin(), starts.end());
        for (std::size_t i = 0; i < waiting.size(); ++i)
            set(own_->weight[waiting[i]], starts[i]);
    }
    [[nodiscard]] bool stays_full(std::size_t k) const {
        const auto& c = model_->source().costs[stage_];
        return !own_->full.empty() &&
               model_->source().storage_of(stage_, option_of(gradients_[k])).restored(c) < c.weight_stash;
    }

    const pipeline_model* model_;
    stage stage_;
    const stage_tasks* own_;
    assignment* into_;
    std::vector<std::array<place, all_operation_kinds.size()>> of_;
    /// The microbatch of each forward and gradient of the model.
    std::vector<std::size_t> forwards_;
    std::vector<std::size_t> gradients_;
};

/// Reads a schedule into an assignment.
class schedule_to_assignment {
public:
    schedule_to_assignment(const pipeline_model& m, const schedule& s) : model_{&m} {
        result_.starts.assign(m.tasks().tasks.size(), 0);
        result_.values.assign(m.tasks().variables(), false);
        result_.values[0] = true;
        read_stages(m.order().is_sorted() ? s : renamed(s));
        read_begins(s);
        read_choices();
    }
    [[nodiscard]] assignment&& result() && { return static_cast<assignment&&>(result_); }

private:
    /// Swaps interchangeable sequences to sort their first forwards on stage 0.
    [[nodiscard]] schedule renamed(schedule s) const {
        std::sort(s.operations.begin(), s.operations.end(), starts_before);
        std::vector<std::size_t> names(s.graph.microbatches());
        std::iota(names.begin(), names.end(), std::size_t{0});
        for (const auto& list : model_->order().lists())
            if (!slice_before(list.front())) name_sequences(s, list, names);
        for (auto& timed : s.operations)
            timed.op.microbatch = microbatch{names[timed.op.microbatch.position()]};
        return s;
    }
    /// `firsts` has the first microbatches of interchangeable sequences.
    void name_sequences(const schedule& sorted, const std::vector<std::size_t>& firsts,
                        std::vector<std::size_t>& names) const {
        auto next = firsts.begin();
        for (const auto& timed : sorted.operations) {
            const auto first = timed.op.microbatch.position();
            const bool is_meant = timed.op.kind == operation_kind::forward && timed.op.stage == stage{0} &&
                                  std::binary_search(firsts.begin(), firsts.end(), first);
            if (!is_meant) continue;
            names[first] = *next;
            for (auto b = first + 1; b < names.size() && slice_before(b); ++b)
                names[b] = *next + (b - first);
            ++next;
        }
    }
    [[nodiscard]] bool slice_before(std::size_t b) const {
        return model_->source().microbatches.slice_before(microbatch{b}).has_value();
    }
    void read_stages(const schedule& s) {
        const auto& graph = model_->source().graph;
        std::vector<std::vector<timed_operation>> by_stage(graph.stages());
        for (const auto& timed : s.operations)
            by_stage[timed.op.stage.position()].push_back(timed);
        std::vector<stage_to_assignment> stages;
        for (const stage at : graph.all_stages()) {
            auto& own = by_stage[at.position()];
            std::sort(own.begin(), own.end(), starts_before);
            stages.emplace_back(*model_, at, own, result_);
            stages.back().read();
            if (stages.size() > 1) stages.back().read_links(stages[stages.size() - 2]);
        }
    }
    void read_begins(const schedule& s) {
        for (const auto begin : model_->begins())
            result_.starts[begin] = std::numeric_limits<ticks>::max();
        for (const auto& timed : s.operations)
            if (!model_->begins().empty() && !is_transfer(timed.op.kind)) {
                auto& begin = result_.starts[model_->begins()[model_->source().rank_of(timed.op.stage).position()]];
                begin = std::min(begin, model_->time().nearest(timed.start.value()));
            }
    }
    void read_choices() {
        const auto& m = model_->tasks();
        // Variables without tasks have been set already. A presence variable comes before the choices that depend on
        // it.
        for (std::uint32_t v = 1; v < m.variables(); ++v) {
            const auto& c = m.choices[v];
            if (c.first == c.second) continue;
            const bool present =
                result_.is_true(m.tasks[c.first].presence) && result_.is_true(m.tasks[c.second].presence);
            result_.values[v] = present && result_.starts[c.second] >= result_.starts[c.first] + c.gap;
        }
        // An auxiliary variable is the last literal of its clause.
        for (const auto& c : m.clauses) {
            const auto last = c.back();
            const bool free = m.choices[last.variable()].first == m.choices[last.variable()].second;
            const auto holds = [&](literal l) { return result_.is_true(l); };
            if (free && !last.negated() && std::none_of(c.begin(), c.end(), holds))
                result_.values[last.variable()] = true;
        }
    }

    const pipeline_model* model_;
    assignment result_;
};

/// Writes one stage of a solution as operations. The order of the forwards determines which task has which microbatch.
class stage_to_schedule {
public:
    stage_to_schedule(const pipeline_model& m, stage s, const assignment& from, schedule& into)
        : model_{&m}, stage_{s}, own_{&m.stages()[s]}, from_{&from}, into_{&into} {}

    /// `names` has the microbatch of each forward. Before the call, `names` refers to the forwards of the previous
    /// stage. On return, `names` refers to the forwards of this stage. Returns false if the stage has no schedule
    /// without overtaking.
    bool write(std::vector<std::size_t>& names) {
        const auto& all = own_->storage;
        auto own_names = names;
        for (std::size_t i = 0; i < names.size(); ++i)
            own_names[true_in(all.next_forward, i)] = names[i];
        names = own_names;
        std::vector<stored> stashes;
        if (all.stashes.empty())
            stashes = assign_pairs();
        else
            for (const auto& stash : all.stashes)
                stashes.push_back(chosen_in(stash));
        if (stashes.empty()) return false;
        for (std::size_t k = 0; k < names.size(); ++k) {
            const auto j = true_in(all.uses, k);
            write(microbatch{names[j]}, j, k, stashes[j]);
        }
        return true;
    }

private:
    /// How a stash is stored: the chosen option, and the tasks of this option.
    struct stored {
        std::size_t option;
        stored_stash tasks;
    };

    /// The column of a true literal in `row`, or `row` itself if there are no literals.
    [[nodiscard]] std::size_t true_in(const std::vector<std::vector<literal>>& rows, std::size_t row) const {
        if (rows.empty()) return row;
        const auto found =
            std::find_if(rows[row].begin(), rows[row].end(), [&](literal l) { return from_->is_true(l); });
        return static_cast<std::size_t>(found - rows[row].begin());
    }
    [[nodiscard]] stored chosen_in(const std::vector<stored_stash>& stash) const {
        const auto chosen =
            std::find_if(stash.begin(), stash.end(), [&](const auto& each) { return from_->is_true(each.chosen); });
        return {static_cast<std::size_t>(chosen - stash.begin()), *chosen};
    }
    [[nodiscard]] ticks start(task_index t) const { return from_->starts[t]; }
    [[nodiscard]] ticks end(task_index t) const { return start(t) + model_->tasks().tasks[t].length; }
    /// Assigns each transfer pair to the first fitting stash without a pair. Empty if a pair fits no stash, or if a
    /// stash without a pair can't be kept.
    [[nodiscard]] std::vector<stored> assign_pairs() const {
        std::vector<stored> pairs;
        for (const auto& all : own_->storage.pairs)
            for (std::size_t i = 0; i < all.offload.size(); ++i)
                if (from_->is_true(model_->tasks().tasks[all.offload[i]].presence))
                    pairs.push_back({all.options.front(), {always, no_task, all.offload[i], all.reload[i]}});
        std::stable_sort(pairs.begin(), pairs.end(), [&](const stored& a, const stored& b) {
            return start(a.tasks.reload) < start(b.tasks.reload);
        });
        const auto other = own_->storage.options.front();
        std::vector<stored> result(own_->gradient.size(), {other, {}});
        std::size_t next = 0;
        for (const auto& pair : pairs) {
            while (next < result.size() && start(own_->gradient[next]) < end(pair.tasks.reload))
                ++next;
            if (next == result.size() || end(own_->forward[next]) > start(pair.tasks.offload)) return {};
            result[next++] = pair;
        }
        if (pairs.size() < result.size() && model_->source().storage_of(stage_, other).offloads()) return {};
        return result;
    }
    void write(microbatch name, std::size_t j, std::size_t k, const stored& as) {
        auto op = forward(stage_, name);
        op.storage = static_cast<storage_index>(as.option);
        add(op, own_->forward[j]);
        const std::pair<operation_kind, task_index> others[] = {{operation_kind::offload, as.tasks.offload},
                                                                {operation_kind::reload, as.tasks.reload},
                                                                {operation_kind::recompute, as.tasks.recompute}};
        for (const auto& [kind, task] : others)
            if (task != no_task) add(sibling(op, kind), task);
        if (own_->gradient.empty()) return;
        const bool full =
            !may_split(model_->source(), stage_) || (!own_->full.empty() && from_->is_true(own_->full[k]));
        add(sibling(op, full ? operation_kind::backward : operation_kind::backward_input),
            own_->storage.first_of(own_->gradient, k, as.option));
        if (!full && !own_->weight.empty()) add(sibling(op, operation_kind::backward_weight), own_->weight[k]);
    }
    void add(const operation& op, task_index t) {
        const duration begin{model_->time().value(start(t))};
        into_->operations.push_back({op, begin, begin + duration_of(model_->source(), op)});
    }

    const pipeline_model* model_;
    stage stage_;
    const stage_tasks* own_;
    const assignment* from_;
    schedule* into_;
};

} // namespace detail

/// The assignment that represents a schedule.
[[nodiscard]] inline assignment assignment_of(const pipeline_model& m, const schedule& s) {
    return detail::schedule_to_assignment{m, s}.result();
}

/// The schedule of a solution of the model. Empty if a solution of a pooled model has no schedule without overtaking.
[[nodiscard]] inline std::optional<schedule> schedule_of(const pipeline_model& m, const assignment& a) {
    schedule result{m.source().graph, {}};
    std::vector<std::size_t> names(result.graph.microbatches());
    std::iota(names.begin(), names.end(), std::size_t{0});
    for (const stage s : result.graph.all_stages())
        if (!detail::stage_to_schedule{m, s, a, result}.write(names)) return std::nullopt;
    return result;
}

} // namespace optpipe::cp
