#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// Runs one rank's program on an executor, step after step. Everything is looked up and allocated by the constructor;
/// a step issues instructions, one after the other, from the calling thread.
///
/// Contract: the programs of all ranks together are accepted by `check_programs`, and executor and model outlive it.
template <class Executor, class Model> class runner {
    static_assert(execution::check_executor<Executor>());
    using lane_type = execution::lane_of<Executor>;
    static_assert(execution::check_stage_model<Model, lane_type>());

public:
    /// Takes memory, lanes and markers. What can't be had throws, on the other ranks too.
    runner(const rank_program& p, Executor& on, Model& model) try
        : executor_{&on}, model_{&model}, device_{on.memory().device(p.device_bytes)},
          host_{on.memory().host(p.host_bytes)}, messages_{on.memory().device(p.message_bytes)} {
        if (p.self != on.self() || p.ranks != on.ranks())
            throw error{"a program of rank " + std::to_string(p.self.value()) + " of " + std::to_string(p.ranks) +
                        " can't run on rank " + std::to_string(on.self().value()) + " of " +
                        std::to_string(on.ranks())};
        find_pieces(p);
        for (std::size_t m = 0; m < p.markers; ++m)
            markers_.push_back(on.make_marker());
        open_lanes(p);
        waits_ = p.waits;
        for (const auto& part : p.parts)
            envelopes_.push_back({part.side, label_of(part), only_piece(p, part.buffer)});
        for (const auto& i : p.instructions)
            load(p, i);
        find_copies(p);
    } catch (const std::exception& e) {
        on.cancel("loading its program", e.what());
        on.finish(); // throws what all ranks throw
        throw;
    }
    runner(const runner&) = delete;
    runner& operator=(const runner&) = delete;

    /// Puts one step into the lanes. Doesn't wait for it.
    void issue() {
        for (const auto& t : tasks_) {
            auto& on = lanes_[t.lane];
            for (std::uint32_t w = t.first_wait; w != t.first_wait + t.waits; ++w)
                on.wait(markers_[waits_[w].position()]);
            switch (t.kind) {
            case instruction_kind::compute:
            case instruction_kind::update: on.launch(t.label, work{model_, &t}); break;
            case instruction_kind::copy: copy(on, t); break;
            case instruction_kind::exchange: exchange(on, t); break;
            }
            if (t.records != no_marker) on.record(markers_[t.records.position()]);
        }
    }
    /// One step from begin to end. Throws `execution_error` if it has none.
    void step() {
        try {
            issue();
        } catch (const std::exception& e) {
            executor_->cancel("issuing", e.what());
        }
        executor_->finish();
    }

    /// When each instruction ran since `forget_times`, in the order of the program. After one whole step.
    [[nodiscard]] std::vector<execution::task_times> times() const requires execution::timed_lane<lane_type> {
        std::vector<std::size_t> next(lanes_.size(), 0);
        std::vector<execution::task_times> all;
        for (const auto& t : tasks_) {
            const std::span<const execution::task_times> own = lanes_[t.lane].times();
            if (next[t.lane] < own.size()) all.push_back(own[next[t.lane]++]);
        }
        return all;
    }
    void forget_times() requires execution::timed_lane<lane_type> {
        for (auto& on : lanes_)
            on.forget_times();
    }

private:
    using side_kind = exchange_part::side_kind;
    struct envelope {
        side_kind side;
        task_label label;
        std::span<std::byte> data;
    };
    /// An instruction with addresses instead of numbers.
    struct task {
        instruction_kind kind{};
        std::uint8_t lane = 0;
        task_label label{};
        std::uint32_t first_wait = 0;
        std::uint32_t waits = 0;
        marker_id records = no_marker;
        std::span<std::byte> input{};
        std::span<std::byte> output{};
        execution::stash_part kept{};
        execution::stash_part freed{};
        execution::stash_part added{};
        execution::stash_part restored_kept{};
        execution::stash_part restored_freed{};
        /// In `copies_` or `envelopes_`.
        std::uint32_t first = 0;
        std::uint32_t count = 0;
    };
    struct work {
        Model* model;
        const task* what;
        void operator()(lane_type& on) const { runner::compute(*model, on, *what); }
    };

    static void compute(Model& model, lane_type& on, const task& t) {
        const auto& [s, kind, m, storage] = t.label.op;
        if (t.kind == instruction_kind::update) {
            if constexpr (execution::has_update<Model, lane_type>) model.update(on, s);
            return;
        }
        const execution::weight_task weight{s, m, t.kept, t.added, t.restored_kept, storage};
        const execution::backward_task back{s,       m,       t.input,         t.output,         t.kept,
                                            t.freed, t.added, t.restored_kept, t.restored_freed, storage};
        switch (kind) {
        case operation_kind::forward: return model.forward(on, {s, m, t.input, t.output, t.kept, t.freed, storage});
        case operation_kind::recompute:
            if constexpr (execution::has_recompute<Model, lane_type>)
                model.recompute(on, {s, m, t.kept, t.freed, t.restored_kept, t.restored_freed, storage});
            return;
        case operation_kind::backward_input: return model.backward_input(on, back);
        case operation_kind::backward_weight: return model.backward_weight(on, weight);
        case operation_kind::backward:
            if constexpr (execution::has_backward<Model, lane_type>) {
                model.backward(on, back);
            } else {
                model.backward_input(on, back);
                model.backward_weight(on, weight);
            }
            return;
        case operation_kind::offload:
        case operation_kind::reload: return;
        }
    }
    void copy(lane_type& on, const task& t) {
        const auto pieces = std::span<const execution::copy_piece>{copies_}.subspan(t.first, t.count);
        if (t.label.op.kind == operation_kind::offload)
            executor_->copies().copy_out(on, t.label, pieces);
        else
            executor_->copies().copy_in(on, t.label, pieces);
    }
    void exchange(lane_type& on, const task& t) {
        executor_->transport().exchange(on, [&](auto& open) {
            for (std::uint32_t e = t.first; e != t.first + t.count; ++e)
                if (const auto& [side, label, data] = envelopes_[e]; side == side_kind::send)
                    open.send(label, data);
                else
                    open.receive(label, data);
        });
    }

    [[nodiscard]] std::span<std::byte> arena(memory_arena which) const {
        switch (which) {
        case memory_arena::device: return device_.memory();
        case memory_arena::host: return host_.memory();
        case memory_arena::message: return messages_.memory();
        }
        return {};
    }
    void find_pieces(const rank_program& p) {
        pieces_.resize(p.segments.size());
        for (const auto& b : p.buffers)
            for (std::size_t s = b.first_segment; s < b.first_segment + b.segments; ++s)
                pieces_[s] = arena(b.arena).subspan(p.segments[s].offset, p.segments[s].bytes);
    }
    void open_lanes(const rank_program& p) {
        std::vector<std::size_t> commands(p.lanes.size(), 0);
        for (const auto& i : p.instructions)
            commands[i.lane] += 2 + i.waits;
        lanes_.reserve(p.lanes.size());
        for (std::size_t l = 0; l < p.lanes.size(); ++l)
            lanes_.push_back(executor_->open_lane(p.lanes[l], commands[l]));
    }
    [[nodiscard]] execution::stash_part part(const rank_program& p, buffer_id id) const {
        if (id == no_buffer) return {};
        const auto& b = p.buffers[id.position()];
        return std::span{pieces_}.subspan(b.first_segment, b.segments);
    }
    /// The pieces of both, one after the other.
    [[nodiscard]] execution::stash_part joined(execution::stash_part first, execution::stash_part second) {
        if (first.empty() || second.empty()) return first.empty() ? second : first;
        auto& both = joined_.emplace_back(first.begin(), first.end());
        both.insert(both.end(), second.begin(), second.end());
        return both;
    }
    [[nodiscard]] std::span<std::byte> only_piece(const rank_program& p, buffer_id id) const {
        const auto all = part(p, id);
        if (all.size() > 1) throw error{"a message whose buffer lies in several pieces"};
        return execution::contiguous(all);
    }

    void load(const rank_program& p, const instruction& i) {
        using enum buffer_role;
        if (i.kind == instruction_kind::update && !execution::has_update<Model, lane_type>)
            throw error{"a program with updates, and a model without `void update(lane&, stage)`"};
        const bool recomputes = i.kind == instruction_kind::compute && i.op.kind == operation_kind::recompute;
        if (recomputes && !execution::has_recompute<Model, lane_type>)
            throw error{
                "a program that recomputes, and a model without `void recompute(lane&, const recompute_task&)`"};
        task t{.kind = i.kind,
               .lane = i.lane,
               .label = label_of(p, i),
               .first_wait = i.first_wait,
               .waits = i.waits,
               .records = i.records,
               .first = i.first_part,
               .count = i.parts};
        t.input = only_piece(p, i.buffer(input));
        t.output = only_piece(p, i.buffer(output));
        t.kept = joined(part(p, i.buffer(kept)), part(p, i.buffer(resident_kept)));
        t.freed = joined(part(p, i.buffer(freed)), part(p, i.buffer(resident_freed)));
        t.restored_kept = part(p, i.buffer(restored_kept));
        t.restored_freed = part(p, i.buffer(restored_freed));
        t.added = part(p, i.buffer(added));
        tasks_.push_back(t);
    }
    /// The pieces of a stash and those of its place on the host are cut alike.
    void find_copies(const rank_program& p) {
        using enum buffer_role;
        for (std::size_t n = 0; n < tasks_.size(); ++n) {
            auto& t = tasks_[n];
            if (t.kind != instruction_kind::copy) continue;
            std::vector<std::span<std::byte>> device(t.kept.begin(), t.kept.end());
            device.insert(device.end(), t.freed.begin(), t.freed.end());
            const auto away = part(p, p.instructions[n].buffer(host));
            std::vector<std::span<std::byte>> there(away.begin(), away.end());
            t.first = static_cast<std::uint32_t>(copies_.size());
            for (std::size_t a = 0, b = 0; a < device.size() && b < there.size();) {
                const auto bytes = std::min(device[a].size(), there[b].size());
                const auto here = device[a].first(bytes);
                const auto far = there[b].first(bytes);
                const bool leaves = t.label.op.kind == operation_kind::offload;
                copies_.push_back(leaves ? execution::copy_piece{far, here} : execution::copy_piece{here, far});
                if ((device[a] = device[a].subspan(bytes)).empty()) ++a;
                if ((there[b] = there[b].subspan(bytes)).empty()) ++b;
            }
            t.count = static_cast<std::uint32_t>(copies_.size()) - t.first;
        }
    }

    using memory_type = std::remove_reference_t<decltype(std::declval<Executor&>().memory())>;
    using device_slab = decltype(std::declval<memory_type&>().device(0));
    using host_slab = decltype(std::declval<memory_type&>().host(0));

    Executor* executor_;
    Model* model_;
    // Lanes go first, so that nothing uses memory or markers that are gone.
    device_slab device_;
    host_slab host_;
    device_slab messages_;
    std::vector<std::span<std::byte>> pieces_;
    /// Of stashes that are offloaded in part.
    std::deque<std::vector<std::span<std::byte>>> joined_;
    std::vector<execution::copy_piece> copies_;
    std::vector<envelope> envelopes_;
    std::vector<task> tasks_;
    std::vector<marker_id> waits_;
    std::vector<execution::marker_of<Executor>> markers_;
    std::vector<lane_type> lanes_;
};

/// One step of one rank. Who runs many makes a `runner` once.
template <class Executor, class Model> void run(const rank_program& p, Executor& on, Model& model) {
    runner<Executor, Model>{p, on, model}.step();
}

} // namespace optpipe
