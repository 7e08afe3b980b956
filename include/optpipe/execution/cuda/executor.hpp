#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/cuda/captured_step.hpp"
#include "optpipe/execution/cuda/clock.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/hardware_queues.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/loopback.hpp"
#include "optpipe/execution/cuda/numa.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/cuda/slab.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/executor.hpp"
#include "optpipe/execution/failure_channel.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::cuda {

/// Allocates a rank's memory. Places host memory on the device's NUMA node.
class memory {
public:
    explicit memory(int device, std::size_t pinned_part, leak_flag leaks)
        : device_{device}, pinned_part_{pinned_part}, leaks_{std::move(leaks)} {}
    [[nodiscard]] device_slab device(std::size_t bytes) {
        const current_device here{device_};
        return device_slab{bytes, leaks_};
    }
    [[nodiscard]] pinned_slab host(std::size_t bytes) {
        const current_device here{device_};
        const auto near = detail::processors_of_node(attribute(device_, cudaDevAttrHostNumaId));
        return pinned_slab{bytes, {.part = pinned_part_, .processors = near}, leaks_};
    }
    /// Number of free bytes on the device. All ranks must have joined, and the weights must be allocated. A plan may
    /// use the free bytes for stashes and messages. All ranks on the device share the free bytes.
    [[nodiscard]] std::size_t available() const {
        const current_device here{device_};
        std::size_t free = 0;
        std::size_t total = 0;
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return free;
    }

private:
    int device_;
    std::size_t pinned_part_;
    leak_flag leaks_;
};

class copy_engine {
public:
    void copy(lane& on, execution::copy_direction way, const task_label& label, execution::copy_pieces pieces) {
        on.copy(label, pieces, way == execution::copy_direction::out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice);
    }
};

/// Passes messages to the carrier of the lane.
class transport {
public:
    void exchange(lane& on, execution::message_ends messages) { on.exchange(messages); }
};

/// A step that an executor has captured as a graph.
using step_graph = index<struct step_graph_tag>;

/// One rank on a CUDA device. Only the thread that issues may use an executor. Make programs for this executor with
/// `cuda::lowering_defaults` or `nccl::lowering_defaults`, perhaps changed.
class executor {
public:
    using lane_type = lane;

    executor(detail::rank_group& group, detail::carrier& by, options how, rank self, std::size_t ranks)
        : group_{group}, by_{by}, how_{std::move(how)}, ranks_{ranks}, place_{self, how_.device_of(self),
                                                                              detail::whole_pages(how_.pinned_part)},
          leaks_{std::make_shared<std::atomic<bool>>(false)}, memory_{place_.device, how_.pinned_part, leaks_} {
        const current_device here{place_.device};
        if (how_.record_times) place_.clock = std::make_unique<detail::device_clock>();
    }
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;

    [[nodiscard]] rank self() const { return place_.self; }
    [[nodiscard]] std::size_t ranks() const { return ranks_; }
    [[nodiscard]] int device() const { return place_.device; }
    [[nodiscard]] lane open_lane(lane_kind kind, std::size_t commands) {
        const current_device here{place_.device};
        const cudaStream_t given = how_.streams ? how_.streams(self(), kind) : nullptr;
        auto own = given ? nullptr : std::make_unique<stream>(priority_of(kind));
        const stream_ref where = given ? stream_ref{given} : *own;
        lane made{std::make_unique<detail::lane_state>(group_, place_, by_, where, std::move(own), kind, commands)};
        warn_of_queues();
        return made;
    }
    [[nodiscard]] marker make_marker() {
        const current_device here{place_.device};
        return {};
    }
    [[nodiscard]] copy_engine& copies() { return copies_; }
    [[nodiscard]] cuda::transport& transport() { return transport_; }
    [[nodiscard]] cuda::memory& memory() { return memory_; }

    /// Waits for all work, including captured steps.
    void finish() {
        const auto mine = lanes_once_issued();
        if (group_.failed.happened().load()) tell_and_abandon();
        if (await_all(mine, how_.patience) != wait_end::over)
            drained_ = std::max(drained_, await_all(mine, how_.drain));
        if (drained_ != wait_end::over) leaks_->store(true);
        if (group_.failed.happened().load()) throw what_happened();
        for (auto* s : mine)
            s->issued.clear();
        try {
            for (auto* s : mine)
                s->measure();
            if (place_.clock) place_.clock->end_step();
        } catch (const cuda::error& e) {
            give_up("the times of a step", e.what());
            throw what_happened();
        }
        has_launched_ = false;
        by_.forget_messages();
    }
    void cancel(std::string_view what_it_did, std::string_view reason) {
        give_up(std::string{what_it_did}, std::string{reason});
        std::unique_lock lock{group_.mutex};
        flow::drain(group_, lock);
    }

