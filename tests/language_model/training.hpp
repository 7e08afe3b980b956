#pragma once

#include "../../examples/language_model/pipeline_model.hpp"
#include "execution/peak_gate.hpp"
#include "optpipe/execution/measured.hpp"
#include "optpipe/execution/threads/executor.hpp"
#include "optpipe/execution/threads/run.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Trains a tiny language model by schedules, on ranks that are threads.
namespace training {

inline const std::string text =
    "a schedule is an order; times are derived. what runs is the order of each lane, and no lane waits "
    "for more than it has to; what is stashed is freed, what travels comes back.";
inline constexpr language_model::shape tiny{.hidden = 8, .heads = 2, .sequence = 6, .sequences = 2, .vocabulary = 128};
inline constexpr std::size_t layers = 16;

using stages_type = std::vector<language_model::model_stage<double>>;
using storage_options = std::vector<language_model::stash_storage>;
inline stages_type fresh_stages(std::size_t count) {
    return language_model::make_stages<double>(tiny, layers, count, 7);
}

/// A problem with the number of stages that the placement has; with `transfer` they can be offloaded.
template <class Placement>
optpipe::problem problem_with(std::size_t ranks, std::size_t microbatches,
                              std::optional<optpipe::duration> transfer = std::nullopt) {
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic, Placement> shape{ranks, microbatches};
    return language_model::problem_of(fresh_stages(shape.stages()), to_any_graph(shape), transfer);
}
/// Limits each rank's memory to `stashes` times its largest stash.
inline void limit_stashes(optpipe::problem& p, double stashes) {
    for (const auto s : p.graph.all_stages()) {
        auto& limit = p.memory_limit[p.rank_of(s)];
        const auto room = stashes * p.costs[s].activation;
        limit = limit.is_unlimited() ? room : std::max(limit, room);
    }
}

/// Gathers a part of a stash into one piece.
class gathered_part {
public:
    optpipe::execution::stash_part gather(optpipe::execution::stash_part from) {
        std::size_t bytes = 0;
        for (const auto& piece : from)
            bytes += piece.size();
        storage_.resize(bytes / sizeof(double));
        whole_ = std::as_writable_bytes(std::span{storage_});
        auto to = whole_.begin();
        for (const auto& piece : from)
            to = std::copy(piece.begin(), piece.end(), to);
        return {&whole_, 1};
    }
    void scatter(optpipe::execution::stash_part to) const {
        auto from = whole_.begin();
        for (const auto& piece : to) {
            const auto end = from + static_cast<std::ptrdiff_t>(piece.size());
            std::copy(from, end, piece.begin());
            from = end;
        }
    }

private:
    std::vector<double> storage_;
    std::span<std::byte> whole_;
};

/// The model of the examples, with stashes in pieces, as a plan's exact peak demands. Notes how much of the arena it is
/// handed.
class scattered_model {
public:
    /// Every operation passes the gate, if there is one. With storage options the model itself accepts pieces.
    scattered_model(stages_type& stages, std::size_t microbatches, peak_gate* gate = nullptr,
                    const storage_options& storage = {}, const language_model::shape& shape = tiny)
        : inner_{stages, text, shape, microbatches, {}, storage}, stores_{!storage.empty()}, gate_{gate} {}

