#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/planner/cache/entry.hpp"
#include "optpipe/schedule/construct/carry_over.hpp"
#include "optpipe/schedule/construct/follow_storage.hpp"
#include "optpipe/schedule/construct/within_memory.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe {

using operation_sequence = std::vector<operation>;

/// The difference between two storage options. The sizes and times of the options are compared first, with size 0 and
/// time 0 for a missing transfer. Options with equal sizes and times differ only if just one of them has transfers.
struct option_difference {
    double numbers = 0.0;
    int operations = 0;
    friend constexpr auto operator<=>(const option_difference&, const option_difference&) = default;
};

[[nodiscard]] inline option_difference difference_of(const canonical_option& a, const canonical_option& b) {
    option_difference result{0.0, a.offloads() != b.offloads() ? 1 : 0};
    const auto x = a.numbers();
    const auto y = b.numbers();
    const auto finite = [](double value) { return std::isfinite(value) ? value : 0.0; };
    for (std::size_t i = 0; i < canonical_option::size; ++i)
        result.numbers += std::abs(finite(x[i]) - finite(y[i]));
    return result;
}

/// The index of the option that differs least from `to`. Among options that differ equally little, the first one is
/// taken. Contract: `among` isn't empty.
[[nodiscard]] inline std::size_t most_similar(const canonical_options& among, const canonical_option& to) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < among.size(); ++i)
        if (difference_of(among[i], to) < difference_of(among[best], to)) best = i;
    return best;
}

/// Replaces the storage options of the operations. Each option in `from` is replaced by the most similar option in
/// `to`. Contract: the options exist in `from`.
[[nodiscard]] inline operation_sequence translate_storage(operation_sequence all,
                                                          const std::vector<canonical_options>& from,
                                                          const std::vector<canonical_options>& to) {
    std::vector<std::vector<storage_index>> position(from.size());
    for (std::size_t s = 0; s < from.size(); ++s)
        for (const auto& option : from[s])
            position[s].push_back(static_cast<storage_index>(most_similar(to[s], option)));
    for (auto& op : all)
        if (op.stage.position() < from.size()) op.storage = position[op.stage.position()][op.storage];
    return all;
}

/// The order `all`, with one storage option per stage and microbatch: the forward's. Adds missing transfers and
/// recomputations, and removes superfluous transfers and recomputations. An order with operations or options that `p`
/// lacks stays unchanged.
[[nodiscard]] inline operation_sequence follow_storage(const problem& p, operation_sequence all) {
    const operation_numbering number{p.graph};
    const bool is_known = std::all_of(all.begin(), all.end(), [&](const operation& op) {
        return number.contains(op) && op.storage < p.storage_options(op.stage);
    });
    if (!is_known) return all;
    return follow_storage(p, all, storage_in_use(p, all));
}

/// The order `all`, with the number of microbatches reduced from `from` to `to`. The first `kept` and the last `to -
/// kept` microbatches remain.
[[nodiscard]] inline operation_sequence drop_microbatches(const operation_sequence& all, std::size_t from,
                                                          std::size_t to, std::size_t kept) {
    operation_sequence result;
    for (auto op : all) {
        const auto m = op.microbatch.position();
        if (m >= kept && m < kept + (from - to)) continue;
        if (m >= kept) op.microbatch = microbatch{m - (from - to)};
        result.push_back(op);
    }
    return result;
}

namespace detail {

inline std::size_t first_forward_of(const operation_sequence& all, std::size_t m) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const operation& op) {
        return op.kind == operation_kind::forward && op.stage == stage{0} && op.microbatch == microbatch{m};
    });
    return static_cast<std::size_t>(found - all.begin());
}

inline void append_shifted(operation_sequence& to, const operation_sequence& all, std::size_t begin, std::size_t end,
                           std::size_t by) {
    for (auto i = begin; i < end; ++i) {
        auto op = all[i];
        op.microbatch = microbatch{op.microbatch.position() + by};
        to.push_back(op);
    }
}

} // namespace detail

/// The order `all` with more microbatches. Repeats the section between the first stage's forwards of microbatches `at`
/// and `at + period`. The result is executable if the section is one period of a steady state.
[[nodiscard]] inline operation_sequence repeat_microbatches(const operation_sequence& all, std::size_t from,
                                                            std::size_t to, std::size_t at, std::size_t period) {
    const auto begin = detail::first_forward_of(all, at);
    const auto end = detail::first_forward_of(all, at + period);
    if (begin >= end || end >= all.size()) return {};
    const auto times = (to - from + period - 1) / period;
    operation_sequence result;
    result.reserve(all.size() + times * (end - begin));
    detail::append_shifted(result, all, 0, end, 0);
    for (std::size_t k = 1; k <= times; ++k)
        detail::append_shifted(result, all, begin, end, k * period);
    detail::append_shifted(result, all, end, all.size(), times * period);
    const auto made = from + times * period;
    return made == to ? result : drop_microbatches(result, made, to, at + period);
}

