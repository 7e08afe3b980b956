#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/pipeline/overlaps.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// A forward and a backward that a rank runs as one operation. The two operations are the parts of the pair. The
/// forward and the backward of a pair are both marked (`is_paired`). The text of a pair is PyTorch's, such as
/// `(2F5;3B1)OVERLAP_F_B`.
///
/// In an order, the parts of a pair are neighbours on their rank's compute lane. In a schedule, both parts have the
/// times of the pair. A pair occupies the lane once.
struct operation_pair {
    operation forward{};
    operation backward{};
    friend constexpr bool operator==(const operation_pair&, const operation_pair&) = default;
};

/// The pair of `f` and `b`, both marked. Contract: `f` is a forward, and `b` is a gradient.
[[nodiscard]] constexpr operation_pair pair_of(operation f, operation b) {
    OPTPIPE_EXPECT(f.kind == operation_kind::forward && is_gradient(b.kind), "a pair is a forward and a backward");
    f.is_paired = b.is_paired = true;
    return {f, b};
}

inline constexpr std::string_view pair_suffix = "OVERLAP_F_B";

[[nodiscard]] inline std::string to_string(const operation_pair& pair) {
    return "(" + to_string(pair.forward) + ";" + to_string(pair.backward) + ")" + std::string{pair_suffix};
}

/// Like `to_string`, but usable in constant expressions.
[[nodiscard]] constexpr bounded_text<64> spelling(const operation_pair& pair) {
    return {"(", spelling(pair.forward), ";", spelling(pair.backward), ")", pair_suffix};
}

/// The inverse of `to_string`; empty for any other text.
[[nodiscard]] inline std::optional<operation_pair> parse_pair(std::string_view text) {
    const auto close = text.find(')');
    const auto middle = text.find(';');
    if (text.empty() || text.front() != '(' || close == std::string_view::npos || middle > close) return std::nullopt;
    if (text.substr(close + 1) != pair_suffix) return std::nullopt;
    const auto f = parse_operation(text.substr(1, middle - 1));
    const auto b = parse_operation(text.substr(middle + 1, close - middle - 1));
    const bool is_pair = f && b && f->kind == operation_kind::forward && is_gradient(b->kind);
    return is_pair ? std::optional{pair_of(*f, *b)} : std::nullopt;
}

/// The element of the list for this forward and backward; null if they can't be a pair.
template <bool IsStatic>
[[nodiscard]] constexpr const overlap* overlap_of(const overlap_list<IsStatic>& overlaps, const operation& f,
                                                  const operation& b) {
    if (f.kind != operation_kind::forward || !is_gradient(b.kind)) return nullptr;
    return overlaps.find(f.stage, b.stage,
                         b.kind == operation_kind::backward ? overlap_kind::backward : overlap_kind::backward_input);
}
template <pipeline_graph Graph>
[[nodiscard]] constexpr const overlap* overlap_of(const basic_problem<Graph>& p, const operation& f,
                                                  const operation& b) {
    return overlap_of(p.overlaps, f, b);
}

/// The largest memory of any pair on the rank. The rank runs only one pair at a time.
template <pipeline_graph Graph>
[[nodiscard]] constexpr memory_size most_memory_of_pair(const basic_problem<Graph>& p, rank r) {
    memory_size most{};
    for (const overlap& each : p.overlaps)
        if (p.rank_of(each.forward) == r) most = std::max(most, each.memory);
    return most;
}

/// Marks the operations as a pair if the list has this pair.
template <bool IsStatic> constexpr void mark_pair(const overlap_list<IsStatic>& overlaps, operation& f, operation& b) {
    if (overlap_of(overlaps, f, b)) f.is_paired = b.is_paired = true;
}

/// The duration of a pair, with the factors of its microbatches. Contract: `of` describes a pair of `f` and `b`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration pair_duration(const basic_problem<Graph>& p, const overlap& of, const operation& f,
                                               const operation& b) {
    const auto forward_length = p.cost(f.stage, f.microbatch).forward;
    const auto backward_length = length_of(p.cost(b.stage, b.microbatch), of.kind);
    const auto usual = p.costs[f.stage].forward + length_of(p.costs[b.stage], of.kind);
    const auto together = ((forward_length + backward_length) / usual) * of.duration;
    const auto extra = p.microbatches.factors(b.stage, b.microbatch).forward * storage_of(p, b).backward_extra;
    return std::max({forward_length, backward_length, together}) + extra;
}

/// Whether some operations are parts of pairs.
template <class Operations> [[nodiscard]] constexpr bool has_pairs(const Operations& timed) {
    return std::any_of(timed.begin(), timed.end(), [](const timed_operation& each) { return each.op.is_paired; });
}

/// Calls `visit(forward, backward)` for each pair of timed operations, rank by rank in the order of time. Leaves out
/// marked operations without a partner.
template <pipeline_graph Graph, class Visit>
constexpr void for_each_pair(const basic_schedule<Graph>& s, const Visit& visit) {
    if (!has_pairs(s.operations)) return;
    std::vector<const timed_operation*> parts;
    for (const auto& timed : s.operations)
        if (timed.op.is_paired && timed.op.stage.position() < s.graph.stages()) parts.push_back(&timed);
    const auto rank_of = [&](const timed_operation* part) { return s.graph.rank_of(part->op.stage); };
    std::sort(parts.begin(), parts.end(), [&](const timed_operation* a, const timed_operation* b) {
        return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : starts_before(*a, *b);
    });
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto* f = parts[i];
        const auto* b = parts[i + 1];
        if (rank_of(f) == rank_of(b) && f->op.kind == operation_kind::forward && is_gradient(b->op.kind) &&
            f->start == b->start && f->end == b->end)
            visit(*f, *b);
    }
}

/// Whether the operation is the second part of a pair. The second part runs together with the first part, and occupies
/// no time of its own.
[[nodiscard]] constexpr bool is_second_part(const operation& op) {
    return op.is_paired && op.kind != operation_kind::forward;
}

} // namespace optpipe
