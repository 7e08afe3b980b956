#pragma once

#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::cp {

/// Starts of all tasks and values of all variables of a model.
struct assignment {
    /// Per task; absent tasks start at 0.
    std::vector<ticks> starts{};
    /// Per variable.
    std::vector<bool> values{};

    [[nodiscard]] bool is_true(literal l) const { return values[l.variable()] != l.negated(); }
};

namespace detail {

/// Reads one stage of a schedule with storage options into an assignment.
class storage_to_assignment {
public:
    /// `all`: the operations of the stage, by start.
    storage_to_assignment(const pipeline_model& m, stage s, const std::vector<timed_operation>& all, assignment& into)
        : model_{&m}, stage_{s}, own_{&m.stages()[s]}, into_{&into}, of_(m.source().graph.microbatches()) {
        for (const auto& timed : all) {
            const auto b = timed.op.microbatch.position();
            of_[b][static_cast<std::size_t>(timed.op.kind)] = timed;
            if (timed.op.kind == operation_kind::forward) forwards_.push_back(b);
            if (is_gradient(timed.op.kind)) gradients_.push_back(b);
        }
        if (m.form() != overtaking::allowed) return;
        std::sort(forwards_.begin(), forwards_.end());
        by_start_ = std::exchange(gradients_, forwards_);
    }

    void read() {
        const auto& options = own_->storage.options;
        for (std::size_t o = 0; o < model_->source().storage_options(stage_); ++o) {
            const bool used = std::find(options.begin(), options.end(), o) != options.end();
            if (used) read_option(o);
        }
        for (std::size_t j = 0; j < forwards_.size(); ++j)
            set(own_->forward[j], *of(forwards_[j], operation_kind::forward));
        for (std::size_t k = 0; k < gradients_.size(); ++k)
            read_gradient(k);
        read_weights();
        if (own_->storage.uses.empty()) return;
        for (std::size_t j = 0; j < forwards_.size(); ++j)
            set(own_->storage.uses[user_of(j)][j]);
    }
    /// Sets which microbatches of this stage and of the stage before are the same.
    void read_links(const storage_to_assignment& before) {
        const auto& all = own_->storage;
        if (all.next_forward.empty()) return;
        for (std::size_t b = 0; b < forwards_.size(); ++b) {
            set(all.next_forward[place_in(before.forwards_, b)][place_in(forwards_, b)]);
            set(all.next_gradient[place_in(gradients_, b)][place_in(before.gradients_, b)]);
        }
    }

private:
    using place = std::optional<timed_operation>;

    [[nodiscard]] const place& of(std::size_t b, operation_kind kind) const {
        return of_[b][static_cast<std::size_t>(kind)];
    }
    [[nodiscard]] const place& gradient_of(std::size_t b) const {
        const auto& full = of(b, operation_kind::backward);
        return full ? full : of(b, operation_kind::backward_input);
    }
    /// The option of its stash, or the model's substitute if the model doesn't have that option.
    [[nodiscard]] std::size_t option_of(std::size_t b) const {
        const auto& options = own_->storage.options;
        const auto& p = model_->source();
        const std::size_t o =
            p.is_plain(stage_) ? (of(b, operation_kind::offload) ? 1 : 0) : of(b, operation_kind::forward)->op.storage;
        return std::find(options.begin(), options.end(), o) != options.end() ? o : options.front();
    }
    [[nodiscard]] ticks time(duration d) const { return model_->time().nearest(d.value()); }
    [[nodiscard]] ticks length(task_index t) const { return model_->tasks().tasks[t].length; }
    void set(literal l) {
        if (l != always) into_->values[l.variable()] = true;
    }
    void set(task_index t, ticks start) {
        into_->starts[t] = start;
        set(model_->tasks().tasks[t].presence);
    }
    void set(task_index t, const timed_operation& as) { set(t, time(as.start)); }