    template <class Lane> void forward(Lane& on, optpipe::execution::forward_task t) {
        if (gate_) gate_->pass(optpipe::forward(t.stage, t.microbatch));
        if (stores_) {
            note({t.kept, t.freed});
            return inner_.forward(on, t);
        }
        const auto kept = std::exchange(t.kept, take(t.kept, kept_));
        const auto freed = std::exchange(t.freed, take(t.freed, freed_));
        inner_.forward(on, t);
        kept_.scatter(kept);
        freed_.scatter(freed);
    }
    template <class Lane> void backward_input(Lane& on, optpipe::execution::backward_task t) {
        if (gate_) gate_->pass(optpipe::backward_input(t.stage, t.microbatch));
        if (stores_) {
            note({t.kept, t.freed, t.restored_kept, t.restored_freed, t.added});
            return inner_.backward_input(on, t);
        }
        const auto kept = std::exchange(t.kept, take(t.kept, kept_));
        t.freed = take(t.freed, freed_);
        inner_.backward_input(on, t);
        kept_.scatter(kept);
    }
    template <class Lane> void backward_weight(Lane& on, optpipe::execution::weight_task t) {
        if (gate_) gate_->pass(optpipe::backward_weight(t.stage, t.microbatch));
        if (stores_) return inner_.backward_weight(on, t);
        t.kept = take(t.kept, kept_);
        inner_.backward_weight(on, t);
    }
    template <class Lane> void backward(Lane& on, const optpipe::execution::backward_task& t) {
        if (!stores_) {
            backward_input(on, t);
            return backward_weight(on, {.stage = t.stage, .microbatch = t.microbatch, .kept = t.kept});
        }
        if (gate_) gate_->pass(optpipe::backward_input(t.stage, t.microbatch));
        note({t.kept, t.freed, t.restored_kept, t.restored_freed});
        inner_.backward(on, t);
    }
    template <class Lane> void recompute(Lane& on, const optpipe::execution::recompute_task& t) {
        if (gate_) gate_->pass(optpipe::recompute_of(t.stage, t.microbatch));
        note({t.kept, t.freed, t.restored_kept, t.restored_freed});
        inner_.recompute(on, t);
    }
    template <class Lane> void update(Lane& on, optpipe::stage s) { inner_.update(on, s); }

    [[nodiscard]] const std::vector<double>& losses() const { return inner_.losses(); }
    /// Bytes from the first byte of all pieces to the last.
    [[nodiscard]] std::size_t reach() const { return end_ > begin_ ? end_ - begin_ : 0; }

private:
    optpipe::execution::stash_part take(optpipe::execution::stash_part part, gathered_part& whole) {
        note({part});
        return whole.gather(part);
    }
    void note(std::initializer_list<optpipe::execution::stash_part> parts) {
        for (const auto& part : parts)
            for (const auto& piece : part) {
                const auto begin = reinterpret_cast<std::uintptr_t>(piece.data());
                begin_ = std::min(begin_, begin);
                end_ = std::max(end_, begin + piece.size());
            }
    }

