#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

namespace optpipe {

/// An edge of a pipeline: stage `to` uses the output of stage `from`, and sends the gradient back. `from` < `to`.
struct edge {
    stage from{};
    stage to{};
    /// Factor on the communication time of the message and of its gradient.
    double size = 1.0;
    /// Device memory of a waiting message, and of its waiting gradient. The rank of `from` holds the message from the
    /// start of F on `from` to the end of F on `to`. The rank of `to` holds the gradient from the start of its own I or
    /// B to the end of I or B on `from`.
    memory_size held{};
    friend constexpr bool operator==(const edge&, const edge&) = default;
};

template <class E>
concept has_edge_visits = requires(const E& e, stage s, std::size_t stages, void (*visit)(const edge&)) {
    e.for_each_into(s, stages, visit);
    e.for_each_out_of(s, stages, visit);
};
template <class E> concept has_is_chain = requires(const E& e) {
    { e.is_chain() } -> std::same_as<bool>;
};

/// Defines which stage feeds which.
///
/// Semantics: `for_each_into(s, S, visit)` visits the edges into stage s of S stages. `for_each_out_of` visits the
/// edges that leave the stage. Each edge has `from` < `to` < S. No two edges join the same stages. `is_chain()` is true
/// only if the edges are 0 → 1 → … → S−1, with size 1 and nothing held.
template <class E> concept edge_policy = std::regular<E> && has_edge_visits<E> && has_is_chain<E>;

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class E> consteval bool check_edges() {
    static_assert(std::regular<E>, "edges: must be default constructible, copyable and equality comparable");
    static_assert(has_edge_visits<E>, "edges: needs `void for_each_into(stage, std::size_t stages, visit) const` and "
                                      "`for_each_out_of`, which call `visit(const edge&)`");
    static_assert(has_is_chain<E>, "edges: needs `bool is_chain() const`");
    return edge_policy<E>;
}

namespace edges {

/// Every stage feeds the next one.
struct chain {
    template <class Visit> constexpr void for_each_into(stage s, std::size_t, const Visit& visit) const {
        if (s.position() > 0) visit(edge{s.previous(), s, 1.0, {}});
    }
    template <class Visit> constexpr void for_each_out_of(stage s, std::size_t stages, const Visit& visit) const {
        if (s.position() + 1 < stages) visit(edge{s, s.next(), 1.0, {}});
    }
    [[nodiscard]] static constexpr bool is_chain() { return true; }
    friend constexpr bool operator==(const chain&, const chain&) = default;
};

/// The edges that a type lists in its constexpr array `List::edges`.
template <class List> struct listed_by {
    template <class Visit> constexpr void for_each_into(stage s, std::size_t, const Visit& visit) const {
        for (const edge& each : List::edges)
            if (each.to == s) visit(each);
    }
    template <class Visit> constexpr void for_each_out_of(stage s, std::size_t, const Visit& visit) const {
        for (const edge& each : List::edges)
            if (each.from == s) visit(each);
    }
    [[nodiscard]] static constexpr bool is_chain() { return false; }
    friend constexpr bool operator==(const listed_by&, const listed_by&) = default;
};

/// The chain, or any edges given at run time.
class any {
public:
    any() = default;
    /// The edges of a pipeline of `stages` stages. An empty list means that no stage feeds another. Contract: `from` <
    /// `to` < `stages` for each edge, and no pair of stages occurs twice.
    any(std::size_t stages, std::vector<edge> given);

    template <class Visit> constexpr void for_each_into(stage s, std::size_t stages, const Visit& visit) const {
        if (is_chain_) return chain{}.for_each_into(s, stages, visit);
        for (auto at = first_of(into_, s, &edge::to); at != into_.end() && at->to == s; ++at)
            visit(*at);
    }
    template <class Visit> constexpr void for_each_out_of(stage s, std::size_t stages, const Visit& visit) const {
        if (is_chain_) return chain{}.for_each_out_of(s, stages, visit);
        for (auto at = first_of(out_of_, s, &edge::from); at != out_of_.end() && at->from == s; ++at)
            visit(*at);
    }
    [[nodiscard]] OPTPIPE_CONSTEXPR bool is_chain() const { return is_chain_; }
    friend bool operator==(const any&, const any&) = default;

private:
    using list = std::vector<edge>;
    static OPTPIPE_CONSTEXPR list::const_iterator first_of(const list& sorted, stage s, stage edge::*end) {
        return std::lower_bound(sorted.begin(), sorted.end(), s,
                                [&](const edge& each, stage at) { return each.*end < at; });
    }
    [[nodiscard]] bool is_chain_of(std::size_t stages) const;

    bool is_chain_ = true;
    /// Sorted by `to`, then `from`; empty for the chain.
    list into_{};
    /// Sorted by `from`, then `to`.
    list out_of_{};
};

static_assert(edge_policy<chain> && edge_policy<any>);

} // namespace edges
} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
#include "optpipe/core/contract.hpp"

#include <utility>

namespace optpipe::edges {

OPTPIPE_INLINE any::any(std::size_t stages, std::vector<edge> given)
    : is_chain_{false}, into_{std::move(given)}, out_of_{into_} {
    for (const edge& each : into_)
        OPTPIPE_EXPECT(each.from < each.to && each.to.position() < stages, "edges: an edge goes back, or too far");
    const auto by_end = [](const edge& a, const edge& b) { return a.to != b.to ? a.to < b.to : a.from < b.from; };
    const auto by_begin = [](const edge& a, const edge& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; };
    std::sort(into_.begin(), into_.end(), by_end);
    std::sort(out_of_.begin(), out_of_.end(), by_begin);
    for (std::size_t i = 1; i < into_.size(); ++i)
        OPTPIPE_EXPECT(by_end(into_[i - 1], into_[i]), "edges: two edges between the same stages");
    if (is_chain_of(stages)) *this = any{};
}

OPTPIPE_INLINE bool any::is_chain_of(std::size_t stages) const {
    if (into_.size() + 1 != stages) return false;
    for (const edge& each : into_)
        if (!(each == edge{each.to.previous(), each.to, 1.0, {}})) return false;
    return true;
}

} // namespace optpipe::edges
#endif
