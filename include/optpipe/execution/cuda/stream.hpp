#pragma once

#include "optpipe/execution/cuda/error.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace optpipe::cuda {

/// A point in a stream's work that other streams can wait for. An event doesn't record the time, because recording
/// times is slower. Only streams of the device that was current at construction may record an event.
class event {
public:
    event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
    event(event&& other) noexcept : event_{std::exchange(other.event_, nullptr)} {}
    event& operator=(event&& other) noexcept {
        std::swap(event_, other.event_);
        return *this;
    }
    ~event() {
        if (event_) static_cast<void>(cudaEventDestroy(event_));
    }

    [[nodiscard]] cudaEvent_t native() const { return event_; }
    /// Whether the recorded work has ended.
    [[nodiscard]] bool done() const { return detail::is_over(cudaEventQuery(event_), "cudaEventQuery"); }

protected:
    struct with_times {};
    explicit event(with_times) {
        check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreateWithFlags");
    }

private:
    cudaEvent_t event_ = nullptr;
};

/// An event that records its time.
class timed_event : public event {
public:
    timed_event() : event{with_times{}} {}
    /// Contract: both events have occurred.
    [[nodiscard]] double milliseconds_since(const timed_event& earlier) const {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, earlier.native(), native()), "cudaEventElapsedTime");
        return static_cast<double>(milliseconds);
    }
};

/// A borrowed stream.
class stream_ref {
public:
    stream_ref(cudaStream_t stream) : stream_{stream} {} // NOLINT(google-explicit-constructor)

    [[nodiscard]] cudaStream_t native() const { return stream_; }
    void record(const event& e) { check(cudaEventRecord(e.native(), stream_), "cudaEventRecord"); }
    /// Later work in the stream starts after the work that `e` recorded.
    void wait(const event& e) { check(cudaStreamWaitEvent(stream_, e.native(), 0), "cudaStreamWaitEvent"); }
    void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind direction) {
        check(cudaMemcpyAsync(to, from, bytes, direction, stream_), "cudaMemcpyAsync");
    }
    /// Whether all work in the stream has ended.
    [[nodiscard]] bool done() const { return detail::is_over(cudaStreamQuery(stream_), "cudaStreamQuery"); }
    void synchronize() { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

protected:
    cudaStream_t stream_;
};

/// An owned stream. Work in this stream doesn't wait for the default stream. The destructor doesn't wait for running
/// work.
class stream : public stream_ref {
public:
    enum class priority { usual, highest };

    explicit stream(priority p = priority::usual) : stream_ref{nullptr} {
        int least = 0;
        int greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
        check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, p == priority::highest ? greatest : least),
              "cudaStreamCreateWithPriority");
    }
    /// Takes ownership of the stream.
    explicit stream(cudaStream_t owned) : stream_ref{owned} {}
    stream(stream&& other) noexcept : stream_ref{std::exchange(other.stream_, nullptr)} {}
    stream& operator=(stream&& other) noexcept {
        std::swap(stream_, other.stream_);
        return *this;
    }
    ~stream() {
        if (stream_) static_cast<void>(cudaStreamDestroy(stream_));
    }
};

} // namespace optpipe::cuda