    language_model::pipeline_model<double> inner_;
    bool stores_;
    peak_gate* gate_;
    gathered_part kept_;
    gathered_part freed_;
    std::uintptr_t begin_ = std::numeric_limits<std::uintptr_t>::max();
    std::uintptr_t end_ = 0;
};

/// The programs of a schedule, in exactly the memory of its peaks.
inline optpipe::per_rank<optpipe::rank_program> programs_of(const optpipe::problem& p, const optpipe::schedule& s,
                                                            bool update = false) {
    auto programs = lower(p, s,
                          {.bytes_per_unit = 1.0,
                           .alignment = alignof(double),
                           .message_bytes = sizeof(double) * tiny.boundary(),
                           .update = update});
    REQUIRE(programs.has_value());
    const auto planned = measure(p, s);
    for (const auto& each : *programs)
        CHECK(static_cast<double>(each.device_bytes) == planned.peak_memory[each.self].value());
    return std::move(*programs);
}
/// The gate and the model of one rank for a step in which it holds the memory of the plan's peaks at once. Ranks may be
/// threads or processes.
struct rank_at_peak {
    rank_at_peak(const optpipe::problem& p, const optpipe::schedule& s, const optpipe::rank_program& mine,
                 stages_type& stages, const storage_options& storage = {})
        : gate{p, s, mine}, model{stages, p.graph.microbatches(), &gate, storage} {}
    peak_gate gate;
    scattered_model model;
};
/// The plan's whole peak was used at one time, and not a byte more.
inline void check_memory(const scattered_model& model, const optpipe::rank_times& ran) {
    CHECK(model.reach() == ran.program->device_bytes);
    CHECK(high_water(ran, optpipe::memory_arena::device) == ran.program->device_bytes);
    CHECK(high_water(ran, optpipe::memory_arena::host) == ran.program->host_bytes);
}

inline optpipe::threads::options exact_memory(const optpipe::per_rank<optpipe::rank_program>& programs) {
    optpipe::threads::options how;
    how.device_memory = optpipe::per_rank<std::size_t>(programs.size());
    how.host_memory = how.device_memory;
    for (const auto& each : programs) {
        how.device_memory[each.self] = each.device_bytes + each.message_bytes;
        how.host_memory[each.self] = each.host_bytes;
    }
    return how;
}
/// Trains `steps` steps by a schedule, each with the optimizer's update. Returns the loss of each.
inline std::vector<double> train(stages_type& stages, const optpipe::problem& p, const optpipe::schedule& s,
                                 std::size_t steps, const storage_options& storage = {}) {
    const auto programs = programs_of(p, s, true);
    optpipe::threads::cluster cluster{p.graph.ranks(), exact_memory(programs)};
    std::vector<scattered_model> models;
    for (std::size_t r = 0; r < p.graph.ranks(); ++r)
        models.emplace_back(stages, p.graph.microbatches(), nullptr, storage);
    optpipe::threads::run(
        programs, cluster, [&](optpipe::rank r) -> scattered_model& { return models[r.position()]; }, steps);
    std::vector<double> losses(steps);
    for (const auto& model : models)
        for (std::size_t k = 0; k < model.losses().size(); ++k)
            losses[k] += model.losses()[k];
    return losses;
}

inline std::vector<double> gradients_of(stages_type& stages) {
    std::vector<double> all;
    for (auto& each : stages)
        all.insert(all.end(), each.gradients().begin(), each.gradients().end());
    return all;
}

/// The microbatches of each stage in the order in which a schedule adds to its gradients: sums depend on it.
inline std::vector<std::vector<std::size_t>> weight_order(const optpipe::schedule& s) {
    auto operations = s.operations;
    std::stable_sort(operations.begin(), operations.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
    std::vector<std::vector<std::size_t>> order(s.graph.stages());
    for (const auto& timed : operations)
        if (timed.op.kind == optpipe::operation_kind::backward_weight ||
            timed.op.kind == optpipe::operation_kind::backward)
            order[timed.op.stage.position()].push_back(timed.op.microbatch.position());
    return order;
}
/// Runs a step without a pipeline, up to the gradients: every microbatch through all stages and back, and then all
/// weight gradients, stage by stage in the order of a schedule.
inline void step_alone(stages_type& stages, const optpipe::schedule& s, std::size_t number) {
    const language_model::text_step step{text, tiny, s.graph.microbatches(), number};
    const auto boundary = stages.front().boundary();
    std::vector<std::vector<std::vector<double>>> kept(s.graph.microbatches());
    std::vector<double> in(boundary), out(boundary);
    for (std::size_t m = 0; m < kept.size(); ++m) {
        std::vector<std::vector<double>> freed;
        for (auto& stage : stages) {
            stage.forward(step[m], in, kept[m].emplace_back(stage.kept()), freed.emplace_back(stage.freed()), out);
            in.swap(out);
        }
        for (std::size_t i = stages.size(); i-- > 0; in.swap(out))
            stages[i].backward_input(step[m], step.share(), in, kept[m][i], freed[i], out);
    }
    const auto order = weight_order(s);
    for (std::size_t i = 0; i < stages.size(); ++i)
        for (const auto m : order[i])
            stages[i].backward_weight(step[m], kept[m][i]);
}
/// Returns the stages after their first step.
inline stages_type step_alone(const optpipe::schedule& s) {
    auto stages = fresh_stages(s.graph.stages());
    step_alone(stages, s, 0);
    return stages;
}
inline std::vector<double> gradients_alone(const optpipe::schedule& s) {
    auto stages = step_alone(s);
    return gradients_of(stages);
}
/// The gradients of one step by a schedule in which every rank holds the memory of the plan's peaks at once.
inline std::vector<double> gradients_by(const optpipe::problem& p, const optpipe::schedule& s,
                                        const storage_options& storage = {}) {
    auto stages = fresh_stages(p.graph.stages());
    const auto programs = programs_of(p, s);
    std::vector<std::unique_ptr<rank_at_peak>> ranks;
    for (const auto& each : programs)
        ranks.push_back(std::make_unique<rank_at_peak>(p, s, each, stages, storage));
    auto how = exact_memory(programs);
    how.record_times = true;
    how.copies = [&](optpipe::rank r, const optpipe::task_label& what, std::size_t) {
        return ranks[r.position()]->gate.pass_copy(what.op);
    };
    optpipe::threads::cluster cluster{p.graph.ranks(), how};
    const auto model_of = [&](optpipe::rank r) -> scattered_model& { return ranks[r.position()]->model; };
    for (const auto& ran : optpipe::threads::run(programs, cluster, model_of))
        check_memory(ranks[ran.program->self.position()]->model, ran);
    return gradients_of(stages);
}

} // namespace training
