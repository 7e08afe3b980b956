#pragma once

#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/program/graph.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

namespace detail {

/// Returns the kind of operation, on another lane, that allocated the memory for which `last_use` is the last user.
/// Returns nothing if memory of other lanes isn't used. A forward allocates a stash, and an offload copies the stash to
/// memory that the offload allocates. A reload copies the stash back to memory that the reload allocates, and a
/// backward reads this memory.
[[nodiscard]] inline std::optional<operation_kind> allocator_for(operation_kind last_use) {
    switch (last_use) {
    case operation_kind::offload: return operation_kind::forward;
    case operation_kind::reload: return operation_kind::offload;
    case operation_kind::backward_input:
    case operation_kind::backward_weight:
    case operation_kind::backward: return operation_kind::reload;
    case operation_kind::forward:
    case operation_kind::recompute: return std::nullopt;
    }
    return std::nullopt;
}

} // namespace detail

/// Maps operations of a program to the operations whose memory is free when the mapped operation starts. These
/// operations have certainly ended by then. They were the last users of memory that the mapped operation's lane
/// allocated. Each of them is listed once, for the first operation to which this applies.
[[nodiscard]] inline std::map<operation, std::vector<operation>> memory_freed_before(const rank_program& p) {
    const auto is_task = [](const instruction& i) {
        return i.kind == instruction_kind::compute || i.kind == instruction_kind::copy;
    };
    std::map<operation_kind, std::uint8_t> lane_of;
    for (const auto& each : p.instructions)
        if (is_task(each)) lane_of[each.op.kind] = each.lane;
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t user = 0; user < p.instructions.size(); ++user) {
        if (!is_task(p.instructions[user])) continue;
        const auto by = detail::allocator_for(p.instructions[user].op.kind);
        if (!by || !lane_of.contains(*by)) continue;
        for (std::size_t next = user + 1; next < p.instructions.size(); ++next)
            if (is_task(p.instructions[next]) && p.instructions[next].lane == lane_of.at(*by))
                pairs.emplace_back(user, next);
    }
    const auto ordered = program_graph{std::span{&p, 1}, {}}.ordered(0, pairs);
    std::map<operation, std::vector<operation>> freed;
    std::optional<std::size_t> last;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const auto [user, next] = pairs[i];
        if (!ordered[i] || last == user) continue;
        freed[p.instructions[next].op].push_back(p.instructions[user].op);
        last = user;
    }
    return freed;
}

/// Memory of stashes for lanes that run tasks later than these are issued, such as CUDA streams. The allocator gives
/// freed memory to the next tensor of the lane that allocated it, even if other lanes still use this memory. So memory
/// that a task of another lane uses last is held for longer. It is freed when the allocating lane starts a task that,
/// by the program's markers, runs after this last use. No lane and no thread waits for memory to become free.
///
/// Each lane has memory of its own, so LibTorch may take more memory than planned. The difference may be as large as
/// the memory that reloaded stashes take at the same time. All calls come from the thread that issues the tasks.
class held_memory : public stash_memory {
public:
    explicit held_memory(const rank_program& p) : freed_before_{memory_freed_before(p)} {}

    void retire(c10::Storage memory) override { retired_.push_back(std::move(memory)); }
    void begin(const operation& op) override {
        const auto freed = freed_before_.find(op);
        if (freed == freed_before_.end()) return;
        for (const auto& user : freed->second)
            held_.erase(user);
    }
    /// Holds the memory that this operation used last. Memory that a tensor still uses after a computation is kept
    /// until the end of the step.
    void end(const operation& op) override {
        for (auto& memory : retired_)
            if (is_transfer(op.kind) || memory.use_count() == 1)
                held_[op].push_back(std::move(memory));
            else
                kept_.push_back(std::move(memory));
        retired_.clear();
    }
    void end_step() override {
        held_.clear();
        kept_.clear();
        retired_.clear();
    }

private:
    std::map<operation, std::vector<operation>> freed_before_;
    /// Indexed by the operation that used the memory last.
    std::map<operation, std::vector<c10::Storage>> held_{};
    std::vector<c10::Storage> retired_{}, kept_{};
};

} // namespace optpipe::libtorch
