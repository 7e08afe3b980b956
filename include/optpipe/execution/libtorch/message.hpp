#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/libtorch/stash.hpp"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

namespace detail {

/// Returns a view of the memory at `data` as a tensor of bytes.
inline at::Tensor bytes_at(const void* data, std::size_t bytes, at::Device on) {
    return at::for_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)})
        .options(at::TensorOptions{at::kByte}.device(on))
        .target_device(on)
        .make_tensor();
}
/// Returns a tensor of bytes that views the elements of `dense`. Contract: `dense` is contiguous.
inline at::Tensor bytes_of(const at::Tensor& dense) {
    return bytes_at(dense.const_data_ptr(), dense.nbytes(), dense.device());
}

} // namespace detail

/// The layout of a message that carries the tensors between two stages. The tensors follow each other without gaps.
/// After the last tensor, there is one byte per tensor. In host memory, the byte tells whether the tensor is defined.
/// On a device, undefined gradients are sent as zeros. The messages of all microbatches have the same size.
class message_layout {
public:
    message_layout() = default;
    /// A layout for tensors with the types and sizes of the tensors in `like`. Contract: all tensors in `like` are
    /// defined.
    explicit message_layout(const tensors& like) {
        for (const auto& each : like) {
            slots_.push_back({each.scalar_type(), each.sizes().vec(), each.nbytes()});
            bytes_ += each.nbytes();
        }
    }

    [[nodiscard]] std::size_t bytes() const { return bytes_ + slots_.size(); }

    /// `on` is the device of the message. Throws `error` if the message is too small, or if the values don't fit the
    /// layout.
    void write(const tensors& values, std::span<std::byte> to, at::Device on) const {
        check_room(to.size());
        if (values.size() != slots_.size()) throw other_tensors();
        const auto is_defined = to.subspan(bytes_);
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            const auto& each = slots_[i];
            auto place = detail::bytes_at(to.data(), each.bytes, on);
            to = to.subspan(each.bytes);
            if (on.is_cpu()) is_defined[i] = std::byte{values[i].defined()};
            if (!values[i].defined()) {
                place.zero_();
            } else if (!each.is_like(values[i])) {
                throw other_tensors();
            } else {
                place.copy_(detail::bytes_of(values[i].contiguous()));
            }
        }
    }
    /// Returns tensors on `device` that own their memory. `on` is the device of the message.
    [[nodiscard]] tensors read(std::span<const std::byte> from, at::Device on, at::Device device) const {
        check_room(from.size());
        const auto is_defined = from.subspan(bytes_);
        tensors values(slots_.size());
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            const auto& each = slots_[i];
            const auto place = from.first(each.bytes);
            from = from.subspan(each.bytes);
            if (on.is_cpu() && is_defined[i] == std::byte{}) continue;
            values[i] = at::empty(each.sizes, at::TensorOptions{each.type}.device(device));
            detail::bytes_of(values[i]).copy_(detail::bytes_at(place.data(), each.bytes, on));
        }
        return values;
    }

private:
    struct slot {
        at::ScalarType type;
        std::vector<std::int64_t> sizes;
        std::size_t bytes;
        [[nodiscard]] bool is_like(const at::Tensor& value) const {
            return value.scalar_type() == type && value.sizes() == at::IntArrayRef{sizes};
        }
    };

    void check_room(std::size_t room) const {
        if (room < bytes())
            throw error{"the tensors between two stages take " + std::to_string(bytes()) +
                        " bytes, and a message has " + std::to_string(room) +
                        ": lower with the bytes that libtorch::message_bytes returns"};
    }
    [[nodiscard]] static error other_tensors() {
        return error{"a stage hands on other tensors than in its rehearsal: do all microbatches have the same sizes?"};
    }

    std::vector<slot> slots_{};
    std::size_t bytes_ = 0; // total size of the tensors
};

/// The size in bytes of a message with tensors like those in `like`, for `lowering_options`. The size is a multiple of
/// 256, for fast copies on devices.
[[nodiscard]] inline std::size_t message_bytes(const tensors& like) {
    constexpr std::size_t alignment = 256;
    return (message_layout{like}.bytes() + alignment - 1) / alignment * alignment;
}

} // namespace optpipe::libtorch
