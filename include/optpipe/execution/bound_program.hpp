#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/copy_engine.hpp"
#include "optpipe/execution/stage_model.hpp"
#include "optpipe/execution/transport.hpp"
#include "optpipe/program/ir.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace optpipe::execution {

/// A rank's program in which buffer numbers have been replaced by addresses. Any thread may construct a bound program.
class bound_program {
public:
    /// One instruction, or the backward of a pair, with its addresses.
    struct task {
        instruction_kind kind{};
        std::uint8_t lane = 0;
        task_label label{};
        /// Position of the task's first entry in `waits`.
        std::uint32_t first_wait = 0;
        std::uint32_t waits = 0;
        marker_id records = no_marker;
        /// Whether the instruction computes the last weight gradient of its stage.
        bool is_last = false;
        std::span<const received_value> inputs{};
        std::span<const handed_value> outputs{};
        /// Results that the stages of a group compute in their forwards. The gradients of a group get the results of
        /// all stages of the group. A forward passes its result to the gradients of its group.
        std::span<const received_value> partial_inputs{};
        std::span<const handed_value> partial_outputs{};
        std::span<const slice_memory> keys_values{};
        std::span<const slice_memory> keys_values_gradients{};
        stash_part kept{};
        stash_part freed{};
        stash_part added{};
        stash_part restored_kept{};
        stash_part restored_freed{};
        /// Position of the task's first entry in `copies` or `messages`.
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        /// If the task is a pair, the backward of the pair. `pair_memory` is the memory that the pair takes while it
        /// runs.
        const task* backward = nullptr;
        stash_part pair_memory{};
    };

    /// Throws `error` if the program needs more memory than `room` has.
    bound_program(const rank_program& p, const arena_memory& room);

    std::vector<lane_kind> lane_kinds;
    /// Largest number of commands per step in each lane, plus 1 for the wait before the step.
    std::vector<std::size_t> commands;
    std::size_t markers = 0;
    buffer_owners owners{};
    std::vector<task> tasks;
    /// The backwards of pairs. The vector is never reallocated, because tasks point to its elements.
    std::vector<task> paired_backwards;
    std::vector<marker_id> waits;
    std::vector<message_end> messages;
    std::vector<copy_piece> copies;

private:
    [[nodiscard]] static constexpr std::string_view name_of(memory_arena which) {
        switch (which) {
        case memory_arena::device: return "device";
        case memory_arena::host: return "host";
        case memory_arena::message: return "messages";
        }
        return "?";
    }
    void find_pieces(const rank_program& p, const arena_memory& room);
    [[nodiscard]] bool is_ours(const program_buffer& b) const { return owners.of(b.arena) == buffer_owner::library; }
    [[nodiscard]] stash_part part(const rank_program& p, buffer_id id) const;
    /// Returns the pieces of `first`, followed by those of `second`.
    [[nodiscard]] stash_part joined(stash_part first, stash_part second);
    [[nodiscard]] std::span<std::byte> only_piece(const rank_program& p, buffer_id id) const;
    /// Returns the memory that a message is sent from or received into.
    [[nodiscard]] std::span<std::byte> message_memory(const rank_program& p, buffer_id id) const;
    void bind(const rank_program& p, const instruction& i);
    void bind_operation(const rank_program& p, const operation_buffers& each, task& t);
    void bind_links(const rank_program& p, const operation_buffers& each, task& t);
    /// Lists the copies of all transfers. A stash and its copy on the host are split at the same offsets.
    void find_copies(const rank_program& p);
    void mark_last_weights(std::size_t stages);

    std::vector<std::span<std::byte>> pieces_;
    /// The values at the ends of all links. The vector is never reallocated, because tasks point to its elements.
    std::vector<received_value> received_;
    std::vector<handed_value> handed_;
    std::vector<slice_memory> slices_;
    /// Pieces of stashes that are offloaded only in part. The container is a deque, because tasks point to its
    /// elements.
    std::deque<std::vector<std::span<std::byte>>> joined_;
};

} // namespace optpipe::execution

#if OPTPIPE_DEFINES(execution)
#include "optpipe/core/error.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace optpipe::execution {

