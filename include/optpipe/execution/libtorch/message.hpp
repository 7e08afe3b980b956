#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/libtorch/stash.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::libtorch {

/// The layout of a message that carries the tensors between two stages. Each tensor takes one byte that tells whether
/// it is defined, followed by its elements. The messages of all microbatches have the same size.
class message_layout {
public:
    message_layout() = default;
    /// A layout for tensors with the types and sizes of those in `like`. Contract: all of them are defined.
    explicit message_layout(const tensors& like) {
        for (const auto& each : like) {
            slots_.push_back({each.scalar_type(), each.sizes().vec(), each.nbytes()});
            bytes_ += 1 + each.nbytes();
        }
    }

    [[nodiscard]] std::size_t bytes() const { return bytes_; }

    /// Throws `error` if the message is too small, or if the values have other types or sizes.
    void write(const tensors& values, std::span<std::byte> to) const {
        check_room(to.size());
        if (values.size() != slots_.size()) throw other_tensors();
        for (std::size_t i = 0; i < slots_.size(); ++i) {
            const auto& each = slots_[i];
            to.front() = std::byte{values[i].defined()};
            if (values[i].defined()) {
                if (!each.is_like(values[i])) throw other_tensors();
                const auto dense = values[i].cpu().contiguous();
                std::copy_n(static_cast<const std::byte*>(dense.const_data_ptr()), each.bytes, to.data() + 1);
            }
            to = to.subspan(1 + each.bytes);
        }
    }
    /// Returns tensors on `device` that own their memory.
    [[nodiscard]] tensors read(std::span<const std::byte> from, at::Device device) const {
        check_room(from.size());
        tensors values;
        for (const auto& each : slots_) {
            at::Tensor value;
            if (from.front() != std::byte{}) {
                value = at::empty(each.sizes, at::TensorOptions{each.type});
                std::copy_n(from.data() + 1, each.bytes, static_cast<std::byte*>(value.mutable_data_ptr()));
                value = value.to(device);
            }
            values.push_back(std::move(value));
            from = from.subspan(1 + each.bytes);
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
        if (room < bytes_)
            throw error{"the tensors between two stages take " + std::to_string(bytes_) + " bytes, and a message has " +
                        std::to_string(room) + ": lower with the bytes that libtorch::message_bytes returns"};
    }
    [[nodiscard]] static error other_tensors() {
        return error{"a stage hands on other tensors than in its rehearsal: do all microbatches have the same sizes?"};
    }

    std::vector<slot> slots_{};
    std::size_t bytes_ = 0;
};

/// The size in bytes of a message with tensors like these, for `lowering_options`.
[[nodiscard]] inline std::size_t message_bytes(const tensors& like) { return message_layout{like}.bytes(); }

} // namespace optpipe::libtorch
