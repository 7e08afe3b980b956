#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/program/graph.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/shape.hpp"
#include "optpipe/program/write_program.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Two instructions of a rank. The first must end before the second starts.
using instruction_pair = std::pair<std::size_t, std::size_t>;

/// Finds pairs of instructions that must run in order. All uses of a buffer lie between its first and its last use.
/// Overlapping buffers must not be in use at the same time.
class lifetime_order {
public:
    explicit lifetime_order(const rank_program& p) : p_{p} {}

    [[nodiscard]] std::vector<instruction_pair> pairs() {
        for (std::size_t i = 0; i < p_.instructions.size(); ++i) {
            const auto& now = p_.instructions[i];
            for_each_operation_of(p_, now, [&](const operation_buffers& each) {
                for (const auto b : each.buffers)
                    if (b != no_buffer) add_use(i, b);
                for (std::size_t k = 0; k < each.links; ++k)
                    add_use(i, p_.links[each.first_link + k].buffer);
            });
            if (now.is_pair() && p_.pairs[now.pair].memory != no_buffer) add_use(i, p_.pairs[now.pair].memory);
            if (now.kind == instruction_kind::exchange)
                for (std::size_t k = 0; k < now.parts; ++k)
                    add_use(i, p_.parts[now.first_part + k].buffer);
        }
        // A buffer's first use must come before its last use, even without uses between.
        for (const auto& b : p_.buffers)
            if (b.first_use != b.last_use) pairs_.emplace_back(b.first_use, b.last_use);
        for (const auto arena : {memory_arena::device, memory_arena::host, memory_arena::message})
            add_neighbours(arena);
        return std::move(pairs_);
    }

private:
    void add_use(std::size_t at, buffer_id id) {
        const auto& b = p_.buffers[id.position()];
        if (at != b.first_use) pairs_.emplace_back(b.first_use, at);
        if (at != b.last_use) pairs_.emplace_back(at, b.last_use);
    }
    /// Orders the uses of buffers that overlap in memory. Overlapping buffers are used in the order of issue. The use
    /// of each buffer must end before the next use starts.
    void add_neighbours(memory_arena arena) {
        std::vector<std::size_t> cuts;
        std::vector<std::pair<memory_segment, std::size_t>> used;
        for (std::size_t b = 0; b < p_.buffers.size(); ++b)
            if (p_.buffers[b].arena == arena)
                for (std::size_t s = 0; s < p_.buffers[b].segments; ++s) {
                    const auto& segment = p_.segments[p_.buffers[b].first_segment + s];
                    if (segment.bytes == 0) continue;
                    used.emplace_back(segment, b);
                    cuts.insert(cuts.end(), {segment.offset, segment.offset + segment.bytes});
                }
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        std::stable_sort(used.begin(), used.end(), [&](const auto& a, const auto& b) {
            return p_.buffers[a.second].first_use < p_.buffers[b.second].first_use;
        });
        std::vector<std::size_t> last(cuts.size(), p_.buffers.size());
        for (const auto& [segment, b] : used) {
            auto piece =
                static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), segment.offset) - cuts.begin());
            for (std::size_t before = p_.buffers.size(); cuts[piece] < segment.offset + segment.bytes; ++piece) {
                if (last[piece] != before && last[piece] != p_.buffers.size())
                    pairs_.emplace_back(p_.buffers[last[piece]].last_use, p_.buffers[b].first_use);
                before = std::exchange(last[piece], b);
            }
        }
    }

    const rank_program& p_;
    std::vector<instruction_pair> pairs_;
};

/// Reports pairs of instructions of one rank that may run out of order.
inline void check_order(const rank_program& p, std::size_t r, const program_graph& graph,
                        std::vector<instruction_pair> needed, std::vector<violation>& found) {
    const auto lifetimes = lifetime_order{p}.pairs();
    needed.insert(needed.end(), lifetimes.begin(), lifetimes.end());
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    const auto kept = graph.ordered(r, needed);
    for (std::size_t i = 0; i < needed.size(); ++i) {
        if (kept[i]) continue;
        const auto [first, second] = needed[i];
        found.push_back({place_of_instruction(r, second),
                         describe(p, p.instructions[second]) + " needs what " + describe(p, p.instructions[first]) +
                             " (instruction " + std::to_string(first) +
                             ") gives it or leaves free, but nothing makes it wait for that"});
    }
}

} // namespace optpipe::detail