OPTPIPE_INLINE bound_program::bound_program(const rank_program& p, const arena_memory& room)
    : lane_kinds{p.lanes}, markers{p.markers}, owners{room.owners} {
    for (const auto which : {memory_arena::device, memory_arena::host, memory_arena::message})
        if (p.bytes_of(which) > room.bytes_of(which))
            throw error{"the program needs " + std::to_string(p.bytes_of(which)) + " bytes in an arena of " +
                        std::to_string(room.bytes_of(which)) + " (" + std::string{name_of(which)} + ")"};
    find_pieces(p, room);
    waits = p.waits;
    for (const auto& part : p.parts)
        messages.push_back(part.side == exchange_part::side_kind::send
                               ? send_of(label_of(part), message_memory(p, part.buffer))
                               : receive_of(label_of(part), message_memory(p, part.buffer)));
    received_.reserve(p.links.size());
    handed_.reserve(p.links.size());
    slices_.reserve(p.links.size());
    paired_backwards.reserve(p.pairs.size());
    for (const auto& i : p.instructions)
        bind(p, i);
    find_copies(p);
    mark_last_weights(p.stages);
    commands.assign(p.lanes.size(), 1); // one command for the wait before the step
    for (const auto& i : p.instructions)
        commands[i.lane] += 1 + i.waits + (i.records != no_marker ? 1 : 0);
}

OPTPIPE_INLINE void bound_program::find_pieces(const rank_program& p, const arena_memory& room) {
    pieces_.resize(p.segments.size());
    for (const auto& b : p.buffers)
        for (std::size_t s = b.first_segment; is_ours(b) && s < b.first_segment + b.segments; ++s)
            pieces_[s] = room[b.arena].subspan(p.segments[s].offset, p.segments[s].bytes);
}

OPTPIPE_INLINE stash_part bound_program::part(const rank_program& p, buffer_id id) const {
    if (id == no_buffer) return {};
    const auto& b = p.buffers[id.position()];
    if (!is_ours(b)) return {};
    return std::span{pieces_}.subspan(b.first_segment, b.segments);
}

OPTPIPE_INLINE stash_part bound_program::joined(stash_part first, stash_part second) {
    if (first.empty() || second.empty()) return first.empty() ? second : first;
    auto& both = joined_.emplace_back(first.begin(), first.end());
    both.insert(both.end(), second.begin(), second.end());
    return both;
}

OPTPIPE_INLINE std::span<std::byte> bound_program::only_piece(const rank_program& p, buffer_id id) const {
    const auto all = part(p, id);
    if (all.size() > 1) throw error{"a message whose buffer lies in several pieces"};
    return contiguous(all);
}

OPTPIPE_INLINE std::span<std::byte> bound_program::message_memory(const rank_program& p, buffer_id id) const {
    if (owners.messages == buffer_owner::engine) return {};
    if (!is_ours(p.buffers[id.position()])) // memory that an edge holds counts as a stash
        throw error{"a message out of the engine's memory, where messages are the library's"};
    return only_piece(p, id);
}

/// Sorts the links of an operation: inputs first, then by kind of value, then by stage or slice. An output that several
/// stages use appears once.
OPTPIPE_INLINE void bound_program::bind_links(const rank_program& p, const operation_buffers& each, task& t) {
    const auto links = std::span{p.links}.subspan(each.first_link, each.links);
    const auto select = [&](auto& list, auto& from, const auto& make) {
        const auto first = from.size();
        for (std::size_t k = 0; k < links.size(); ++k)
            make(k);
        list = std::span{from}.subspan(first);
    };
    const auto is_first_of = [&](std::size_t k) {
        for (std::size_t before = 0; before < k; ++before)
            if (links[before].buffer == links[k].buffer) return false;
        return true;
    };
    for (const auto value : {value_kind::boundary, value_kind::partial}) {
        const bool is_boundary = value == value_kind::boundary;
        select(is_boundary ? t.inputs : t.partial_inputs, received_, [&](std::size_t k) {
            if (links[k].way == link_way::input && links[k].value == value)
                received_.push_back({links[k].other, only_piece(p, links[k].buffer)});
        });
        select(is_boundary ? t.outputs : t.partial_outputs, handed_, [&](std::size_t k) {
            if (links[k].way == link_way::output && links[k].value == value && is_first_of(k))
                handed_.push_back({links[k].other, only_piece(p, links[k].buffer)});
        });
    }
    for (const auto value : {value_kind::keys_values, value_kind::keys_values_gradient}) {
        auto& list = value == value_kind::keys_values ? t.keys_values : t.keys_values_gradients;
        const auto first = slices_.size();
        select(list, slices_, [&](std::size_t k) {
            if (links[k].value == value) slices_.push_back({links[k].slice, only_piece(p, links[k].buffer)});
        });
        std::sort(slices_.begin() + static_cast<std::ptrdiff_t>(first), slices_.end(),
                  [](const slice_memory& a, const slice_memory& b) { return a.slice < b.slice; });
    }
}

