#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/merge_lanes.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace optpipe {

/// The problem `p` with `count` microbatches.
[[nodiscard]] inline problem with_microbatches(const problem& p, std::size_t count) {
    auto result = p;
    result.graph = any_graph{p.graph.ranks(), count, p.graph.placement()};
    return result;
}

/// A segment of a schedule that may be repeated. The segment has the operations at [from, to) of each rank's lane. The
/// ranks' state at the end of the segment is their state at its start, shifted by `count` microbatches.
struct repeated_segment {
    std::size_t count = 0;
    per_rank<std::size_t> from{};
    per_rank<std::size_t> to{};
    /// The longest duration of the segment on any rank.
    duration length{};
};

namespace detail {

/// The operations of each rank, including transfers, sorted by start.
[[nodiscard]] inline per_rank<std::vector<timed_operation>> lanes_by_start(const problem& p, const schedule& s) {
    auto lanes = split_by_rank(p.graph, s.operations);
    for (auto& lane : lanes)
        std::sort(lane.begin(), lane.end(), starts_before);
    return lanes;
}

/// The state at every position of one rank's lane. A state consists of the finished operations and the storage of
/// stashes, relative to the first unfinished microbatch.
class lane_states {
public:
    lane_states(const problem& p, rank r, const std::vector<timed_operation>& lane) {
        std::vector<stage> own;
        for (const stage s : p.graph.all_stages())
            if (p.rank_of(s) == r) own.push_back(s);
        const auto count = p.graph.microbatches();
        std::vector<std::vector<unsigned char>> done(own.size(), std::vector<unsigned char>(count + 1, 0));
        std::vector<std::vector<storage_index>> stored(own.size(), std::vector<storage_index>(count, 0));
        std::vector<std::size_t> first(own.size(), 0);
        std::vector<std::size_t> last(own.size(), 0);
        note(done, stored, first, last);
        for (const auto& timed : lane) {
            const auto place = std::find(own.begin(), own.end(), timed.op.stage) - own.begin();
            const auto i = static_cast<std::size_t>(place);
            const auto m = timed.op.microbatch.position();
            done[i][m] = static_cast<unsigned char>(done[i][m] | bit_of(timed.op.kind));
            stored[i][m] = timed.op.storage;
            last[i] = std::max(last[i], m + 1);
            while (first[i] < count && (done[i][first[i]] & weight_bit) != 0)
                ++first[i];
            note(done, stored, first, last);
        }
    }

    /// The position whose state is the state at `position`, shifted by `count` microbatches. Empty if the shifted state
    /// doesn't occur.
    [[nodiscard]] std::optional<std::size_t> recurs_at(std::size_t position, std::size_t count) const {
        const auto known = positions_.find(key(states_[position].first, states_[position].second + count));
        if (known == positions_.end()) return std::nullopt;
        return known->second;
    }

private:
    static constexpr unsigned char weight_bit = 4;
    static constexpr unsigned char reload_bit = 16;
    static constexpr unsigned char full_bit = 32;
    static constexpr unsigned char recompute_bit = 64;
    static constexpr unsigned char bit_of(operation_kind kind) {
        switch (kind) {
        case operation_kind::forward: return 1;
        case operation_kind::backward_input: return 2;
        case operation_kind::backward_weight: return weight_bit;
        case operation_kind::backward: return 2 | weight_bit | full_bit;
        case operation_kind::offload: return 8;
        case operation_kind::reload: return reload_bit;
        case operation_kind::recompute: return recompute_bit;
        }
        return 0;
    }
    static std::string key(const std::string& state, std::size_t base) { return state + std::to_string(base); }
    void note(const std::vector<std::vector<unsigned char>>& done,
              const std::vector<std::vector<storage_index>>& stored, const std::vector<std::size_t>& first,
              const std::vector<std::size_t>& last) {
        const auto base = first.front();
        std::string state;
        for (std::size_t i = 0; i < done.size(); ++i) {
            state += std::to_string(static_cast<long>(first[i]) - static_cast<long>(base));
            state += ':';
            for (auto m = first[i]; m < last[i]; ++m)
                for (const auto part : {done[i][m], stored[i][m]})
                    state.push_back(static_cast<char>('A' + part));
            state += ';';
        }
        positions_[key(state, base)] = states_.size();
        states_.emplace_back(std::move(state), base);
    }

