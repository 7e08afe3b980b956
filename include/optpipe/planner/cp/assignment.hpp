#pragma once

#include "optpipe/planner/cp/literal.hpp"
#include "optpipe/planner/cp/pipeline_model.hpp"
#include "optpipe/planner/cp/storage_assignment.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

namespace optpipe::cp {

namespace detail {

class schedule_to_assignment {
public:
    schedule_to_assignment(const pipeline_model& m, const schedule& s) : model_{&m} {
        const auto& p = m.source();
        result_.starts.assign(m.tasks().tasks.size(), 0);
        result_.values.assign(m.tasks().variables(), false);
        result_.values[0] = true;
        by_stage_.resize(p.graph.stages());
        for (const auto& timed : s.operations)
            by_stage_[timed.op.stage.position()].push_back(timed);
        for (const stage at : p.graph.all_stages())
            std::sort(by_stage_[at.position()].begin(), by_stage_[at.position()].end(), starts_before);
        if (p.has_storage_options())
            read_storage();
        else
            for (const stage at : p.graph.all_stages())
                read_stage(at);
        for (const auto begin : m.begins())
            result_.starts[begin] = std::numeric_limits<ticks>::max();
        for (const auto& timed : s.operations)
            if (!m.begins().empty() && !is_transfer(timed.op.kind)) {
                auto& begin = result_.starts[m.begins()[p.rank_of(timed.op.stage).position()]];
                begin = std::min(begin, time(timed.start));
            }
        read_choices();
    }
    [[nodiscard]] assignment&& result() && { return static_cast<assignment&&>(result_); }

private:
    [[nodiscard]] ticks time(duration d) const { return model_->time().nearest(d.value()); }
    void set(const std::vector<task_index>& tasks, std::size_t k, ticks start) {
        result_.starts[tasks[k]] = start;
        const auto presence = model_->tasks().tasks[tasks[k]].presence;
        if (presence != always) result_.values[presence.variable()] = true;
    }
    void read_storage() {
        std::vector<storage_to_assignment> stages;
        for (const stage at : model_->source().graph.all_stages()) {
            stages.emplace_back(*model_, at, by_stage_[at.position()], result_);
            stages.back().read();
            if (stages.size() > 1) stages.back().read_links(stages[stages.size() - 2]);
        }
    }
    void read_stage(stage at) {
        const auto& own = model_->stages()[at];
        const auto& all = by_stage_[at.position()];
        const bool named = model_->form() == overtaking::allowed;
        std::size_t next[all_operation_kinds.size()] = {};
        for (const auto& timed : all) {
            const auto place = [&](operation_kind kind) {
                return named ? timed.op.microbatch.position() : next[static_cast<std::size_t>(kind)]++;
            };
            const auto start = time(timed.start);
            switch (timed.op.kind) {
            case operation_kind::forward: set(own.forward, place(operation_kind::forward), start); break;
            case operation_kind::backward_input: set(own.gradient, place(operation_kind::backward_input), start); break;
            case operation_kind::backward_weight:
                if (own.full.empty()) set(own.weight, place(operation_kind::backward_weight), start);
                break;
            case operation_kind::backward: read_full(at, place(operation_kind::backward_input), timed); break;
            case operation_kind::offload:
                if (!own.offload.empty()) set(own.offload, place(operation_kind::offload), start);
                break;
            case operation_kind::reload:
                if (!own.reload.empty()) set(own.reload, place(operation_kind::reload), start);
                break;
            case operation_kind::recompute: break;
            }
        }
        sort_weights(at, all);
    }
    void read_full(stage at, std::size_t k, const timed_operation& timed) {
        const auto& own = model_->stages()[at];
        set(own.gradient, k, time(timed.start));
        if (own.weight.empty()) return;
        if (own.full.empty())
            weights_.push_back(time(timed.start) + model_->tasks().tasks[own.gradient[k]].length);
        else
            result_.values[own.full[k].variable()] = true;
    }
    /// A B becomes an I followed at once by its W. If the model allows B, weight gradient k belongs to gradient k.
    void sort_weights(stage at, const std::vector<timed_operation>& all) {
        const auto& own = model_->stages()[at];
        if (own.weight.empty()) return;
        const bool named = model_->form() == overtaking::allowed;
        if (own.full.empty() && !named) {
            for (const auto& timed : all)
                if (timed.op.kind == operation_kind::backward_weight) weights_.push_back(time(timed.start));
            std::sort(weights_.begin(), weights_.end());
            for (std::size_t k = 0; k < weights_.size(); ++k)
                set(own.weight, k, weights_[k]);
        } else {
            pair_weights(own, all, named);
        }
        weights_.clear();
    }
    void pair_weights(const stage_tasks& own, const std::vector<timed_operation>& all, bool named) {
        std::vector<std::size_t> position(own.gradient.size(), 0);
        std::size_t k = 0;
        for (const auto& timed : all)
            if (is_gradient(timed.op.kind)) {
                const auto m = timed.op.microbatch.position();
                position[m] = named ? m : k;
                ++k;
                if (timed.op.kind == operation_kind::backward)
                    set(own.weight, position[m],
                        time(timed.start) + model_->tasks().tasks[own.gradient[position[m]]].length);
            }
        for (const auto& timed : all)
            if (timed.op.kind == operation_kind::backward_weight)
                set(own.weight, position[timed.op.microbatch.position()], time(timed.start));
    }

