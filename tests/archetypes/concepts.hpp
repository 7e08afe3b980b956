#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <cstddef>

/// Types with the minimal requirements of each concept: a template that takes a concept must work with its archetype.
namespace optpipe::testing::archetype {

/// All stages are on the first rank; there are as many stages as ranks.
struct placement {
    static constexpr std::size_t stage_extent(std::size_t ranks) { return ranks; }
    constexpr std::size_t stages(std::size_t ranks) const { return ranks; }
    constexpr optpipe::rank rank_of(stage, std::size_t) const { return optpipe::rank{0}; }
    friend constexpr bool operator==(const placement&, const placement&) = default;
};

struct memory {
    constexpr stage_costs costs(stage, std::size_t) const {
        return {duration{1},    duration{1},    duration{1},
                memory_size{1}, memory_size{1}, transfer_times{duration{1}, duration{1}}};
    }
};

struct storage {
    constexpr bool allows(const storage_candidate&) const { return true; }
};

static_assert(placement_policy<placement> && memory_model<memory> && storage_policy<storage>);

} // namespace optpipe::testing::archetype