    /// Captures the commands of `issue()` as one graph. The graph is destroyed together with the executor. `capture`
    /// can't be used with `options::record_times`. No work may be running when `capture` is called. The lanes and their
    /// memory must still exist when the graph is launched. Throws `execution_error` if the step can't be issued. If an
    /// operation fails, all ranks throw its error.
    template <class Issue> step_graph capture(const Issue& issue) { return capture(std::array{this}, issue); }
    /// Captures one graph with the steps of all executors in `all`. The calling thread issues all steps.
    template <class Issue> step_graph capture(std::span<executor* const> all, const Issue& issue) {
        OPTPIPE_EXPECT(!how_.record_times, "cuda: a graph has no times");
        const current_device here{place_.device};
        if (!origin_) origin_.emplace();
        try {
            steps_.push_back(make_step(all, issue));
        } catch (...) {
            if (group_.failed.happened().load()) tell_and_abandon();
            throw;
        }
        return step_graph{steps_.size() - 1};
    }
    /// Starts a captured step after all earlier captured steps of this executor. `finish` waits for the step. Call
    /// `finish` between a captured step and an issued step.
    void launch(step_graph which) {
        if (group_.failed.happened().load()) throw group_.failed.what();
        try {
            const current_device here{place_.device};
            steps_.at(which.position())->work->launch(*origin_);
            has_launched_ = true;
        } catch (const std::exception& e) {
            give_up("launching a captured step", e.what());
        }
    }

private:
    using time_point = std::chrono::steady_clock::time_point;
    /// How a wait ended. A wait on several streams has the worst of their results.
    enum class wait_end : std::uint8_t { over, failed, timed_out };

    static stream::priority priority_of(lane_kind kind) {
        return carries_messages(kind) ? stream::priority::highest : stream::priority::usual;
    }
    template <class Issue>
    std::unique_ptr<detail::captured_step> make_step(std::span<executor* const> all, const Issue& issue) {
        auto made = std::make_unique<detail::captured_step>();
        made->capture(*origin_, [&] {
            for (auto* each : all)
                each->fork(made->begin);
            issue();
            for (auto* each : all)
                each->join(*made, *origin_);
        });
        for (auto* each : all)
            each->forget_captured();
        return made;
    }
    void give_up(const std::string& operation, const std::string& reason) {
        group_.failed.report(self(), operation, reason);
        tell_and_abandon();
    }
    /// Tells the other ranks of the failure, and then abandons this rank's messages. In the reverse order, other ranks
    /// would report missing messages.
    void tell_and_abandon() {
        if (how_.failures) how_.failures->tell(group_.failed.what());
        abandon();
    }
    /// Ensures that nothing on the device waits for other ranks any longer. Graphs are destroyed first, because they
    /// may contain messages.
    void abandon() noexcept {
        for (auto& each : steps_)
            each->work.reset();
        by_.abandon();
    }
    [[nodiscard]] execution_error what_happened() const {
        const auto what = group_.failed.what();
        if (drained_ == wait_end::over) return what;
        const auto why = drained_ == wait_end::timed_out
                             ? " was still at it " + std::to_string(how_.drain.count()) + " ms later"
                             : std::string{" can't tell when its device is done"};
        return {what.rank(), what.operation(),
                what.reason() + "; as rank " + std::to_string(self().value()) + why + ", its memory is never freed"};
    }
    void warn_of_queues() {
        if (!how_.warn) return;
        const std::scoped_lock lock{group_.mutex};
        const auto lanes = static_cast<std::size_t>(std::count_if(
            group_.lanes.begin(), group_.lanes.end(), [&](const auto* s) { return s->place.device == place_.device; }));
        if (const auto text = detail::too_many_lanes(lanes, place_.device); !text.empty() && !has_warned_) {
            has_warned_ = true;
            how_.warn(text);
        }
    }
    void fork(const event& begin) {
        for (auto* s : lanes())
            s->target.wait(begin);
    }
    void join(detail::captured_step& step, stream_ref origin) {
        if (group_.failed.happened().load()) throw group_.failed.what();
        for (auto* s : lanes()) {
            if (!s->held.empty()) {
                // The captured step lacks the other end of a message, so the lane can't continue.
                group_.failed.report(self(), to_string(s->held.front().label), "its partner wasn't captured with it");
                throw group_.failed.what();
            }
            const current_device there{s->place.device};
            s->target.record(step.ends.emplace_back());
            origin.wait(step.ends.back());
        }
    }
    void forget_captured() {
        for (auto* s : lanes())
            s->issued.clear();
        by_.forget_messages();
    }
    /// Waits for all lanes. If some lanes don't finish in time, abandons the work of this rank.
    wait_end await_all(const std::vector<detail::lane_state*>& lanes, std::chrono::milliseconds limit) {
        const auto deadline = std::chrono::steady_clock::now() + limit;
        auto all = wait_end::over;
        for (const auto* s : lanes)
            all = std::max(all, await(s->target, deadline, limit));
        return has_launched_ ? std::max(all, await(*origin_, deadline, limit)) : all;
    }
    wait_end await(stream_ref s, time_point deadline, std::chrono::milliseconds limit) {
        try {
            const auto check = [&] {
                if (!group_.failed.happened().load()) execution::check_failure(how_.failures);
                by_.check_health();
            };
            if (detail::await(s, deadline, check)) return wait_end::over;
            give_up(first_open(), "not over after " + std::to_string(limit.count()) + " ms");
            return wait_end::timed_out;
        } catch (const execution_error& e) { // another rank has failed
            group_.failed.report(e.rank(), e.operation(), e.reason());
            abandon();
        } catch (const optpipe::error& e) {
            give_up(first_open(), e.what());
        }
        return wait_end::failed;
    }
    /// The task that is probably running. Prefers a task that doesn't wait for anything.
    [[nodiscard]] std::string first_open() {
        std::string place = has_launched_ ? "a captured step" : "on the device";
        try {
            if (const auto message = by_.first_open()) return to_string(*message);
            const std::scoped_lock lock{group_.mutex};
            for (const auto* s : lanes_locked()) {
                if (s->target.done()) continue; // a task for which nothing waits has no event
                if (const auto open = s->issued.first_open()) {
                    place = to_string(open->label);
                    if (!open->waits) break;
                }
            }
        } catch (const error&) { // the device can't even answer the query
        }
        return place;
    }
    [[nodiscard]] bool is_mine(const detail::lane_state* s) const { return &s->place == &place_; }
    /// Waits until all commands of this rank are in the streams. If the wait takes too long, reports the first command
    /// that is still waiting.
    std::vector<detail::lane_state*> lanes_once_issued() {
        std::unique_lock lock{group_.mutex};
        const auto held = [&]() -> const detail::lane_state* {
            for (const auto* s : group_.lanes)
                if (is_mine(s) && !s->held.empty() && s->is_offered) return s;
            for (const auto* s : group_.lanes)
                if (is_mine(s) && !s->held.empty()) return s;
            return nullptr;
        };
        const auto free = [&] { return !held() || group_.failed.happened().load(); };
        place_.issuer = std::this_thread::get_id();
        flow::drain(group_, lock);
        while (!free()) {
            if (!group_.moved.wait_for(lock, how_.patience, [&] { return free() || flow::has_launch(group_); })) {
                const auto& front = held()->held.front();
                give_up(to_string(front.label),
                        "its partner didn't come within " + std::to_string(how_.patience.count()) + " ms");
            }
            flow::drain(group_, lock);
        }
        return lanes_locked();
    }
    std::vector<detail::lane_state*> lanes() {
        const std::scoped_lock lock{group_.mutex};
        return lanes_locked();
    }
    std::vector<detail::lane_state*> lanes_locked() {
        std::vector<detail::lane_state*> all;
        for (auto* s : group_.lanes)
            if (is_mine(s)) all.push_back(s);
        return all;
    }

