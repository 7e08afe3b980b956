#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/program/ir.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::detail {

[[nodiscard]] inline std::string place_of_instruction(std::size_t r, std::size_t position) {
    return "rank " + std::to_string(r) + ", instruction " + std::to_string(position);
}

/// Checks that indices are in range, and that markers are recorded before waits.
class shape_check {
public:
    shape_check(std::span<const rank_program> programs, std::size_t r, std::vector<violation>& found)
        : p_{programs[r]}, r_{r}, found_{found}, ranks_{programs.size()},
          same_shape_{p_.stages == programs[0].stages && p_.microbatches == programs[0].microbatches &&
                      p_.forward_only == programs[0].forward_only && p_.shape == programs[0].shape} {}

    void check() {
        if (p_.self.position() != r_ || p_.ranks != ranks_ || !same_shape_)
            report("rank " + std::to_string(r_), "isn't the program of this rank of these programs");
        if (p_.alignment == 0) return report("rank " + std::to_string(r_), "has an alignment of 0 bytes");
        constexpr std::size_t most = std::size_t{1} << 31U;
        if (p_.instructions.size() > most || p_.stages > most || p_.microbatches > most ||
            p_.markers > 2 * p_.instructions.size())
            return report("rank " + std::to_string(r_), "counts more than there can be");
        if (!is_shaped())
            return report("rank " + std::to_string(r_),
                          "has edges, groups or lists of stages or microbatches that don't exist");
        check_lanes();
        for (std::size_t b = 0; b < p_.buffers.size(); ++b)
            check_buffer(b);
        std::vector<bool> recorded(p_.markers, false);
        for (std::size_t i = 0; i < p_.instructions.size(); ++i)
            check_instruction(i, recorded);
    }

private:
    void report(std::string place, std::string reason) { found_.push_back({std::move(place), std::move(reason)}); }
    template <class List> static bool holds(const List& list, std::uint32_t first, std::uint32_t count) {
        return first <= list.size() && count <= list.size() - first;
    }
    [[nodiscard]] bool is_operation(const operation& op) const {
        return op.stage.position() < p_.stages && op.microbatch.position() < p_.microbatches &&
               std::find(all_operation_kinds.begin(), all_operation_kinds.end(), op.kind) != all_operation_kinds.end();
    }

    /// Whether the shape names only stages and microbatches that exist.
    [[nodiscard]] bool is_shaped() const {
        const auto& gradients = p_.shape.gradients;
        bool exist = (gradients.empty() || gradients.size() == p_.stages) &&
                     p_.shape.microbatches.fits(p_.stages, p_.microbatches);
        const auto exists = [&](stage s) { exist = exist && s.position() < p_.stages; };
        for (std::size_t s = 0; s < p_.stages; ++s) {
            p_.shape.feeds.for_each_into(stage{s}, p_.stages, [&](const edge& e) { exists(e.from); });
            p_.shape.feeds.for_each_out_of(stage{s}, p_.stages, [&](const edge& e) { exists(e.to); });
            p_.shape.groups.for_each_member(stage{s}, [&](stage member, duration) { exists(member); });
        }
        return exist;
    }
    [[nodiscard]] bool reaches_over_part(const memory_segment& s) const {
        return p_.host_part > 0 && s.bytes > p_.host_part - s.offset % p_.host_part;
    }

