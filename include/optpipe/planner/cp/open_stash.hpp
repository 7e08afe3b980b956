#pragma once

#include "optpipe/pipeline/storage.hpp"
#include "optpipe/planner/cp/literal.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe::cp {

/// Per stage, the storage options that its stashes may change to, whatever these compute. May be empty.
using storage_candidates = std::vector<std::vector<storage_index>>;

/// A stash of a `partial_order` whose storage option may change, with the tasks and sizes under each option.
struct open_stash {
    using node = std::uint32_t;
    static constexpr node no_node = std::numeric_limits<node>::max();

    struct alternative {
        storage_index option = 0;
        /// Optional items; options that need the same item share it.
        node offload = no_node;
        node reload = no_node;
        node recompute = no_node;
        /// The additional time of the gradient over the shortest option, as an item right before it.
        node extra = no_node;
        /// Memory that F acquires at its start and keeps, that I or B acquires at its start, and that I or B releases
        /// at its end.
        ticks held = 0;
        ticks grown = 0;
        ticks released = 0;
    };
    using item_of_alternative = node alternative::*;
    static constexpr item_of_alternative all_items[] = {&alternative::offload, &alternative::reload,
                                                        &alternative::recompute, &alternative::extra};

    node forward = no_node;
    node gradient = no_node;
    /// All alternatives; the first alternative is in use.
    std::vector<alternative> alternatives{};

    /// The optional items of one kind, without duplicates.
    [[nodiscard]] std::vector<node> items(item_of_alternative which) const {
        std::vector<node> result;
        for (const auto& each : alternatives)
            if (each.*which != no_node) result.push_back(each.*which);
        std::sort(result.begin(), result.end());
        result.erase(std::unique(result.begin(), result.end()), result.end());
        return result;
    }
    /// The item with which the gradient starts.
    [[nodiscard]] node first_of(const alternative& each) const { return each.extra == no_node ? gradient : each.extra; }
};

} // namespace optpipe::cp
