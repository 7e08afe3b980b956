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
        for (const auto where : streams_once_issued()) {
            try {
                by_.await(where);
            } catch (const detail::stuck_error& e) {
                give_up(e.operation(), e.what());
            } catch (const optpipe::error& e) {
                give_up("on the device", e.what());
            }
        }
        if (group_.failed.happened().load()) throw group_.failed.what();
    }
    void cancel(std::string_view what_it_did, std::string_view reason) {
        give_up(std::string{what_it_did}, std::string{reason});
        const std::scoped_lock lock{group_.mutex};
        flow::drain(group_);
    }

    /// Makes all lanes of this rank wait for an event, and a stream for all that is in them: what a capture of a step
    /// begins and ends with. Nothing may be held back.
    void fork(const event& begin) {
        for (const auto where : streams())
            stream_ref{where}.wait(begin);
    }
    void join(stream_ref origin) {
        for (const auto where : streams()) {
            joints_.emplace_back();
            stream_ref{where}.record(joints_.back());
            origin.wait(joints_.back());
        }
    }

private:
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
    [[nodiscard]] bool is_mine(const detail::lane_state* s) const { return s->self == self_; }
    /// Waits until nothing of this rank is held back, or says what is.
    std::vector<cudaStream_t> streams_once_issued() {
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
        return streams_locked();
    }
    std::vector<cudaStream_t> streams() {
        const std::scoped_lock lock{group_.mutex};
        return streams_locked();
    }
    std::vector<cudaStream_t> streams_locked() {
        std::vector<cudaStream_t> all;
        for (const auto* s : group_.lanes)
            if (is_mine(s)) all.push_back(s->target.native());
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
