#pragma once

#include "optpipe/program/ir.hpp"
#include "optpipe/program/write_program.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe {

/// An instruction's rank, and its position in the program.
struct instruction_place {
    std::size_t rank = 0;
    std::size_t position = 0;
    friend constexpr auto operator<=>(const instruction_place&, const instruction_place&) = default;
    friend constexpr bool operator==(const instruction_place&, const instruction_place&) = default; // for nvcc
};

/// Whether the lanes of a rank are independent, or run instructions in the order of issue.
enum class lane_progress : std::uint8_t { independent, in_issue_order };

/// The happens-before graph of programs that run together (Lamport 1978). The start of an instruction comes before its
/// end. An instruction ends before the next instruction on its lane starts. An instruction that waits for a marker
/// starts after the end of the recording instruction. Messages are rendezvous: each end finishes only after the other
/// has started.
///
/// Contract: all numbers in the programs are in range, and `partners` are the pairs of exchanges that share a message.
class program_graph {
public:
    program_graph(std::span<const rank_program> programs,
                  std::span<const std::pair<instruction_place, instruction_place>> partners,
                  lane_progress progress = lane_progress::independent)
        : programs_{programs} {
        for (const auto& p : programs) {
            first_.push_back(size_);
            size_ += p.instructions.size();
        }
        edges_.resize(2 * size_);
        for (std::size_t r = 0; r < programs.size(); ++r) {
            connect(r);
            if (progress == lane_progress::in_issue_order)
                for (std::size_t i = 1; i < programs[r].instructions.size(); ++i)
                    edges_[end({r, i - 1})].push_back(start({r, i}));
        }
        for (const auto& [a, b] : partners) {
            edges_[start(a)].push_back(end(b));
            edges_[start(b)].push_back(end(a));
        }
        sort();
    }

    /// Whether the graph has no cycle.
    [[nodiscard]] bool is_executable() const { return order_.size() == 2 * size_; }

    /// A cycle of instructions, each of which waits for the next. Empty if the graph has no cycle.
    [[nodiscard]] std::vector<instruction_place> cycle() const {
        if (is_executable()) return {};
        std::vector<std::uint32_t> before(2 * size_, nothing);
        for (std::uint32_t n = 0; n < edges_.size(); ++n)
            if (missing_[n] > 0)
                for (const auto after : edges_[n])
                    if (missing_[after] > 0) before[after] = n;
        const auto stuck = std::find_if(missing_.begin(), missing_.end(), [](std::uint32_t m) { return m > 0; });
        auto at = static_cast<std::uint32_t>(stuck - missing_.begin());
        // After `2 * size_` predecessors, `at` is certainly in a cycle.
        for (std::size_t i = 0; i < 2 * size_; ++i)
            at = before[at];
        std::vector<instruction_place> found;
        const auto first = at;
        do {
            const auto place = place_of(at);
            if (found.empty() || found.back() != place) found.push_back(place);
            at = before[at];
        } while (at != first);
        if (found.size() > 1 && found.front() == found.back()) found.pop_back();
        return found;
    }

    /// Whether the first of each pair in rank `r` always ends before the second starts. Contract: the graph has no
    /// cycle.
    [[nodiscard]] std::vector<bool> ordered(std::size_t r,
                                            std::span<const std::pair<std::size_t, std::size_t>> pairs) const {
        const auto& p = programs_[r];
        std::vector<std::uint32_t> place(p.instructions.size());
        std::vector<std::uint32_t> length(p.lanes.size(), 0);
        for (std::size_t i = 0; i < place.size(); ++i)
            place[i] = ++length[p.instructions[i].lane];
        // `clock` has a row per start or end of an instruction, and a column per lane of this rank. An entry counts the
        // lane's instructions that have certainly ended by then.
        const auto width = p.lanes.size();
        std::vector<std::uint32_t> clock(2 * size_ * width, 0);
        for (const auto n : order_) {
            auto* const own = &clock[n * width];
            const auto at = place_of(n);
            if (n % 2 == 1 && at.rank == r) {
                auto& lane = own[p.instructions[at.position].lane];
                lane = std::max(lane, place[at.position]);
            }
            for (const auto after : edges_[n])
                for (std::size_t l = 0; l < width; ++l)
                    clock[after * width + l] = std::max(clock[after * width + l], own[l]);
        }
        std::vector<bool> result;
        for (const auto& [first, second] : pairs)
            result.push_back(clock[start({r, second}) * width + p.instructions[first].lane] >= place[first]);
        return result;
    }

private:
    static constexpr std::uint32_t nothing = ~std::uint32_t{0};