namespace detail {

inline std::vector<operation_sequence> orders_of_length(const operation_sequence& all, std::size_t from,
                                                        const problem& p) {
    const auto to = p.graph.microbatches();
    std::vector<operation_sequence> result;
    if (from == to) return {all};
    if (to < from) {
        for (const auto kept : {to / 2, to, std::size_t{0}})
            result.push_back(drop_microbatches(all, from, to, kept));
        return result;
    }
    // The repeated microbatches are taken from the middle, from one third and from two thirds of the step. Each number
    // is the period of a published schedule, or a small multiple of such a period.
    constexpr std::array<std::size_t, 7> periods{1, 2, 3, 4, 6, 8, 12};
    for (const auto period : periods)
        for (const auto at : {(from - std::min(from, period)) / 2, from / 3, 2 * from / 3})
            if (at + period < from) {
                auto repeated = repeat_microbatches(all, from, to, at, period);
                if (!repeated.empty()) result.push_back(std::move(repeated));
            }
    // The appended order is always executable: the new microbatches run last, one at a time.
    auto appended = all;
    const auto one_by_one = one_at_a_time(p);
    for (const auto& op : one_by_one.operations)
        if (op.microbatch.position() >= from) appended.push_back(op);
    result.push_back(std::move(appended));
    return result;
}

} // namespace detail

namespace detail {

/// The order `all`, without the marks of incomplete pairs. The two parts of a complete pair are marked, successive on
/// their rank, and listed in `p.overlaps`.
inline operation_sequence with_whole_pairs(const problem& p, operation_sequence all) {
    if (p.overlaps.empty()) return all;
    per_rank<operation*> last(p.graph.ranks(), nullptr); // a marked forward whose backward hasn't followed yet
    for (auto& op : all) {
        if (is_transfer(op.kind) || op.stage.position() >= p.graph.stages()) continue;
        auto* const forward = std::exchange(last[p.rank_of(op.stage)], nullptr);
        const bool is_second = forward && op.is_paired && overlap_of(p, *forward, op);
        if (forward) forward->is_paired = is_second;
        if (op.is_paired && op.kind == operation_kind::forward)
            last[p.rank_of(op.stage)] = &op;
        else
            op.is_paired = is_second;
    }
    for (auto* const forward : last)
        if (forward) forward->is_paired = false;
    return all;
}

} // namespace detail

/// Orders with `p`'s number of microbatches, made from an order with `from` microbatches, the most promising first. The
/// orders use storage options of `p`. Some orders may not be executable.
[[nodiscard]] inline std::vector<operation_sequence> adapted_orders(const operation_sequence& all, std::size_t from,
                                                                    const problem& p) {
    auto result = detail::orders_of_length(all, from, p);
    for (auto& adapted : result)
        adapted = detail::with_whole_pairs(p, follow_storage(p, std::move(adapted)));
    return result;
}

namespace detail {

/// Numbers the microbatches in the order of their first forwards, and permutes `work` accordingly. Contract: every
/// microbatch has a forward.
inline drawn_order numbered_by_entrance(drawn_order of) {
    constexpr auto unknown = static_cast<std::size_t>(-1);
    std::vector<std::size_t> place(of.work.size(), unknown);
    std::vector<double> work;
    for (const auto& op : of.operations) {
        auto& own = place[op.microbatch.position()];
        if (op.kind != operation_kind::forward || own != unknown) continue;
        own = work.size();
        work.push_back(of.work[op.microbatch.position()]);
    }
    for (auto& op : of.operations)
        op.microbatch = microbatch{place[op.microbatch.position()]};
    of.work = std::move(work);
    return of;
}

/// Orders with large and small microbatches in a sequence similar to `of`. Each order has the number of microbatches of
/// `p`. Contract: no microbatch is a slice.
inline std::vector<drawn_order> draws_of_length(const drawn_order& of, const problem& p) {
    const auto from = of.work.size();
    const auto to = p.graph.microbatches();
    const auto numbered = numbered_by_entrance(of);
    std::vector<double> work;
    for (std::size_t i = 0; i < to; ++i)
        work.push_back(numbered.work[i * from / to]);
    std::vector<drawn_order> result;
    for (auto& adapted : orders_of_length(numbered.operations, from, p))
        result.push_back({std::move(adapted), work, std::vector<std::size_t>(to, 1)});
    return result;
}

inline bool has_every_forward(const drawn_order& of) {
    std::vector<unsigned char> is_there(of.work.size(), 0);
    for (const auto& op : of.operations)
        if (op.kind == operation_kind::forward) is_there[op.microbatch.position()] = 1;
    return std::all_of(is_there.begin(), is_there.end(), [](auto there) { return there != 0; });
}

} // namespace detail

/// Orders of `p`, made from an entry of a problem of equal shape, the most promising first. Some orders may not be
/// executable. If the entry's microbatches differ and there are no pairs, there are at most `most` orders, all of them
/// executable.
[[nodiscard]] inline std::vector<operation_sequence> adapted_orders(const cache_entry& entry, const problem& p,
                                                                    std::size_t most = dynamic) {
    auto known = translate_storage(entry.operations, entry.of.storage, canonical_storage(p));
    if (!entry.of.has_draw() || entry.of.has_pairs()) return adapted_orders(known, entry.of.microbatches, p);
    drawn_order of{std::move(known), canonical_work(entry.of), entry.of.slices};
    if (of.slices.empty()) of.slices.assign(entry.of.microbatches, 1);
    std::vector<drawn_order> draws{of};
    const bool has_other_length = entry.of.slices.empty() && entry.of.microbatches != p.graph.microbatches();
    if (has_other_length && detail::has_every_forward(of)) draws = detail::draws_of_length(of, p);
    std::vector<operation_sequence> result;
    for (const auto& draw : draws) {
        if (result.size() == most) break;
        if (auto carried = carry_over(p, draw))
            result.emplace_back(carried->operations.begin(), carried->operations.end());
    }
    return result;
}

} // namespace optpipe
