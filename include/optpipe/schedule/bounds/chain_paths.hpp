#pragma once

#include "optpipe/core/standard.hpp"
#include "optpipe/schedule/bounds/chains.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// The longest paths through the links between chains. A path connects operations with equal indices in their chains.
/// Contract: the links have no cycle.
class chain_paths {
public:
    explicit chain_paths(const chain_system& c)
        : c_{&c}, place_(c.length.size()), head_(c.length.size()), tail_(head_) {
        sort_chains();
        for (const std::size_t chain : sorted_)
            for (const auto& next : c.links[1][chain])
                head_[next.chain] = std::max(head_[next.chain], head_[chain] + c.length[chain] + next.lag);
        for (std::size_t i = sorted_.size(); i-- > 0;)
            for (const auto& next : c.links[1][sorted_[i]])
                tail_[sorted_[i]] = std::max(tail_[sorted_[i]], next.lag + c.length[next.chain] + tail_[next.chain]);
    }

    /// The least time from the start of the step to the start of an operation of the chain.
    [[nodiscard]] double head(std::size_t chain) const { return head_[chain]; }
    /// The least time from the end of an operation of the chain to the end of the step.
    [[nodiscard]] double tail(std::size_t chain) const { return tail_[chain]; }
    /// The least time from the start of an operation of `from` to the end of the operation of `to` with the same index.
    /// Contract: links lead from `from` to `to`, or both are the same chain. Takes time proportional to the number of
    /// chains that are connected to `from`. Consecutive calls with the same `from` do the work only once.
    [[nodiscard]] double lifespan(std::size_t from, std::size_t to) {
        if (ends_.empty() || from != from_) start_at(from);
        const std::size_t at = place_[to] - place_[from];
        cover(at);
        for (; passed_ < at; ++passed_)
            for (const auto& next : c_->links[1][sorted_[place_[from] + passed_]])
                raise_end(place_[next.chain] - place_[from], ends_[passed_] + next.lag + c_->length[next.chain]);
        return ends_[at];
    }
    /// Visits the chains on the path found by `lifespan(from, to)`, from `to` back to `from`. Contract: the last call
    /// of `lifespan` had the same `to`.
    template <class Visit> void for_each_chain_back(std::size_t to, Visit visit) const {
        const std::size_t first = place_[from_];
        for (std::size_t at = place_[to] - first; at > 0; at = before_[at])
            visit(sorted_[first + at]);
        visit(from_);
    }

private:
    /// Sorts the chains so that links lead to later chains. Connected chains are next to each other.
    void sort_chains() {
        std::vector<char> seen(place_.size(), false);
        std::vector<std::pair<std::size_t, std::size_t>>
            open; // a chain, and the number of its links that were followed
        for (std::size_t root = place_.size(); root-- > 0;) {
            if (!std::exchange(seen[root], char{true})) open.emplace_back(root, 0);
            while (!open.empty()) {
                const auto chain = open.back().first;
                if (open.back().second == c_->links[1][chain].size()) {
                    sorted_.push_back(chain);
                    open.pop_back();
                    continue;
                }
                const auto next = c_->links[1][chain][open.back().second++].chain;
                if (!std::exchange(seen[next], char{true})) open.emplace_back(next, 0);
            }
        }
        std::reverse(sorted_.begin(), sorted_.end());
        for (std::size_t i = 0; i < sorted_.size(); ++i)
            place_[sorted_[i]] = i;
    }

    void start_at(std::size_t from) {
        from_ = from;
        passed_ = 0;
        ends_.assign(1, c_->length[from]);
        before_.assign(1, 0);
    }
    void cover(std::size_t at) {
        constexpr double not_reached = -std::numeric_limits<double>::infinity();
        if (at < ends_.size()) return;
        ends_.resize(at + 1, not_reached);
        before_.resize(at + 1, 0);
    }
    /// Contract: the link to position `at` comes from position `passed_`.
    void raise_end(std::size_t at, double end) {
        cover(at);
        if (end <= ends_[at]) return;
        ends_[at] = end;
        before_[at] = passed_;
    }

    const chain_system* c_;
    std::vector<std::size_t> sorted_{};
    /// The position of each chain in `sorted_`.
    std::vector<std::size_t> place_;
    std::vector<double> head_;
    std::vector<double> tail_;
    /// `ends_[i]` is the longest path found from the start of chain `from_` to the end of the chain i positions later.
    /// The links of the first `passed_` chains, counted from `from_`, have been followed.
    std::size_t from_ = 0;
    std::size_t passed_ = 0;
    std::vector<double> ends_{};
    /// `before_[i]` is the previous chain on the longest path to chain i, as a position relative to `from_`.
    std::vector<std::size_t> before_{};
};

} // namespace optpipe::detail