    std::vector<std::pair<std::string, std::size_t>> states_{};
    std::unordered_map<std::string, std::size_t> positions_{};
};

/// Finds segments of a schedule that can be repeated.
class segment_finder {
public:
    segment_finder(const problem& p, const per_rank<std::vector<timed_operation>>& lanes)
        : p_{p}, lanes_{lanes}, number_{p.graph}, position_(number_.size(), missing) {
        for (const rank r : p.graph.all_ranks()) {
            states_.emplace_back(p, r, lanes[r]);
            for (std::size_t i = 0; i < lanes[r].size(); ++i)
                position_[number_(lanes[r][i].op)] = i;
        }
    }

    /// A segment of `count` microbatches that starts near `when`.
    [[nodiscard]] std::optional<repeated_segment> find(duration when, std::size_t count) const {
        repeated_segment found{
            count, per_rank<std::size_t>(p_.graph.ranks()), per_rank<std::size_t>(p_.graph.ranks()), {}};
        for (const rank r : p_.graph.all_ranks()) {
            const auto& lane = lanes_[r];
            const auto after = std::lower_bound(lane.begin(), lane.end(), when,
                                                [](const auto& timed, duration t) { return timed.start < t; });
            if (!step_back(r, static_cast<std::size_t>(after - lane.begin()), found)) return std::nullopt;
        }
        for (bool moved = true; moved;) {
            moved = false;
            for (const rank r : p_.graph.all_ranks())
                for (std::size_t i = 0; i < found.from[r]; ++i) {
                    if (!starts_too_soon(lanes_[r][i].op, found)) continue;
                    if (!step_back(r, i, found)) return std::nullopt;
                    moved = true;
                }
        }
        for (const rank r : p_.graph.all_ranks()) {
            if (found.to[r] == lanes_[r].size()) return std::nullopt;
            found.length = std::max(found.length, lanes_[r][found.to[r]].start - lanes_[r][found.from[r]].start);
        }
        return found;
    }

private:
    static constexpr std::size_t missing = static_cast<std::size_t>(-1);

    /// Finds the last position up to `at` with a recurring state. The segment of rank `r` begins there. Returns false
    /// if no state up to `at` recurs.
    bool step_back(rank r, std::size_t at, repeated_segment& found) const {
        for (auto i = at + 1; i-- > 0;)
            if (const auto again = states_[r.position()].recurs_at(i, found.count)) {
                found.from[r] = i;
                found.to[r] = *again;
                return true;
            }
        return false;
    }
    [[nodiscard]] bool before(const operation& op, const repeated_segment& found) const {
        const auto at = position_[number_(op)];
        return at != missing && at < found.from[p_.rank_of(op.stage)];
    }
    /// Whether `op` needs an operation of another stage inside or behind the segment. Contract: `op` is before the
    /// segment.
    [[nodiscard]] bool starts_too_soon(const operation& op, const repeated_segment& found) const {
        const auto input = input_from_other_stage(p_.graph.stages(), op);
        if (!input || before(*input, found)) return false;
        return !is_gradient(input->kind) || !before(sibling(*input, operation_kind::backward), found);
    }

    const problem& p_;
    const per_rank<std::vector<timed_operation>>& lanes_;
    operation_numbering<any_graph> number_;
    std::vector<std::size_t> position_;
    std::vector<lane_states> states_{};
};

} // namespace detail

/// Unrolls a segment. The result is an order of `longer` with `times` more repetitions of the segment. Contract:
/// `longer` has `times · count` more microbatches than the order in `lanes`. No rank needs more memory than in the
/// order before unrolling.
[[nodiscard]] inline order unroll(const problem& longer, const per_rank<std::vector<timed_operation>>& lanes,
                                  const repeated_segment& segment, std::size_t times) {
    per_rank<std::vector<operation>> unrolled(longer.graph.ranks());
    schedule planned{longer.graph, {}};
    for (const rank r : longer.graph.all_ranks()) {
        const auto& lane = lanes[r];
        const auto put = [&](std::size_t i, std::size_t round) {
            auto timed = lane[i];
            timed.op.microbatch = microbatch{timed.op.microbatch.position() + round * segment.count};
            timed.start += static_cast<double>(round) * segment.length;
            timed.end += static_cast<double>(round) * segment.length;
            unrolled[r].push_back(timed.op);
            planned.operations.push_back(timed);
        };
        for (std::size_t i = 0; i < segment.from[r]; ++i)
            put(i, 0);
        for (std::size_t round = 0; round <= times; ++round)
            for (auto i = segment.from[r]; i < segment.to[r]; ++i)
                put(i, round);
        for (auto i = segment.to[r]; i < lane.size(); ++i)
            put(i, times);
    }
    return detail::lane_merger<any_graph>{longer.graph, unrolled, planned}.run();
}

} // namespace optpipe
