#pragma once

#include "optpipe/schedule/operation.hpp"

#include <bit>
#include <cstdint>

namespace optpipe::mpi {

/// Makes the tag of a message from the operation that produces the message. Messages match by their order; the tag only
/// checks that the right message arrived. All messages of an operation have the same tag. If MPI allows few tags,
/// operations that are far apart may share a tag.
class message_tags {
public:
    /// `largest` is MPI's largest tag, at least 32767.
    explicit message_tags(int largest) {
        const int bits = static_cast<int>(std::bit_width(static_cast<unsigned>(largest) + 1U)) - 1 - kind_bits;
        microbatch_bits_ = bits * 3 / 5;
        stage_bits_ = bits - microbatch_bits_;
    }
    [[nodiscard]] int operator()(const operation& made_by) const {
        auto tag = static_cast<std::uint32_t>(made_by.kind);
        tag = (tag << static_cast<unsigned>(stage_bits_)) | low(made_by.stage.value(), stage_bits_);
        tag = (tag << static_cast<unsigned>(microbatch_bits_)) | low(made_by.microbatch.value(), microbatch_bits_);
        return static_cast<int>(tag);
    }
    [[nodiscard]] operation made_by(int tag) const {
        const auto all = static_cast<std::uint32_t>(tag);
        const auto above = all >> static_cast<unsigned>(microbatch_bits_);
        return {stage{low(above, stage_bits_)},
                static_cast<operation_kind>(above >> static_cast<unsigned>(stage_bits_)),
                microbatch{low(all, microbatch_bits_)}};
    }

private:
    static constexpr int kind_bits = 3;
    static_assert(all_operation_kinds.size() <= 1U << 3U);

    static std::uint32_t low(std::uint32_t value, int bits) {
        return value & ((1U << static_cast<unsigned>(bits)) - 1U);
    }

    int stage_bits_;
    int microbatch_bits_;
};

} // namespace optpipe::mpi