    void read_option(std::size_t o) {
        std::vector<std::size_t> stashes;
        for (std::size_t j = 0; j < forwards_.size(); ++j)
            if (option_of(forwards_[j]) == o) {
                stashes.push_back(j);
                set(own_->storage.stashes[j][o].chosen);
            }
        // Without `uses` they are the same literals.
        for (std::size_t k = 0; k < own_->storage.uses.size(); ++k)
            if (option_of(gradients_[k]) == o) set(own_->storage.gradients[k][o].chosen);
        for (const auto& [task, kind] : {std::pair{&stored_stash::recompute, operation_kind::recompute},
                                         std::pair{&stored_stash::offload, operation_kind::offload},
                                         std::pair{&stored_stash::reload, operation_kind::reload}})
            for (const auto j : stashes)
                if (own_->storage.stashes[j][o].*task != no_task)
                    set(own_->storage.stashes[j][o].*task, *of(forwards_[j], kind));
        if (model_->form() == overtaking::allowed) return;
        while (sort_pairs(o, stashes)) {
        }
    }
    /// Swaps the tasks of stashes that are used in the order of their forwards, but don't come back in that order. True
    /// if any tasks were swapped.
    bool sort_pairs(std::size_t o, const std::vector<std::size_t>& stashes) {
        bool any = false;
        for (std::size_t a = 0; a < stashes.size(); ++a)
            for (std::size_t b = a + 1; b < stashes.size(); ++b) {
                const bool fifo = own_->storage.uses.empty() || user_of(stashes[a]) < user_of(stashes[b]);
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
        // The end of I, or of the I that starts a B.
        const auto after = read.op.kind == operation_kind::backward && !own_->weight.empty()
                               ? p.costs[stage_].backward_weight
                               : duration{};
        const auto extra = own_->storage.gradients[k][option_of(b)].extra;
        if (extra == no_task) {
            set(gradient, time(read.end - after) - length(gradient));
            return;
        }
        set(extra, read);
        set(gradient, time(read.start) + length(extra));
    }
    /// If no full backward remains, weight gradients are in the order of their gradients.
    void read_weights() {
        if (own_->weight.empty()) return;
        const bool named = !by_start_.empty();
        std::vector<std::size_t> waiting;
        std::vector<ticks> starts;
        for (std::size_t i = 0; i < gradients_.size(); ++i) {
            const auto k = named ? by_start_[i] : i;
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
    /// If microbatches have names: the gradients, by start.
    std::vector<std::size_t> by_start_;
};

/// Writes one stage of a solution with storage options as operations; forwards determine the names of microbatches.
class storage_to_schedule {
public:
    storage_to_schedule(const pipeline_model& m, stage s, const assignment& from, schedule& into)
        : model_{&m}, stage_{s}, own_{&m.stages()[s]}, from_{&from}, into_{&into} {}

    /// `names`: the microbatch of each forward of the stage before; on return, of this stage.
    void write(std::vector<std::size_t>& names) {
        const auto& all = own_->storage;
        auto own_names = names;
        for (std::size_t i = 0; i < names.size(); ++i)
            own_names[true_in(all.next_forward, i)] = names[i];
        names = own_names;
        for (std::size_t k = 0; k < names.size(); ++k) {
            const auto j = true_in(all.uses, k);
            write(microbatch{names[j]}, j, k);
        }
    }

private:
    /// The column of the true literal of a row; the row itself if there are no literals.
    [[nodiscard]] std::size_t true_in(const std::vector<std::vector<literal>>& rows, std::size_t row) const {
        if (rows.empty()) return row;
        const auto found =
            std::find_if(rows[row].begin(), rows[row].end(), [&](literal l) { return from_->is_true(l); });
        return static_cast<std::size_t>(found - rows[row].begin());
    }
    void write(microbatch name, std::size_t j, std::size_t k) {
        const auto& stash = own_->storage.stashes[j];
        const auto chosen =
            std::find_if(stash.begin(), stash.end(), [&](const auto& each) { return from_->is_true(each.chosen); });
        const auto o = static_cast<std::size_t>(chosen - stash.begin());
        operation op = forward(stage_, name);
        op.storage = static_cast<storage_index>(o);
        add(op, own_->forward[j]);
        const std::pair<operation_kind, task_index> others[] = {{operation_kind::offload, chosen->offload},
                                                                {operation_kind::reload, chosen->reload},
                                                                {operation_kind::recompute, chosen->recompute}};
        for (const auto& [kind, task] : others)
            if (task != no_task) add(sibling(op, kind), task);
        const auto first = own_->storage.first_of(own_->gradient, k, o);
        const bool full = own_->weight.empty() || (!own_->full.empty() && from_->is_true(own_->full[k]));
        add(sibling(op, full ? operation_kind::backward : operation_kind::backward_input), first);
        if (!full) add(sibling(op, operation_kind::backward_weight), own_->weight[k]);
    }
    void add(const operation& op, task_index t) {
        const duration begin{model_->time().value(from_->starts[t])};
        into_->operations.push_back({op, begin, begin + duration_of(model_->source(), op)});
    }

    const pipeline_model* model_;
    stage stage_;
    const stage_tasks* own_;
    const assignment* from_;
    schedule* into_;
};

} // namespace detail
} // namespace optpipe::cp
