#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

/// The work put into streams, its ordering, and the memory that it uses: happens-before by vector clocks (Lamport 1978,
/// Mattern 1989), independent of the order in which things happened.
class race_log {
public:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    /// Bytes of one allocation; another one at the same addresses is other memory.
    struct access {
        std::size_t allocation = 0;
        std::size_t begin = 0;
        std::size_t end = 0;
        bool writes = false;
    };

    /// Adds a chain of ordered work: a stream, or a thread of the host.
    std::size_t add_chain() { return chains_.emplace_back(none), chains_.size() - 1; }
    [[nodiscard]] std::size_t last_of(std::size_t chain) const { return chains_[chain]; }

    /// Adds work that begins once its predecessor on the chain and all of `after` are over.
    std::size_t add(std::size_t chain, std::string name, std::vector<access> uses, std::vector<std::size_t> after) {
        const auto place = chains_[chain] == none ? 0 : nodes_[chains_[chain]].place;
        after.push_back(chains_[chain]);
        after.erase(std::remove(after.begin(), after.end(), none), after.end());
        nodes_.push_back(
            {chain, static_cast<std::uint32_t>(place + 1), std::move(name), std::move(uses), std::move(after)});
        return chains_[chain] = nodes_.size() - 1;
    }
    /// Neither of the two is over before the other has begun.
    void meet(std::size_t one, std::size_t other) { met_.emplace_back(one, other); }

    /// Unordered pairs of accesses, one of which writes.
    [[nodiscard]] std::vector<std::string> races() const {
        const auto before = clocks();
        const auto comes_before = [&](std::size_t a, std::size_t b) {
            return before[b * chains_.size() + nodes_[a].chain] >= nodes_[a].place;
        };
        std::vector<std::pair<access, std::size_t>> all;
        for (std::size_t n = 0; n < nodes_.size(); ++n)
            for (const auto& use : nodes_[n].uses)
                if (use.end > use.begin) all.emplace_back(use, n);
        std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
            return std::tie(a.first.allocation, a.first.begin) < std::tie(b.first.allocation, b.first.begin);
        });
        std::vector<std::string> found;
        for (std::size_t i = 0; i < all.size(); ++i)
            for (std::size_t k = i + 1; k < all.size(); ++k) {
                const auto& [one, a] = all[i];
                const auto& [other, b] = all[k];
                if (other.allocation != one.allocation || other.begin >= one.end) break;
                if (a == b || !(one.writes || other.writes) || comes_before(a, b) || comes_before(b, a)) continue;
                found.push_back(nodes_[a].name + (one.writes ? " writes" : " reads") + " what " + nodes_[b].name +
                                (other.writes ? " writes" : " reads") + ", and nothing orders them");
            }
        return found;
    }

private:
    struct node {
        std::size_t chain = 0;
        /// Place on its chain, from 1.
        std::uint32_t place = 0;
        std::string name;
        std::vector<access> uses;
        std::vector<std::size_t> after;
    };

    /// For each node, the place up to which each chain is over when it begins.
    [[nodiscard]] std::vector<std::uint32_t> clocks() const {
        const auto width = chains_.size();
        // Nodes 2n and 2n + 1 are the start and the end of n.
        std::vector<std::vector<std::size_t>> edges(2 * nodes_.size());
        for (std::size_t n = 0; n < nodes_.size(); ++n) {
            edges[2 * n].push_back(2 * n + 1);
            for (const auto a : nodes_[n].after)
                edges[2 * a + 1].push_back(2 * n);
        }
        for (const auto& [a, b] : met_) {
            edges[2 * a].push_back(2 * b + 1);
            edges[2 * b].push_back(2 * a + 1);
        }
        std::vector<std::size_t> missing(edges.size(), 0);
        for (const auto& list : edges)
            for (const auto after : list)
                ++missing[after];
        std::vector<std::size_t> order;
        for (std::size_t e = 0; e < edges.size(); ++e)
            if (missing[e] == 0) order.push_back(e);
        std::vector<std::uint32_t> clock(edges.size() * width, 0);
        for (std::size_t i = 0; i < order.size(); ++i) {
            const auto e = order[i];
            if (e % 2 == 1) clock[e * width + nodes_[e / 2].chain] = nodes_[e / 2].place;
            for (const auto after : edges[e]) {
                for (std::size_t c = 0; c < width; ++c)
                    clock[after * width + c] = std::max(clock[after * width + c], clock[e * width + c]);
                if (--missing[after] == 0) order.push_back(after);
            }
        }
        std::vector<std::uint32_t> begins(nodes_.size() * width);
        for (std::size_t n = 0; n < nodes_.size(); ++n)
            std::copy_n(&clock[2 * n * width], width, &begins[n * width]);
        return begins;
    }

    /// The last node of each chain.
    std::vector<std::size_t> chains_;
    std::vector<node> nodes_;
    std::vector<std::pair<std::size_t, std::size_t>> met_;
};
