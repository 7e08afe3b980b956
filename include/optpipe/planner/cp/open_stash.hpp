#pragma once

#include "optpipe/pipeline/storage.hpp"
#include "optpipe/planner/cp/literal.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe::cp {

/// Per stage, the storage options that its stashes may change to. Empty: they keep theirs.
using storage_candidates = std::vector<std::vector<storage_index>>;

/// A stash of a `partial_order` whose storage option may change: what it needs and holds under each.
struct open_stash {
    using node = std::uint32_t;
    static constexpr node no_node = std::numeric_limits<node>::max();

    struct alternative {
        storage_index option = 0;
        /// Optional items, which options that need the same ones share.
        node offload = no_node;
        node reload = no_node;
        node recompute = no_node;
        /// What the gradient takes longer than under the option with which it is shortest: right before it.
        node extra = no_node;
        /// What F holds, and what I or B acquires at its start and releases at its end.
        ticks held = 0;
        ticks grown = 0;
        ticks released = 0;
    };
    using item_of_alternative = node alternative::*;
    static constexpr item_of_alternative all_items[] = {&alternative::offload, &alternative::reload,
                                                        &alternative::recompute, &alternative::extra};

    node forward = no_node;
    node gradient = no_node;
    /// The first is the one in use.
    std::vector<alternative> alternatives{};

    /// The optional items of one kind, each once.
    [[nodiscard]] std::vector<node> items(item_of_alternative which) const {
        std::vector<node> result;
        for (const auto& each : alternatives)
            if (each.*which != no_node) result.push_back(each.*which);
        std::sort(result.begin(), result.end());
        result.erase(std::unique(result.begin(), result.end()), result.end());
        return result;
    }
    /// With which the gradient starts.
    [[nodiscard]] node first_of(const alternative& each) const { return each.extra == no_node ? gradient : each.extra; }
};

} // namespace optpipe::cp