    [[nodiscard]] std::uint32_t start(const instruction_place& i) const {
        return static_cast<std::uint32_t>(2 * (first_[i.rank] + i.position));
    }
    [[nodiscard]] std::uint32_t end(const instruction_place& i) const { return start(i) + 1; }
    [[nodiscard]] instruction_place place_of(std::uint32_t node) const {
        const auto r =
            static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), node / 2) - first_.begin()) - 1;
        return {r, node / 2 - first_[r]};
    }

    void connect(std::size_t r) {
        const auto& p = programs_[r];
        std::vector<std::size_t> last(p.lanes.size(), p.instructions.size());
        std::vector<std::size_t> recorded_by(p.markers);
        for (std::size_t i = 0; i < p.instructions.size(); ++i)
            if (p.instructions[i].records != no_marker) recorded_by[p.instructions[i].records.position()] = i;
        for (std::size_t i = 0; i < p.instructions.size(); ++i) {
            const auto& now = p.instructions[i];
            edges_[start({r, i})].push_back(end({r, i}));
            auto& before = last[now.lane];
            if (before != p.instructions.size()) edges_[end({r, before})].push_back(start({r, i}));
            before = i;
            for (std::size_t w = 0; w < now.waits; ++w)
                edges_[end({r, recorded_by[p.waits[now.first_wait + w].position()]})].push_back(start({r, i}));
        }
    }
    void sort() {
        missing_.assign(2 * size_, 0);
        for (const auto& list : edges_)
            for (const auto after : list)
                ++missing_[after];
        for (std::uint32_t n = 0; n < missing_.size(); ++n)
            if (missing_[n] == 0) order_.push_back(n);
        for (std::size_t i = 0; i < order_.size(); ++i)
            for (const auto after : edges_[order_[i]])
                if (--missing_[after] == 0) order_.push_back(after);
    }

    std::span<const rank_program> programs_;
    std::vector<std::size_t> first_;
    std::size_t size_ = 0;
    std::vector<std::vector<std::uint32_t>> edges_;
    std::vector<std::uint32_t> missing_;
    std::vector<std::uint32_t> order_;
};

/// Prints a cycle rank by rank. Each instruction is printed below its lane's previous instruction.
[[nodiscard]] inline std::string describe_cycle(std::span<const rank_program> programs,
                                                std::span<const instruction_place> cycle) {
    std::string text = "each of these waits for another, none can go on";
    auto places = std::vector(cycle.begin(), cycle.end());
    std::sort(places.begin(), places.end());
    for (std::size_t i = 0; i < places.size(); ++i) {
        const auto [r, at] = places[i];
        const auto& p = programs[r];
        const auto& now = p.instructions[at];
        if (i == 0 || places[i - 1].rank != r) text += "\nrank " + std::to_string(r);
        std::size_t before = at;
        while (before-- > 0)
            if (p.instructions[before].lane == now.lane) break;
        const auto lane = "\n  [" + std::string{spelling(p.lanes[now.lane])} + "] ";
        if (before < at && !std::binary_search(places.begin(), places.end(), instruction_place{r, before}))
            text += lane + std::to_string(before) + ": " + describe(p, p.instructions[before]);
        text += lane + std::to_string(at) + ": " + describe(p, now) + "  <-- HERE";
    }
    return text;
}

} // namespace optpipe
