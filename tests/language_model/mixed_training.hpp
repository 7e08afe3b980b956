#pragma once

#include "execution/mixed_storage.hpp"
#include "language_model/training.hpp"
#include "optpipe/core/random.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace training {

/// Selective and full recomputation, ahead of the backward and inside it, and offloads: each alone, and some together.
inline const storage_options all_storage{
    {.name = "keep"},
    {.name = "attention", .again = language_model::recomputation::attention},
    {.name = "attention inside", .again = language_model::recomputation::attention, .inside = true},
    {.name = "activations", .again = language_model::recomputation::feed_forward},
    {.name = "activations inside", .again = language_model::recomputation::feed_forward, .inside = true},
    {.name = "full", .again = language_model::recomputation::full},
    {.name = "full inside", .again = language_model::recomputation::full, .inside = true},
    {.name = "offload", .offloaded = 1.0},
    {.name = "half offload", .offloaded = 0.5},
    {.name = "attention, half offload", .again = language_model::recomputation::attention, .offloaded = 0.5},
    {.name = "full, offload", .again = language_model::recomputation::full, .offloaded = 1.0},
    {.name = "activations inside, third offload",
     .again = language_model::recomputation::feed_forward,
     .inside = true,
     .offloaded = 0.33}};

template <class Placement>
optpipe::problem stored_problem(std::size_t ranks, std::size_t microbatches, const storage_options& storage) {
    auto p = problem_with<Placement>(ranks, microbatches);
    language_model::set_storage(p, fresh_stages(p.graph.stages()), storage, optpipe::duration{2.0});
    return p;
}

/// The order of a published schedule, with random storage of every stage and microbatch.
template <class Builder>
mixed_storage::tight_schedule mixed_schedule(const optpipe::problem& p, const Builder& build, std::uint64_t seed) {
    optpipe::random_numbers random{seed};
    const auto plain = build_schedule(mixed_storage::without_options(p), build);
    REQUIRE(plain.has_value());
    return mixed_storage::make(p, *plain, random);
}

} // namespace training
