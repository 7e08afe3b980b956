#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/bound_program.hpp"
#include "optpipe/program/ir.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace optpipe::execution {

/// The program of one rank for a plan, or the reason for refusing the plan.
struct prepared_program {
    rank_program program{};
    std::optional<bound_program> bound{};
    std::string refusal{};
};

/// The program of rank `self` among the programs of a plan. Throws `error` for a different number of ranks, or programs
/// that `check_programs` rejects.
[[nodiscard]] rank_program checked_program(per_rank<rank_program> all, rank self, std::size_t ranks);
/// Throws `error` unless both programs have the same stages and microbatches.
void check_same_work(const rank_program& next, const rank_program& first);
/// A text such as "rank 2 refuses plan 1: ...".
[[nodiscard]] std::string refusal_of(rank self, std::uint64_t plan, const std::string& why);

/// A thread that prepares one plan at a time.
class program_preparer {
public:
    using prepare_call = std::function<prepared_program(const std::string& plan)>;

    /// `prepare` must not throw.
    explicit program_preparer(prepare_call prepare);
    program_preparer(const program_preparer&) = delete;
    program_preparer& operator=(const program_preparer&) = delete;
    /// Waits for the plan that is being prepared.
    ~program_preparer();

    /// Submits a plan to be prepared. The preparer's thread also destroys `retired`, which may take long.
    void submit(std::string plan, std::shared_ptr<void> retired);
    /// The last submitted plan, once it is prepared. Each plan is returned only once.
    [[nodiscard]] std::optional<prepared_program> poll();
    /// Waits until no submitted plan is left to prepare.
    void wait();

private:
    void work();

    prepare_call prepare_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<std::string> plan_;
    std::shared_ptr<void> retired_;
    std::optional<prepared_program> prepared_;
    bool is_preparing_ = false;
    bool stops_ = false;
    std::thread thread_;
};

} // namespace optpipe::execution

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/error.hpp"
#include "optpipe/program/check.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace optpipe::execution {
namespace detail {

inline std::vector<stage> stages_of(const rank_program& p) {
    std::vector<stage> all;
    for (const auto& i : p.instructions)
        if (i.kind == instruction_kind::compute) all.push_back(i.op.stage);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

} // namespace detail

OPTPIPE_INLINE rank_program checked_program(per_rank<rank_program> all, rank self, std::size_t ranks) {
    if (all.size() != ranks)
        throw error{"a plan for " + std::to_string(all.size()) + " ranks, of which there are " + std::to_string(ranks)};
    for (const auto& found : check_programs(all))
        throw error{found.text()};
    return std::move(all[self]);
}
OPTPIPE_INLINE void check_same_work(const rank_program& next, const rank_program& first) {
    if (detail::stages_of(next) != detail::stages_of(first) || next.microbatches != first.microbatches)
        throw error{"it has other stages on this rank, or other microbatches"};
}
OPTPIPE_INLINE std::string refusal_of(rank self, std::uint64_t plan, const std::string& why) {
    return "rank " + std::to_string(self.value()) + " refuses plan " + std::to_string(plan) + ": " + why;
}

OPTPIPE_INLINE program_preparer::program_preparer(prepare_call prepare)
    : prepare_{std::move(prepare)}, thread_{[this] { work(); }} {}

OPTPIPE_INLINE program_preparer::~program_preparer() {
    {
        const std::scoped_lock lock{mutex_};
        stops_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

OPTPIPE_INLINE void program_preparer::submit(std::string plan, std::shared_ptr<void> retired) {
    {
        const std::scoped_lock lock{mutex_};
        plan_ = std::move(plan);
        retired_ = std::move(retired);
    }
    changed_.notify_all();
}

OPTPIPE_INLINE std::optional<prepared_program> program_preparer::poll() {
    const std::scoped_lock lock{mutex_};
    return std::exchange(prepared_, std::nullopt);
}

OPTPIPE_INLINE void program_preparer::wait() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return !plan_ && !is_preparing_; });
}

OPTPIPE_INLINE void program_preparer::work() {
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [&] { return stops_ || plan_; });
        if (stops_) return;
        const auto plan = *std::exchange(plan_, std::nullopt);
        auto retired = std::exchange(retired_, nullptr);
        is_preparing_ = true;
        lock.unlock();
        retired.reset();
        auto made = prepare_(plan);
        lock.lock();
        prepared_ = std::move(made);
        is_preparing_ = false;
        changed_.notify_all();
    }
}

} // namespace optpipe::execution
#endif
