#pragma once

#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/arena_allocator.hpp"
#include "optpipe/program/lower/options.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Writes the program of one rank, instruction by instruction. The writer chooses the lanes and allocates memory.
/// Implied dependencies are left out (a transitive reduction within the rank).
class program_writer {
public:
    using position = std::uint32_t;

    program_writer(rank self, int engines, message_lanes lanes, arena_allocator device, arena_allocator host)
        : engines_{engines}, lanes_{lanes}, device_{std::move(device)}, host_{std::move(host)} {
        program_.self = self;
        program_.lanes.push_back(lane_kind::compute);
        lane_length_.push_back(0);
        last_on_lane_.push_back(none);
    }

    [[nodiscard]] rank_program& program() { return program_; }
    [[nodiscard]] arena_allocator& arena(memory_arena which) {
        return which == memory_arena::device ? device_ : which == memory_arena::host ? host_ : messages_;
    }
    [[nodiscard]] const arena_allocator& arena(memory_arena which) const {
        return which == memory_arena::device ? device_ : which == memory_arena::host ? host_ : messages_;
    }

    /// Adds a dependency of the next instruction.
    void depend_on(position before) { depends_.push_back(before); }

    /// Allocates a buffer that is in use from the next instruction on. Returns `no_buffer` for 0 bytes.
    buffer_id acquire(memory_arena which, std::size_t bytes, part_placement placement) {
        const buffer_id id{program_.buffers.size()};
        program_buffer b{which, bytes, static_cast<std::uint32_t>(program_.segments.size()), 0, next(), next()};
        auto& from = arena(which);
        if (bytes > 0) {
            auto got = from.take_segment(bytes);
            if (got.segments.empty() && placement == part_placement::exact && from.free_bytes() >= bytes)
                got = from.take_pieces(bytes);
            if (got.segments.empty()) {
                from.grow(from.missing_at_end(bytes));
                got = from.take_segment(bytes);
            }
            b.segments = static_cast<std::uint32_t>(got.segments.size());
            program_.segments.insert(program_.segments.end(), got.segments.begin(), got.segments.end());
            depends_.insert(depends_.end(), got.after.begin(), got.after.end());
        }
        program_.buffers.push_back(b);
        return id;
    }
    /// Ends the use of the buffer after the next instruction. In the plan, the next instruction ends at `instant`.
    void release(buffer_id id, std::size_t instant) {
        auto& b = program_.buffers[id.position()];
        b.last_use = next();
        const auto first = program_.segments.begin() + b.first_segment;
        if (b.segments > 0) arena(b.arena).promise(instant, next(), {first, first + b.segments});
    }

    position write(instruction i, lane_kind on) {
        i.lane = lane(on);
        const auto width = clock_width;
        auto clock = last_on_lane_[i.lane] == none ? lane_clock{} : clock_of_[last_on_lane_[i.lane]];
        // The latest dependencies come first, because only a later dependency can imply an earlier one.
        std::sort(depends_.begin(), depends_.end(), std::greater<>{});
        i.first_wait = static_cast<std::uint32_t>(program_.waits.size());
        for (const auto before : depends_) {
            if (clock[program_.instructions[before].lane] >= place_on_lane_[before]) continue;
            program_.waits.push_back(marker_behind(before));
            for (std::size_t l = 0; l < width; ++l)
                clock[l] = std::max(clock[l], clock_of_[before][l]);
        }
        i.waits = static_cast<std::uint32_t>(program_.waits.size()) - i.first_wait;
        depends_.clear();

        const auto at = next();
        clock[i.lane] = ++lane_length_[i.lane];
        place_on_lane_.push_back(lane_length_[i.lane]);
        clock_of_.push_back(clock);
        last_on_lane_[i.lane] = at;
        program_.instructions.push_back(i);
        return at;
    }

    [[nodiscard]] lane_kind copy_lane(operation_kind kind) const {
        if (engines_ == 1) return lane_kind::copy;
        return kind == operation_kind::offload ? lane_kind::copy_out : lane_kind::copy_in;
    }
    [[nodiscard]] lane_kind message_lane(message_direction way, exchange_part::side_kind side) const {
        const bool onward = way == message_direction::forward;
        switch (lanes_) {
        case message_lanes::single: return lane_kind::communication;
        case message_lanes::per_direction: return onward ? lane_kind::forward : lane_kind::backward;
        case message_lanes::separate: break;
        }
        if (side == exchange_part::side_kind::send) return onward ? lane_kind::send_forward : lane_kind::send_backward;
        return onward ? lane_kind::receive_forward : lane_kind::receive_backward;
    }

    /// Completes the program. Must be called once, at the end.
    rank_program finish() {
        program_.device_bytes = device_.size();
        program_.host_bytes = host_.size();
        program_.message_bytes = messages_.size();
        return std::move(program_);
    }

private:
    static constexpr position none = arena_allocator::no_instruction;
    /// Largest number of lanes: 1 for computations, 2 for copies, 4 for messages, 1 for reductions.
    static constexpr std::size_t clock_width = 8;
    using lane_clock = std::array<std::uint32_t, clock_width>;

    [[nodiscard]] position next() const { return static_cast<position>(program_.instructions.size()); }
    std::uint8_t lane(lane_kind kind) {
        auto& lanes = program_.lanes;
        const auto found = std::find(lanes.begin(), lanes.end(), kind);
        const auto at = static_cast<std::uint8_t>(found - lanes.begin());
        if (found == lanes.end()) {
            lanes.push_back(kind);
            lane_length_.push_back(0);
            last_on_lane_.push_back(none);
        }
        return at;
    }
    marker_id marker_behind(position at) {
        auto& records = program_.instructions[at].records;
        if (records == no_marker) records = marker_id{program_.markers++};
        return records;
    }

    int engines_;
    message_lanes lanes_;
    rank_program program_;
    arena_allocator device_;
    arena_allocator host_;
    arena_allocator messages_;
    std::vector<position> depends_;
    std::vector<std::uint32_t> lane_length_;
    std::vector<position> last_on_lane_;
    /// Indexed by instruction: the position on its lane, counted from 1. For each instruction and lane, `clock_of_`
    /// counts the lane's instructions that end before the instruction does.
    std::vector<std::uint32_t> place_on_lane_;
    std::vector<lane_clock> clock_of_;
};

} // namespace optpipe::detail
