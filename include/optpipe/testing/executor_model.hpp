#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::testing {

/// A stage model that computes nothing, and only checks and fills buffers. Each operation checks all its buffers byte
/// by byte, and writes data for the next operations. A check that fails throws an exception that describes the error.
/// The host must be able to read the memory.
class tracing_model {
public:
    using spend_time = std::function<void(const operation&)>;

    explicit tracing_model(std::size_t stages, spend_time spend = {})
        : spend_{std::move(spend)}, is_complete_(stages) {}

    template <class Lane> void forward(Lane&, const execution::forward_task& t) {
        read(t);
        spend(operation_of(t));
        write(t);
    }
    template <class Lane> void backward_input(Lane&, const execution::backward_task& t) {
        read(t);
        spend(operation_of(t));
        write(t);
    }
    /// Reads the inputs of both tasks before it writes any output. After the outputs of one task, reads the other
    /// task's inputs again. Fills and checks the memory of the pair.
    template <class Lane> void overlap(Lane& on, const execution::forward_task& f, const execution::backward_task& b) {
        const auto memory = mixed(activation(f.stage, f.microbatch), 14);
        write(b.pair_memory, memory);
        read(f);
        read(b);
        spend(operation_of(b));
        spend(operation_of(f));
        write(f);
        read(b);
        write(b);
        read(f);
        expect(b.pair_memory, memory, operation_of(f), "memory of the pair");
        if (b.is_full)
            backward_weight(on, {b.stage, b.microbatch, b.kept, b.added, b.restored_kept, b.storage, b.is_last});
        ++pairs_;
    }
    template <class Lane> void backward_weight(Lane&, const execution::weight_task& t) {
        const operation op{t.stage, operation_kind::backward_weight, t.microbatch};
        const auto back = mixed(activation(t.stage, t.microbatch), 12);
        expect(t.kept, mixed(back, 3), op, "kept stash");
        expect(t.added, mixed(back, 4), op, "added stash");
        expect(t.restored_kept, mixed(back, 8), op, "restored stash");
        spend(op);
        ++weights_;
        is_complete_[t.stage.position()] = t.is_last;
    }
    template <class Lane> void recompute(Lane&, const execution::recompute_task& t) {
        const operation op{t.stage, operation_kind::recompute, t.microbatch};
        const auto value = activation(t.stage, t.microbatch);
        expect(t.kept, mixed(value, 1), op, "kept stash");
        expect(t.freed, mixed(value, 2), op, "freed stash");
        expect_keys_values(t.keys_values, op);
        spend(op);
        write(t.restored_kept, mixed(value, 6));
        write(t.restored_freed, mixed(value, 7));
        ++recomputations_;
    }
    template <class Lane> void update(Lane&, stage) { ++updates_; }
    template <class Lane> void reduce(Lane&, stage which) {
        if (!is_complete_[which.position()])
            throw error{"stage " + std::to_string(which.value()) + " is reduced before its last weight gradient"};
        ++reductions_;
    }

    /// Number of finished weight gradients, recomputations, pairs, updates and reductions. Read these numbers only
    /// after the executor has finished.
    [[nodiscard]] std::size_t weights() const { return weights_; }
    [[nodiscard]] std::size_t recomputations() const { return recomputations_; }
    [[nodiscard]] std::size_t pairs() const { return pairs_; }
    [[nodiscard]] std::size_t updates() const { return updates_; }
    [[nodiscard]] std::size_t reductions() const { return reductions_; }

private:
    static std::uint64_t mixed(std::uint64_t value, std::uint64_t with) {
        auto z = value + (with + 1) * 0x9e3779b97f4a7c15U;
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        return z ^ (z >> 27U);
    }
    static std::uint64_t activation(stage s, microbatch m) { return mixed(2 * std::uint64_t{s.value()}, m.value()); }
    static std::uint64_t gradient(stage from, stage to, microbatch m) {
        return mixed(mixed(2 * std::uint64_t{from.value()} + 1, to.value()), m.value());
    }
    static std::byte byte_at(std::uint64_t value, std::size_t i) {
        return static_cast<std::byte>((value >> (8 * (i % 8))) + i / 8);
    }