    void read_choices() {
        const auto& m = model_->tasks();
        // Variables without tasks are set already. Presences that imply each other are in the order of their variables.
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
    std::vector<std::vector<timed_operation>> by_stage_;
    std::vector<ticks> weights_;
    assignment result_;
};

} // namespace detail

/// The assignment that represents a schedule. If overtaking is allowed, the forwards of stage 0 must be sorted.
[[nodiscard]] inline assignment assignment_of(const pipeline_model& m, const schedule& s) {
    return detail::schedule_to_assignment{m, s}.result();
}

namespace detail {

class assignment_to_schedule {
public:
    assignment_to_schedule(const pipeline_model& m, const assignment& a) : model_{&m}, values_{&a} {}

    std::optional<schedule> write() {
        const auto& p = model_->source();
        result_.graph = p.graph;
        if (p.has_storage_options()) return write_storage();
        for (const stage s : p.graph.all_stages()) {
            const auto& own = model_->stages()[s];
            for (std::size_t k = 0; k < own.forward.size(); ++k)
                write_compute(s, k);
            if (model_->form() == overtaking::allowed) {
                for (std::size_t k = 0; k < own.offload.size(); ++k)
                    if (is_present(own.offload[k])) write_transfers(s, k, k);
            } else if (!write_all_transfers(s)) {
                return std::nullopt;
            }
        }
        return with_plain_storage(p, std::move(result_));
    }

private:
    schedule write_storage() {
        std::vector<std::size_t> names(result_.graph.microbatches());
        std::iota(names.begin(), names.end(), std::size_t{0});
        for (const stage s : result_.graph.all_stages())
            storage_to_schedule{*model_, s, *values_, result_}.write(names);
        return std::move(result_);
    }
    [[nodiscard]] ticks start(task_index t) const { return values_->starts[t]; }
    [[nodiscard]] ticks end(task_index t) const { return start(t) + model_->tasks().tasks[t].length; }
    [[nodiscard]] bool is_present(task_index t) const { return values_->is_true(model_->tasks().tasks[t].presence); }
    void add(const operation& op, task_index t) {
        const duration begin{model_->time().value(start(t))};
        result_.operations.push_back({op, begin, begin + duration_of(model_->source(), op)});
    }
    void write_compute(stage s, std::size_t k) {
        const auto& own = model_->stages()[s];
        const microbatch m{k};
        add(forward(s, m), own.forward[k]);
        if (own.weight.empty() || (!own.full.empty() && values_->is_true(own.full[k]))) {
            add(backward(s, m), own.gradient[k]);
            return;
        }
        add(backward_input(s, m), own.gradient[k]);
        add(backward_weight(s, m), own.weight[k]);
    }
    void write_transfers(stage s, std::size_t pair, std::size_t k) {
        const auto& own = model_->stages()[s];
        add(offload_of(s, microbatch{k}), own.offload[pair]);
        add(reload_of(s, microbatch{k}), own.reload[pair]);
    }
    /// Assigns each transfer pair to the first stash that fits it and has no pair yet. False if there is none.
    bool write_all_transfers(stage s) {
        const auto& own = model_->stages()[s];
        std::size_t next = 0;
        for (std::size_t i = 0; i < own.offload.size() && is_present(own.offload[i]); ++i) {
            while (next < own.gradient.size() && start(own.gradient[next]) < end(own.reload[i]))
                ++next;
            if (next == own.gradient.size() || end(own.forward[next]) > start(own.offload[i])) return false;
            write_transfers(s, i, next++);
        }
        return true;
    }

    const pipeline_model* model_;
    const assignment* values_;
    schedule result_;
};

} // namespace detail

/// The schedule of a solution of the model; empty if a solution of a pooled model has no schedule without overtaking.
[[nodiscard]] inline std::optional<schedule> schedule_of(const pipeline_model& m, const assignment& a) {
    return detail::assignment_to_schedule{m, a}.write();
}

} // namespace optpipe::cp
