#pragma once

#include "optpipe/core/standard.hpp"
#include "optpipe/milp/presolve/parameters.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace optpipe::milp::presolving {

/// A hash of a set, whatever the order of its members. The hash groups rows by their columns, or columns by their rows.
class support_hash {
public:
    void add(std::uint32_t member) {
        auto mixed = (static_cast<std::uint64_t>(member) + 1) * 0x9e3779b97f4a7c15U;
        mixed ^= mixed >> 29U;
        sum_ += mixed * 0xbf58476d1ce4e5b9U;
    }
    [[nodiscard]] std::uint64_t value() const { return sum_; }

private:
    std::uint64_t sum_ = 0;
};

/// Calls `visit(first, second)` for pairs of equal hash until `visit` returns true. Each item is paired with at most
/// `most_compared` earlier items.
template <class Item> class support_groups {
public:
    template <class Visit> void add(std::uint64_t hash, Item item, Visit visit) {
        auto& group = groups_[hash];
        const auto count = group.size();
        for (std::size_t i = count - std::min(count, parameters.most_compared); i < count; ++i)
            if (visit(group[i], item)) return;
        group.push_back(item);
    }

private:
    std::unordered_map<std::uint64_t, std::vector<Item>> groups_;
};

} // namespace optpipe::milp::presolving
