#pragma once

#include "optpipe/core/standard.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace optpipe::libtorch {

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

/// The number of bytes in a rank's stashes.
struct byte_meters {
    byte_meter device, host;
};

/// Memory of one or several saved tensors, on the device or on the host. The meters count a block while it exists.
/// Workspace is memory that a backward restores for its own use. Workspace isn't counted until `count` is called,
/// because no plan includes it.
class block {
public:
    block(c10::Storage storage, byte_meters& meters, bool is_counted)
        : storage_{std::move(storage)}, bytes_{storage_.nbytes()}, device_{storage_.device()}, meters_{meters} {
        if (is_counted) count();
    }
    ~block() {
        if (storage_ && is_counted_) meters_.device.remove(bytes_);
        if (host_.defined()) meters_.host.remove(bytes_);
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
        if (!is_counted_) meters_.device.add(bytes_);
        is_counted_ = true;
    }
    /// Contract: the block is counted.
    void move_to_host() {
        auto there = at::empty({size()}, at::TensorOptions{at::kByte}.pinned_memory(!device_.is_cpu()));
        there.copy_(as_bytes());
        meters_.host.add(bytes_);
        host_ = std::move(there);
        storage_ = {};
        meters_.device.remove(bytes_);
    }
    void move_to_device() {
        const auto there = at::empty({size()}, at::TensorOptions{at::kByte}.device(device_));
        there.copy_(host_);
        meters_.device.add(bytes_);
        storage_ = there.storage();
        host_.reset();
        meters_.host.remove(bytes_);
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
    byte_meters& meters_;
    bool is_counted_ = false;
};

} // namespace optpipe::libtorch