OPTPIPE_INLINE void bound_program::bind_operation(const rank_program& p, const operation_buffers& each, task& t) {
    using enum buffer_role;
    bind_links(p, each, t);
    t.kept = joined(part(p, each.buffer(kept)), part(p, each.buffer(resident_kept)));
    t.freed = joined(part(p, each.buffer(freed)), part(p, each.buffer(resident_freed)));
    t.restored_kept = part(p, each.buffer(restored_kept));
    t.restored_freed = part(p, each.buffer(restored_freed));
    t.added = part(p, each.buffer(added));
}

OPTPIPE_INLINE void bound_program::bind(const rank_program& p, const instruction& i) {
    task t{.kind = i.kind,
           .lane = i.lane,
           .label = label_of(p, i),
           .first_wait = i.first_wait,
           .waits = i.waits,
           .records = i.records,
           .first = i.first_part,
           .count = i.parts};
    bind_operation(p, {i.op, i.buffers, i.first_link, i.links}, t);
    if (i.is_pair()) {
        const auto& [second, memory] = p.pairs[i.pair];
        auto& backward =
            paired_backwards.emplace_back(task{.kind = i.kind, .lane = i.lane, .label = {.op = second.op}});
        bind_operation(p, second, backward);
        t.backward = &backward;
        t.pair_memory = part(p, memory);
    }
    tasks.push_back(t);
}

OPTPIPE_INLINE void bound_program::find_copies(const rank_program& p) {
    for (std::size_t n = 0; n < tasks.size(); ++n) {
        auto& t = tasks[n];
        if (t.kind != instruction_kind::copy) continue;
        std::vector<std::span<std::byte>> device(t.kept.begin(), t.kept.end());
        device.insert(device.end(), t.freed.begin(), t.freed.end());
        const auto away = part(p, p.instructions[n].buffer(buffer_role::host));
        std::vector<std::span<std::byte>> there(away.begin(), away.end());
        t.first = static_cast<std::uint32_t>(copies.size());
        for (std::size_t a = 0, b = 0; a < device.size() && b < there.size();) {
            const auto bytes = std::min(device[a].size(), there[b].size());
            const auto here = device[a].first(bytes);
            const auto far = there[b].first(bytes);
            const bool leaves = t.label.op.kind == operation_kind::offload;
            copies.push_back(leaves ? copy_piece{far, here} : copy_piece{here, far});
            if ((device[a] = device[a].subspan(bytes)).empty()) ++a;
            if ((there[b] = there[b].subspan(bytes)).empty()) ++b;
        }
        t.count = static_cast<std::uint32_t>(copies.size()) - t.first;
    }
}

OPTPIPE_INLINE void bound_program::mark_last_weights(std::size_t stages) {
    std::vector<task*> last(stages, nullptr);
    auto next = paired_backwards.begin();
    for (auto& t : tasks) {
        auto& now = t.backward ? *next++ : t;
        const auto& op = now.label.op;
        if (t.kind == instruction_kind::compute && is_weight_gradient(op.kind)) last[op.stage.position()] = &now;
    }
    for (auto* t : last)
        if (t) t->is_last = true;
}

} // namespace optpipe::execution
#endif