    detail::rank_group& group_;
    detail::carrier& by_;
    options how_;
    std::size_t ranks_;
    detail::rank_place place_;
    std::shared_ptr<std::atomic<bool>> leaks_;
    copy_engine copies_;
    cuda::transport transport_;
    cuda::memory memory_;
    /// The stream of captures and of captured steps. Created by the first capture.
    std::optional<stream> origin_;
    std::vector<std::unique_ptr<detail::captured_step>> steps_;
    /// Whether captured steps were launched after the executor last finished.
    bool has_launched_ = false;
    /// How the wait after an error ended. If the device didn't finish, its memory must never be freed.
    wait_end drained_ = wait_end::over;
    bool has_warned_ = false;
};

static_assert(execution::check_executor<executor>());

/// The ranks of one process, on one device or several devices. Virtual ranks on one GPU can divide its multiprocessors
/// (`green_contexts`). Virtual ranks share the GPU's memory, bandwidth and host link.
class cluster {
public:
    explicit cluster(std::size_t ranks, const options& how = {}) {
        if (!how.devices.empty() && how.devices.size() != ranks)
            throw optpipe::error{"cuda: " + std::to_string(ranks) + " ranks, and devices for " +
                                 std::to_string(how.devices.size())};
        enable_peer_access(std::set(how.devices.begin(), how.devices.end()));
        for (const rank r : index_range<rank>{ranks})
            executors_.push_back(std::make_unique<executor>(group_, messages_, how, r, ranks));
    }
    [[nodiscard]] std::size_t ranks() const { return executors_.size(); }
    [[nodiscard]] executor& operator[](rank r) { return *executors_[r.position()]; }

    /// Captures the steps of all ranks as one graph. See `executor::capture`.
    template <class Issue> step_graph capture(const Issue& issue) {
        std::vector<executor*> all;
        for (const auto& each : executors_)
            all.push_back(each.get());
        return executors_.front()->capture(all, issue);
    }
    void launch(step_graph which) { executors_.front()->launch(which); }
    /// Waits for all ranks, and then throws the first error.
    void finish() {
        std::exception_ptr first;
        for (auto& each : executors_) {
            try {
                each->finish();
            } catch (...) {
                if (!first) first = std::current_exception();
            }
        }
        if (first) std::rethrow_exception(first);
    }

private:
    detail::rank_group group_;
    loopback messages_;
    std::vector<std::unique_ptr<executor>> executors_;
};

} // namespace optpipe::cuda
