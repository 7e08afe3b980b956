#pragma once

#include "archetypes/concepts.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/storage_policy.hpp"

#include <cstddef>

/// Archetypes that each lack one requirement, and so don't model their concept.
namespace optpipe::testing::mutant {

struct placement_without_default_constructor : archetype::placement {
    constexpr explicit placement_without_default_constructor(int) {}
    friend constexpr bool operator==(const placement_without_default_constructor&,
                                     const placement_without_default_constructor&) = default;
};
struct placement_without_copy : archetype::placement {
    placement_without_copy() = default;
    placement_without_copy(placement_without_copy&&) = default;
    placement_without_copy& operator=(placement_without_copy&&) = default;
    friend constexpr bool operator==(const placement_without_copy&, const placement_without_copy&) = default;
};
struct placement_without_equality : archetype::placement {
    friend bool operator==(const placement_without_equality&, const placement_without_equality&) = delete;
};
struct placement_without_stage_extent : archetype::placement {
    static void stage_extent(std::size_t) = delete;
};
struct placement_with_runtime_stage_extent : archetype::placement {
    static std::size_t stage_extent(std::size_t ranks) { return ranks; }
};
struct placement_without_stages : archetype::placement {
    void stages(std::size_t) const = delete;
};
struct placement_with_mutable_stages : archetype::placement {
    constexpr std::size_t stages(std::size_t ranks) { return ranks; }
};
struct placement_without_rank_of : archetype::placement {
    void rank_of(stage, std::size_t) const = delete;
};
struct placement_with_mutable_rank_of : archetype::placement {
    constexpr optpipe::rank rank_of(stage, std::size_t) { return optpipe::rank{0}; }
};
struct placement_with_untyped_rank_of : archetype::placement {
    constexpr std::size_t rank_of(stage, std::size_t) const { return 0; }
};

struct memory_without_copy : archetype::memory {
    memory_without_copy() = default;
    memory_without_copy(memory_without_copy&&) = default;
    memory_without_copy& operator=(memory_without_copy&&) = default;
};
struct memory_without_costs : archetype::memory {
    void costs(stage, std::size_t) const = delete;
};
struct memory_with_mutable_costs : archetype::memory {
    constexpr stage_costs costs(stage s, std::size_t stages) { return archetype::memory::costs(s, stages); }
};
struct memory_with_single_cost : archetype::memory {
    constexpr memory_size costs(stage, std::size_t) const { return memory_size{1}; }
};

struct storage_without_copy : archetype::storage {
    storage_without_copy() = default;
    storage_without_copy(storage_without_copy&&) = default;
    storage_without_copy& operator=(storage_without_copy&&) = default;
};
struct storage_without_allows : archetype::storage {
    void allows(const storage_candidate&) const = delete;
};
struct storage_with_mutable_allows : archetype::storage {
    constexpr bool allows(const storage_candidate&) { return true; }
};
struct storage_with_decision : archetype::storage {
    constexpr offload_decision allows(const storage_candidate&) const { return offload_decision::permit; }
};

} // namespace optpipe::testing::mutant
