#pragma once

#include "optpipe/execution/libtorch/memory.hpp"
#include "optpipe/program/graph.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/schedule/operation.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

namespace detail {

/// Returns the kind of operation that allocates the memory last used by `last_use`. Returns nothing if `last_use` uses
/// only memory of its own lane. An offload reads memory of a forward, and a reload reads memory of an offload. A
/// backward reads memory of a reload.
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

/// Finds the first task of a lane that starts after `user` has ended, by binary search. `user` is a task of another
/// lane. All later tasks of the lane also start after `user` has ended.
class first_task_after {
public:
    /// `tasks` has the positions of the lane's tasks, and must outlive this object.
    first_task_after(std::size_t user, const std::vector<std::size_t>& tasks)
        : user_{user}, tasks_{&tasks}, end_{tasks.size()} {
        begin_ = static_cast<std::size_t>(std::upper_bound(tasks.begin(), tasks.end(), user) - tasks.begin());
    }
    [[nodiscard]] std::size_t user() const { return user_; }
    [[nodiscard]] bool is_over() const { return begin_ == end_; }
    /// The pair of tasks whose order decides the next step of the search.
    [[nodiscard]] std::pair<std::size_t, std::size_t> question() const { return {user_, (*tasks_)[middle()]}; }
    void answer(bool is_ordered) {
        if (is_ordered)
            end_ = middle();
        else
            begin_ = middle() + 1;
    }
    /// Contract: the search is over.
    [[nodiscard]] std::optional<std::size_t> found() const {
        return end_ < tasks_->size() ? std::optional{(*tasks_)[end_]} : std::nullopt;
    }

private:
    [[nodiscard]] std::size_t middle() const { return begin_ + (end_ - begin_) / 2; }

    std::size_t user_;
    const std::vector<std::size_t>* tasks_;
    std::size_t begin_ = 0, end_;
};

/// Advances all searches together, because the graph answers many questions at once.
inline void find_all(std::vector<first_task_after>& searches, const program_graph& graph) {
    std::vector<first_task_after*> open;
    for (auto& each : searches)
        open.push_back(&each);
    while (true) {
        std::erase_if(open, [](const auto* each) { return each->is_over(); });
        if (open.empty()) return;
        std::vector<std::pair<std::size_t, std::size_t>> questions;
        for (const auto* each : open)
            questions.push_back(each->question());
        const auto answers = graph.ordered(0, questions);
        for (std::size_t i = 0; i < open.size(); ++i)
            open[i]->answer(answers[i]);
    }
}

} // namespace detail

/// Lists, for each operation, the last users of memory that can be freed at its start. The freed memory belongs to the
/// operation's lane, and the last users have certainly ended. Each last user is listed once, at the earliest possible
/// operation.
[[nodiscard]] inline std::map<operation, std::vector<operation>> memory_freed_before(const rank_program& p) {
    const auto is_task = [](const instruction& i) {
        return i.kind == instruction_kind::compute || i.kind == instruction_kind::copy;
    };
    std::map<operation_kind, std::uint8_t> lane_of;
    std::map<std::uint8_t, std::vector<std::size_t>> tasks_of;
    for (std::size_t i = 0; i < p.instructions.size(); ++i)
        if (const auto& each = p.instructions[i]; is_task(each)) {
            lane_of[each.op.kind] = each.lane;
            tasks_of[each.lane].push_back(i);
        }
    std::vector<detail::first_task_after> searches;
    for (std::size_t user = 0; user < p.instructions.size(); ++user) {
        if (!is_task(p.instructions[user])) continue;
        const auto by = detail::allocator_for(p.instructions[user].op.kind);
        if (by && lane_of.contains(*by)) searches.emplace_back(user, tasks_of.at(lane_of.at(*by)));
    }
    detail::find_all(searches, program_graph{std::span{&p, 1}, {}});
    std::map<operation, std::vector<operation>> freed;
    for (const auto& each : searches)
        if (const auto next = each.found()) freed[p.instructions[*next].op].push_back(p.instructions[each.user()].op);
    return freed;
}

/// Memory of stashes for asynchronous lanes, such as CUDA streams. LibTorch's allocator reuses freed memory in the same
/// lane, even if other lanes still use it. Memory whose last user is a task of another lane is held back. The
/// allocating lane frees the memory at its first task after the last user. No lane and no thread waits for memory to
/// become free.
///
/// Each lane has memory of its own, so LibTorch may take more memory than planned. The excess can reach the size of all
/// stashes reloaded at the same time.
///
/// Host memory has no lane, so other threads could reuse it too early. The rank keeps freed host memory for its own
/// offloads until the step ends.
///
/// All calls come from the issuing thread; autograd's thread may also call `retire`.
class held_memory : public stash_memory {
public:
    explicit held_memory(const rank_program& p) : freed_before_{memory_freed_before(p)} {}

    [[nodiscard]] at::Tensor on_host(std::int64_t bytes, at::Device of) override {
        auto& spare = spare_[bytes];
        if (spare.empty()) return stash_memory::on_host(bytes, of);
        auto memory = std::move(spare.back());
        spare.pop_back();
        return memory;
    }
    void retire(c10::Storage memory) override {
        const std::scoped_lock lock{mutex_};
        retired_.push_back(std::move(memory));
    }
    void retire_host(at::Tensor memory) override { retired_host_.push_back(std::move(memory)); }
    void begin(const operation& op) override {
        const auto freed = freed_before_.find(op);
        if (freed == freed_before_.end()) return;
        for (const auto& user : freed->second) {
            held_.erase(user);
            if (const auto held = held_host_.extract(user))
                for (auto& memory : held.mapped())
                    spare_[memory.numel()].push_back(std::move(memory));
        }
    }
    /// Holds the memory whose last user is `op`. Memory that a tensor still uses is kept until the end of the step.
    void end(const operation& op) override {
        for (auto& memory : take_retired())
            if (is_transfer(op.kind) || memory.use_count() == 1)
                held_[op].push_back(std::move(memory));
            else
                kept_.push_back(std::move(memory));
        if (!retired_host_.empty()) held_host_[op] = std::exchange(retired_host_, {});
    }
    void end_step() override {
        held_.clear();
        kept_.clear();
        static_cast<void>(take_retired());
        held_host_.clear();
        retired_host_.clear();
        spare_.clear();
    }

private:
    std::vector<c10::Storage> take_retired() {
        const std::scoped_lock lock{mutex_};
        return std::exchange(retired_, {});
    }

    std::map<operation, std::vector<operation>> freed_before_;
    /// Indexed by the operation that used the memory last.
    std::map<operation, std::vector<c10::Storage>> held_{};
    std::map<operation, std::vector<at::Tensor>> held_host_{};
    /// Unused host memory, by size in bytes.
    std::map<std::int64_t, std::vector<at::Tensor>> spare_{};
    std::vector<at::Tensor> retired_host_{};
    std::vector<c10::Storage> kept_{};
    std::mutex mutex_{};
    std::vector<c10::Storage> retired_{}; // guarded by `mutex_`
};

} // namespace optpipe::libtorch
