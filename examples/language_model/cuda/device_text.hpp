#pragma once

#include "../shape.hpp"
#include "../stage.hpp"
#include "../text.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace language_model {

/// The microbatches of one step on a device, always at the same addresses.
template <class Device> class device_text {
public:
    /// Starts with step 0. Borrows the device.
    device_text(Device& on, std::string_view text, const shape& s, std::size_t microbatches)
        : on_{&on}, text_{text}, shape_{s}, microbatches_{microbatches}, tokens_{on.store(std::vector<std::uint8_t>(
                                                                             microbatches * s.tokens()))},
          targets_{on.store(std::vector<std::uint8_t>(microbatches * s.tokens()))} {
        load(0);
    }
    /// Loads the text of a step. Nothing may be reading it.
    void load(std::size_t step) {
        const text_step now{text_, shape_, microbatches_, step};
        on_->template overwrite<std::uint8_t>({tokens_.data(), tokens_.size()}, now.all().tokens);
        on_->template overwrite<std::uint8_t>({targets_.data(), targets_.size()}, now.all().targets);
        share_ = now.share();
    }

    [[nodiscard]] text_batch operator[](std::size_t microbatch) const {
        const auto begin = microbatch * shape_.tokens();
        return {std::span<const std::uint8_t>{tokens_.data() + begin, shape_.tokens()},
                std::span<const std::uint8_t>{targets_.data() + begin, shape_.tokens()}};
    }
    [[nodiscard]] double share() const { return share_; }

private:
    Device* on_;
    std::string text_;
    shape shape_;
    std::size_t microbatches_;
    typename Device::template array<std::uint8_t> tokens_, targets_;
    double share_ = 0.0;
};

} // namespace language_model
