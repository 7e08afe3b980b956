#pragma once

#include "../../examples/language_model/expert_model.hpp"
#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_pairs.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <utility>
#include <vector>

/// Trains a tiny language model with expert layers, by pipelines that share their experts.
namespace training {

inline constexpr std::size_t pipelines = 2;
inline constexpr std::size_t experts = 4;

/// What one pipeline has.
struct expert_replica {
    explicit expert_replica(std::size_t self, std::size_t stage_count)
        : place{self, pipelines}, stages{fresh_stages(stage_count)}, layers{language_model::make_experts<double>(
                                                                         tiny, {experts, pipelines, self}, stage_count,
                                                                         11)} {}

    language_model::replica_place place;
    stages_type stages;
    std::vector<language_model::expert_layer<double>> layers;

    /// Of one stage and its expert layer.
    [[nodiscard]] std::vector<double> gradients_of(optpipe::stage s) {
        const auto own = stages[s.position()].gradients();
        std::vector<double> all{own.begin(), own.end()};
        if (s == optpipe::stage{0}) return all;
        const auto more = layers[s.position() - 1].gradients();
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
};

/// Two stages per rank; every forward and every backward of a rank can be a pair.
inline optpipe::problem expert_problem(std::size_t ranks) {
    using namespace optpipe;
    auto p = problem_with<placement::loop<2>>(ranks, 2 * ranks);
    add_experts(p, expert_replica{0, p.graph.stages()}.layers);
    for (const stage f : p.graph.all_stages())
        for (const stage b : p.graph.all_stages())
            if (p.rank_of(f) == p.rank_of(b)) p.overlaps.add({f, b, overlap_kind::backward, duration{2.0}, {}});
    return p;
}
inline optpipe::per_rank<optpipe::rank_program> expert_programs(const optpipe::problem& p, const optpipe::schedule& s) {
    auto programs = lower(p, s,
                          {.bytes_per_unit = 1.0,
                           .alignment = alignof(double),
                           .message_bytes = sizeof(double) * tiny.boundary(),
                           .placement = optpipe::part_placement::contiguous});
    REQUIRE(programs.has_value());
    return std::move(*programs);
}
/// A schedule without pairs, and the same with all pairs of neighbours, in which weight gradients are added up alike.
struct expert_schedules {
    explicit expert_schedules(const optpipe::problem& p)
        : alone{*build_schedule(p, optpipe::interleaved)}, paired{oracle::with_all_pairs(p, alone)} {
        CHECK(weight_order(alone) == weight_order(paired));
        std::size_t pairs = 0;
        for_each_pair(paired, [&](const auto&, const auto&) { ++pairs; });
        MESSAGE(pairs << " pairs");
        CHECK(pairs >= p.graph.microbatches());
    }
    optpipe::schedule alone;
    optpipe::schedule paired;
};

} // namespace training
