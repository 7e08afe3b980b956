#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/execution/cuda/device.hpp"
#include "optpipe/execution/cuda/lane.hpp"
#include "optpipe/execution/cuda/loopback.hpp"
#include "optpipe/execution/cuda/options.hpp"
#include "optpipe/execution/cuda/slab.hpp"
#include "optpipe/execution/cuda/stream.hpp"
#include "optpipe/execution/executor.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::cuda {

class memory {
public:
    explicit memory(int device) : device_{device} {}
    [[nodiscard]] device_slab device(std::size_t bytes) {
        const current_device here{device_};
        return device_slab{bytes};
    }
    [[nodiscard]] pinned_slab host(std::size_t bytes) {
        const current_device here{device_};
        return pinned_slab{bytes};
    }

private:
    int device_;
};

class copy_engine {
public:
    void copy_out(lane& on, const task_label& label, execution::copy_pieces pieces) {
        on.copy(label, pieces, cudaMemcpyDeviceToHost);
    }
    void copy_in(lane& on, const task_label& label, execution::copy_pieces pieces) {
        on.copy(label, pieces, cudaMemcpyHostToDevice);
    }
};

/// Hands exchanges to the lane, which knows its carrier.
class transport {
public:
    class batch {
    public:
        void send(const task_label& what, std::span<const std::byte> data) {
            add({.sends = true, .label = what, .from = data.data(), .bytes = data.size()});
        }
        void receive(const task_label& what, std::span<std::byte> data) {
            add({.sends = false, .label = what, .to = data.data(), .bytes = data.size()});
        }

    private:
        friend class transport;
        void add(const message_end& m) {
            OPTPIPE_EXPECT(count_ < messages_.size(), "cuda: at most 4 messages in an exchange");
            messages_[count_++] = m;
        }
        std::array<message_end, execution::most_messages> messages_{};
        std::size_t count_ = 0;
    };

    template <class Messages> void exchange(lane& on, const Messages& messages) {
        batch open;
        messages(open);
        on.exchange(open.count_ > 0 ? open.messages_[0].label : task_label{},
                    std::span{open.messages_}.first(open.count_));
    }
};

/// One rank on a CUDA device. For one thread, the one that issues.
class executor {
public:
    using lane_type = lane;

    executor(detail::rank_group& group, detail::carrier& by, options how, rank self, std::size_t ranks)
        : group_{group}, by_{by}, how_{std::move(how)}, self_{self}, ranks_{ranks}, memory_{how_.device} {}
    executor(const executor&) = delete;
    executor& operator=(const executor&) = delete;

    [[nodiscard]] rank self() const { return self_; }
    [[nodiscard]] std::size_t ranks() const { return ranks_; }
    [[nodiscard]] lane open_lane(lane_kind kind, std::size_t) {
        const current_device here{how_.device};
        const cudaStream_t given = how_.streams ? how_.streams(self_, kind) : nullptr;
        auto own = given ? nullptr : std::make_unique<stream>(priority_of(kind));
        const stream_ref where = given ? stream_ref{given} : *own;
        return lane{std::make_unique<detail::lane_state>(group_, self_, by_, where, std::move(own), how_.record_times)};
    }
    [[nodiscard]] marker make_marker() {
        const current_device here{how_.device};
        return {};
    }
    [[nodiscard]] copy_engine& copies() { return copies_; }
    [[nodiscard]] cuda::transport& transport() { return transport_; }
    [[nodiscard]] cuda::memory& memory() { return memory_; }

    void finish() {
        const auto mine = lanes_once_issued();
        if (group_.failed.happened().load()) by_.abandon();
        const auto deadline = from_now();
        if (!std::all_of(mine.begin(), mine.end(), [&](const auto* s) { return await(*s, deadline); })) {
            // What is given up needs a while to end, on all lanes.
            const auto at_last = from_now();
            for (const auto* s : mine)
                static_cast<void>(await(*s, at_last));
        }
        if (group_.failed.happened().load()) throw group_.failed.what();
        for (auto* s : mine)
            s->issued.clear();
        by_.forget_messages();
    }
    void cancel(std::string_view what_it_did, std::string_view reason) {
        give_up(std::string{what_it_did}, std::string{reason});
        const std::scoped_lock lock{group_.mutex};
        flow::drain(group_);
    }