    static void write(std::span<std::byte> to, std::uint64_t value, std::size_t from = 0) {
        for (std::size_t i = 0; i < to.size(); ++i)
            to[i] = byte_at(value, from + i);
    }
    static void write(execution::stash_part to, std::uint64_t value) {
        std::size_t at = 0;
        for (const auto& piece : to) {
            write(piece, value, at);
            at += piece.size();
        }
    }
    static void expect(std::span<const std::byte> is, std::uint64_t value, const operation& op, const char* which,
                       std::size_t from = 0) {
        for (std::size_t i = 0; i < is.size(); ++i)
            if (is[i] != byte_at(value, from + i))
                throw error{std::string{"byte "} + std::to_string(from + i) + " of the " + which + " of " +
                            to_string(op) + " isn't what was written there"};
    }
    static void expect(execution::stash_part is, std::uint64_t value, const operation& op, const char* which) {
        std::size_t at = 0;
        for (const auto& piece : is) {
            expect(piece, value, op, which, at);
            at += piece.size();
        }
    }
    /// Checks the attention keys and values of the slices in `all`. A forward's own slice is skipped, because it isn't
    /// written yet.
    static void expect_keys_values(std::span<const execution::slice_memory> all, const operation& op) {
        for (const auto& each : all)
            if (op.kind != operation_kind::forward || each.slice != op.microbatch)
                expect(each.data, mixed(activation(op.stage, each.slice), 11), op, "keys and values");
    }
    static operation operation_of(const execution::forward_task& t) { return optpipe::forward(t.stage, t.microbatch); }
    static operation operation_of(const execution::backward_task& t) {
        return optpipe::backward_input(t.stage, t.microbatch);
    }
    /// Checks all buffers that the forward reads.
    static void read(const execution::forward_task& t) {
        const auto op = operation_of(t);
        for (const auto& each : t.inputs)
            expect(each.data, activation(each.from, t.microbatch), op, "input");
        expect_keys_values(t.keys_values, op);
    }
    static void write(const execution::forward_task& t) {
        const auto value = activation(t.stage, t.microbatch);
        write(t.kept, mixed(value, 1));
        write(t.freed, mixed(value, 2));
        for (const auto& each : t.outputs)
            write(each.data, value);
        for (const auto& each : t.partials)
            write(each.data, mixed(value, 10));
        if (!t.keys_values.empty() && t.keys_values.back().slice == t.microbatch)
            write(t.keys_values.back().data, mixed(value, 11));
    }
    /// Checks all buffers that the backward reads. Expected gradients of keys and values depend on the last slice that
    /// added to them.
    static void read(const execution::backward_task& t) {
        const auto op = operation_of(t);
        const auto value = activation(t.stage, t.microbatch);
        for (const auto& each : t.inputs)
            expect(each.data, gradient(each.from, t.stage, t.microbatch), op, "input");
        for (const auto& each : t.partials)
            expect(each.data, mixed(activation(each.from, t.microbatch), 10), op, "partial result");
        expect(t.kept, mixed(value, 1), op, "kept stash");
        expect(t.freed, mixed(value, 2), op, "freed stash");
        expect(t.restored_kept, mixed(value, 6), op, "restored stash, kept");
        expect(t.restored_freed, mixed(value, 7), op, "restored stash, freed");
        expect_keys_values(t.keys_values, op);
        if (t.keys_values_gradients.size() < t.keys_values.size()) return; // the last slice sets the gradients of keys
                                                                           // and values
        for (const auto& each : t.keys_values_gradients)
            expect(each.data, mixed(mixed(activation(t.stage, each.slice), 13), t.microbatch.value() + 1), op,
                   "gradient of keys and values");
    }
    static void write(const execution::backward_task& t) {
        const auto back = mixed(activation(t.stage, t.microbatch), 12);
        write(t.kept, mixed(back, 3));
        write(t.freed, mixed(back, 5));
        write(t.added, mixed(back, 4));
        write(t.restored_kept, mixed(back, 8));
        write(t.restored_freed, mixed(back, 9));
        for (const auto& each : t.outputs)
            write(each.data, gradient(t.stage, each.to, t.microbatch));
        for (const auto& each : t.keys_values_gradients)
            if (each.slice != t.microbatch)
                write(each.data, mixed(mixed(activation(t.stage, each.slice), 13), t.microbatch.value()));
    }
    void spend(const operation& op) const {
        if (spend_) spend_(op);
    }

    spend_time spend_;
    /// For each stage, whether its last weight gradient was marked as `is_last`. Stored as bytes, because several lanes
    /// write to the vector.
    std::vector<unsigned char> is_complete_;
    std::size_t weights_ = 0;
    std::size_t recomputations_ = 0;
    std::size_t pairs_ = 0;
    std::size_t updates_ = 0;
    std::size_t reductions_ = 0;
};

} // namespace optpipe::testing