    void check_lanes() {
        auto kinds = p_.lanes;
        std::sort(kinds.begin(), kinds.end());
        if (std::adjacent_find(kinds.begin(), kinds.end()) != kinds.end())
            report("rank " + std::to_string(r_), "has two lanes of one kind");
        if (!kinds.empty() && kinds.back() > lane_kind::reduce)
            report("rank " + std::to_string(r_), "has a lane of no kind");
    }
    void check_buffer(std::size_t b) {
        const auto& buffer = p_.buffers[b];
        const auto place = "rank " + std::to_string(r_) + ", buffer " + std::to_string(b);
        if (buffer.arena > memory_arena::message) return report(place, "is in no arena");
        if (!holds(p_.segments, buffer.first_segment, buffer.segments))
            return report(place, "has segments that don't exist");
        if (buffer.first_use >= p_.instructions.size() || buffer.last_use >= p_.instructions.size())
            return report(place, "is used by instructions that don't exist");
        const auto arena = p_.bytes_of(buffer.arena);
        std::size_t bytes = 0;
        for (std::size_t s = 0; s < buffer.segments; ++s) {
            const auto& segment = p_.segments[buffer.first_segment + s];
            if (segment.offset > arena || segment.bytes > arena - segment.offset)
                return report(place, "reaches beyond the end of its arena");
            if (segment.bytes > 0 && segment.offset % p_.alignment != 0)
                return report(place, "begins at no multiple of " + std::to_string(p_.alignment) + " bytes");
            if (buffer.arena == memory_arena::host && reaches_over_part(segment))
                return report(place, "reaches over the end of a part of " + std::to_string(p_.host_part) + " bytes");
            bytes += segment.bytes;
        }
        if (bytes != buffer.bytes) report(place, "isn't as long as its segments");
    }
    void check_instruction(std::size_t at, std::vector<bool>& recorded) {
        const auto& i = p_.instructions[at];
        const auto place = place_of_instruction(r_, at);
        if (i.lane >= p_.lanes.size()) report(place, "is on a lane that doesn't exist");
        if (i.kind > instruction_kind::reduce) report(place, "is of no kind");
        if (i.is_pair() && i.pair >= p_.pairs.size()) return report(place, "is a pair whose backward doesn't exist");
        for_each_operation_of(p_, i, [&](const operation_buffers& each) { check_operation(each, place); });
        if (i.is_pair()) check_pair(i, place);
        check_parts(i, place);
        if (!holds(p_.waits, i.first_wait, i.waits)) {
            report(place, "has waits that don't exist");
        } else {
            for (std::size_t w = 0; w < i.waits; ++w) {
                const auto marker = p_.waits[i.first_wait + w];
                if (marker.position() >= p_.markers || !recorded[marker.position()])
                    report(place, "waits for a marker that hasn't been recorded before");
            }
        }
        if (i.records == no_marker) return;
        if (i.records.position() >= p_.markers || recorded[i.records.position()])
            return report(place, "records a marker that doesn't exist, or twice");
        recorded[i.records.position()] = true;
    }
    void check_operation(const operation_buffers& each, const std::string& place) {
        if (!is_operation(each.op)) report(place, "is of an operation that doesn't exist");
        for (const auto b : each.buffers)
            if (b != no_buffer && b.position() >= p_.buffers.size()) report(place, "has a buffer that doesn't exist");
        check_links(each, place);
    }
    void check_pair(const instruction& i, const std::string& place) {
        const auto& [backward, memory] = p_.pairs[i.pair];
        if (i.kind != instruction_kind::compute || i.op.kind != operation_kind::forward ||
            !is_gradient(backward.op.kind))
            report(place, "is no pair of a forward and a backward");
        if (memory != no_buffer && memory.position() >= p_.buffers.size())
            report(place, "has a buffer that doesn't exist");
    }
    void check_links(const operation_buffers& of, const std::string& place) {
        if (!holds(p_.links, of.first_link, of.links)) return report(place, "has links that don't exist");
        for (std::size_t k = 0; k < of.links; ++k) {
            const auto& link = p_.links[of.first_link + k];
            if (link.way > link_way::output || link.value > value_kind::keys_values_gradient)
                report(place, "has a link of no kind");
            if (link.other.position() >= p_.stages || link.slice.position() >= p_.microbatches)
                report(place, "is linked to a stage or slice that doesn't exist");
            if (link.buffer.position() >= p_.buffers.size()) report(place, "has a link without a buffer");
        }
    }
    void check_parts(const instruction& i, const std::string& place) {
        if (!holds(p_.parts, i.first_part, i.parts)) return report(place, "has messages that don't exist");
        for (std::size_t k = 0; k < i.parts; ++k) {
            const auto& part = p_.parts[i.first_part + k];
            if (part.side > exchange_part::side_kind::receive) report(place, "neither sends nor receives");
            if (part.peer.position() >= ranks_ || part.peer.position() == r_)
                report(place, "has a peer that doesn't exist");
            if (!is_operation(part.message) || part.value > value_kind::partial)
                report(place, "has a message that doesn't exist");
            if (part.buffer.position() >= p_.buffers.size()) report(place, "has a message without a buffer");
        }
    }

    const rank_program& p_;
    std::size_t r_;
    std::vector<violation>& found_;
    std::size_t ranks_;
    bool same_shape_;
};

inline void check_shapes(std::span<const rank_program> programs, std::vector<violation>& found) {
    for (std::size_t r = 0; r < programs.size(); ++r)
        shape_check{programs, r, found}.check();
}

} // namespace optpipe::detail