    /// Makes all lanes of this rank wait for an event, and a stream for all that is in them: what a capture of a step
    /// begins and ends with. Nothing may be held back.
    void fork(const event& begin) {
        for (auto* s : lanes())
            s->target.wait(begin);
    }
    void join(stream_ref origin) {
        for (auto* s : lanes()) {
            joints_.emplace_back();
            s->target.record(joints_.back());
            origin.wait(joints_.back());
        }
    }

private:
    using time_point = std::chrono::steady_clock::time_point;

    static stream::priority priority_of(lane_kind kind) {
        switch (kind) {
        case lane_kind::compute:
        case lane_kind::copy:
        case lane_kind::copy_out:
        case lane_kind::copy_in: return stream::priority::usual;
        case lane_kind::send_forward:
        case lane_kind::receive_forward:
        case lane_kind::send_backward:
        case lane_kind::receive_backward:
        case lane_kind::forward:
        case lane_kind::backward:
        case lane_kind::communication: return stream::priority::highest;
        }
        return stream::priority::usual;
    }
    void give_up(const std::string& operation, const std::string& reason) {
        group_.failed.report(self_, operation, reason);
        by_.abandon();
    }
    [[nodiscard]] time_point from_now() const { return std::chrono::steady_clock::now() + how_.patience; }
    /// False if it gave up.
    bool await(const detail::lane_state& s, time_point deadline) {
        try {
            if (detail::await(s.target, deadline, [&] { by_.check_health(); })) return true;
            give_up(first_open(), "not over after " + std::to_string(how_.patience.count()) + " ms");
        } catch (const optpipe::error& e) {
            give_up(first_open(), e.what());
        }
        return false;
    }
    /// What is probably under way: rather what waits for nobody.
    [[nodiscard]] std::string first_open() {
        std::string place = "on the device";
        try {
            if (const auto message = by_.first_open()) return to_string(*message);
            const std::scoped_lock lock{group_.mutex};
            for (const auto* s : lanes_locked())
                if (const auto open = s->issued.first_open()) {
                    place = to_string(open->label);
                    if (!open->waits) break;
                }
        } catch (const error&) { // a device that doesn't even tell that
        }
        return place;
    }
    [[nodiscard]] bool is_mine(const detail::lane_state* s) const { return s->self == self_; }
    /// Waits until nothing of this rank is held back, or says what is.
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
        if (!group_.moved.wait_for(lock, how_.patience, free)) {
            const auto& front = held()->held.front();
            give_up(to_string(front.label),
                    "its partner didn't come within " + std::to_string(how_.patience.count()) + " ms");
        }
        if (group_.failed.happened().load()) flow::drain(group_);
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
    rank self_;
    std::size_t ranks_;
    copy_engine copies_;
    cuda::transport transport_;
    cuda::memory memory_;
    std::vector<event> joints_;
};

static_assert(execution::check_executor<executor>());

/// Several virtual ranks on one GPU, in one process. Their multiprocessors can be divided by streams from
/// `green_contexts`; memory, its bandwidth and the link to the host are shared.
class cluster {
public:
    explicit cluster(std::size_t ranks, const options& how = {}) {
        const current_device here{how.device};
        group_.begin_times(how);
        for (const rank r : index_range<rank>{ranks})
            executors_.push_back(std::make_unique<executor>(group_, messages_, how, r, ranks));
    }
    [[nodiscard]] std::size_t ranks() const { return executors_.size(); }
    [[nodiscard]] executor& operator[](rank r) { return *executors_[r.position()]; }

private:
    detail::rank_group group_;
    loopback messages_;
    std::vector<std::unique_ptr<executor>> executors_;
};

} // namespace optpipe::cuda
