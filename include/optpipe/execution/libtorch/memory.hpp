#pragma once

#include "optpipe/core/standard.hpp"
#include "optpipe/schedule/operation.hpp"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace optpipe::libtorch {

/// Waits for a device's work in this thread's current stream. Returns at once for a CPU.
inline void synchronize(at::Device with) {
    if (with.is_cpu()) return;
    const c10::impl::VirtualGuardImpl guard{with.type()};
    guard.synchronizeStream(guard.getStream(with));
}
/// Makes LibTorch return unused memory to all devices of the type of `to`.
inline void return_unused_memory(at::Device to) {
    if (!to.is_cpu()) at::getDeviceAllocator(to.type())->emptyCache();
}

/// The current number of bytes in use, and the largest number until now. Several threads may use the meter.
class byte_meter {
public:
    void add(std::size_t bytes) {
        const std::scoped_lock lock{mutex_};
        now_ += bytes;
        most_ = std::max(most_, now_);
    }
    void remove(std::size_t bytes) {
        const std::scoped_lock lock{mutex_};
        now_ -= bytes;
    }
    void forget_most() {
        const std::scoped_lock lock{mutex_};
        most_ = now_;
    }
    [[nodiscard]] std::size_t now() const {
        const std::scoped_lock lock{mutex_};
        return now_;
    }
    [[nodiscard]] std::size_t most() const {
        const std::scoped_lock lock{mutex_};
        return most_;
    }

private:
    mutable std::mutex mutex_;
    std::size_t now_ = 0, most_ = 0;
};

/// The memory of a rank's stashes. Counts the bytes of stashes, and copies stashes between device and host. In this
/// base class, `copy` is synchronous, and memory is freed with its last tensor.
class stash_memory {
public:
    stash_memory() = default;
    virtual ~stash_memory() = default;
    stash_memory(const stash_memory&) = delete;
    stash_memory& operator=(const stash_memory&) = delete;

    /// Copies all bytes of `from` to `to`, which has the same size.
    virtual void copy(const at::Tensor& to, const at::Tensor& from) { to.copy_(from); }
    /// Returns host memory for a stash of a device. The memory is pinned if the device isn't a CPU.
    [[nodiscard]] virtual at::Tensor on_host(std::int64_t bytes, at::Device of) {
        return at::empty({bytes}, at::TensorOptions{at::kByte}.pinned_memory(!of.is_cpu()));
    }
    /// Takes over device memory that another lane allocated. The current task is the last user of this memory.
    virtual void retire(c10::Storage) {}
    /// Takes over a result of `on_host`. The current task is the last user of this memory.
    virtual void retire_host(at::Tensor) {}
    /// Called before an operation's task, on the task's thread. `end` is called after the task.
    virtual void begin(const operation&) {}
    virtual void end(const operation&) {}
    /// Called when all tasks of a step have ended, and after each rehearsal.
    virtual void end_step() {}

    byte_meter device{}, host{};
};

/// Memory of one or several saved tensors, on the device or on the host. The meters count a block while it exists.
/// Workspace is memory that a backward restores for its own use. Workspace counts only after a call of `count`, because
/// no plan includes workspace.
class block {
public:
    block(c10::Storage storage, stash_memory& memory, bool is_counted)
        : storage_{std::move(storage)}, bytes_{storage_.nbytes()}, device_{storage_.device()}, memory_{memory} {
        if (is_counted) count();
    }
    ~block() {
        if (storage_ && is_counted_) memory_.device.remove(bytes_);
        if (storage_ && is_reloaded_) memory_.retire(std::move(storage_));
        if (host_.defined()) memory_.host.remove(bytes_);
    }
    block(const block&) = delete;
    block& operator=(const block&) = delete;

    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] bool is_counted() const { return is_counted_; }
    [[nodiscard]] bool is_on_device() const { return static_cast<bool>(storage_); }
    /// Contract: the block is on the device.
    [[nodiscard]] const c10::Storage& storage() const { return storage_; }
    [[nodiscard]] const void* address() const { return storage_.data(); }

    void count() {
        if (!is_counted_) memory_.device.add(bytes_);
        is_counted_ = true;
    }
    /// Contract: the block is counted.
    void move_to_host() {
        host_ = memory_.on_host(size(), device_);
        memory_.host.add(bytes_);
        memory_.copy(host_, as_bytes());
        memory_.retire(std::exchange(storage_, {}));
        memory_.device.remove(bytes_);
    }
    void move_to_device() {
        const auto there = at::empty({size()}, at::TensorOptions{at::kByte}.device(device_));
        memory_.device.add(bytes_);
        memory_.copy(there, host_);
        storage_ = there.storage();
        is_reloaded_ = true;
        memory_.retire_host(std::exchange(host_, {}));
        memory_.host.remove(bytes_);
    }

private:
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(bytes_); }
    [[nodiscard]] at::Tensor as_bytes() const {
        return at::empty({0}, at::TensorOptions{at::kByte}.device(device_)).set_(storage_, 0, {size()}, {1});
    }

    c10::Storage storage_;
    at::Tensor host_{};
    std::size_t bytes_;
    at::Device device_;
    stash_memory& memory_;
    bool is_counted_ = false;
    bool is_reloaded_ = false;
};

} // namespace optpipe::libtorch
