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

/// The kind of operation that allocates the memory that this kind uses last, if that is on another lane. A forward
/// allocates a stash, which an offload copies to memory that it allocates itself. A reload reads that memory, and
/// allocates memory that a backward reads.
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

/// For each operation of a program, the operations whose memory is free once it starts: each of them has certainly
/// ended by then, and used memory of this operation's lane. An operation is listed once, for the first such operation.
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
/// freed memory to the next tensor of the lane that allocated it, without asking whether other lanes still use it.
/// Memory that a task of another lane uses last is therefore held until a task of the allocating lane starts after it,
/// as the program's markers say. No lane and no thread waits for that.
///
/// Each lane has memory of its own, so LibTorch may have more memory than the plan counts: as much as reloaded stashes
/// take at once. All calls come from the thread that issues.
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
    /// Memory of which a tensor outlives the last task that should use it is kept to the end of the step.
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
    /// By the operation that used the memory last.
    std::map<operation, std::vector<c10::Storage>> held_{};
    std::vector<c10::Storage> retired_{}, kept_{};
};

} // namespace optpipe::libtorch
