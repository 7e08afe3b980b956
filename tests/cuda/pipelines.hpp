#pragma once

#include "execution/quick_adaptive.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "oracle/random_cases.hpp"
#include "schedule/quick_builders.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

/// The published schedules of pipelines of a given size.
namespace pipelines {

/// Numbers of ranks, without the largest where a run takes many times as long.
inline std::vector<std::size_t> sizes() {
    return oracle::random_cases(2) > 1 ? std::vector<std::size_t>{2, 4, 8} : std::vector<std::size_t>{2, 4};
}

/// Equal stages, whose stashes can be offloaded.
template <class Placement> optpipe::problem uniform(std::size_t ranks, Placement placement) {
    optpipe::stage_costs each;
    each.forward = each.backward_input = optpipe::duration{2.0};
    each.backward_weight = optpipe::duration{1.0};
    each.activation = optpipe::memory_size{2.0};
    each.weight_stash = optpipe::memory_size{1.0};
    each.transfer = optpipe::transfer_times{optpipe::duration{1.0}, optpipe::duration{1.0}};
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic, Placement> g{ranks, ranks + 2, placement};
    optpipe::problem p{to_any_graph(g), optpipe::per_stage<optpipe::stage_costs>(g.stages(), each)};
    p.transfer.engines = 2;
    return p;
}

/// Calls `visit` for the schedules of all builders, and for one that must offload.
template <class Visit>
void for_each_program(std::size_t ranks, std::initializer_list<optpipe::message_lanes> all_lanes, Visit visit) {
    CAPTURE(ranks);
    const auto lowered = [&](const optpipe::problem& p, const optpipe::schedule& s) {
        for (const auto lanes : all_lanes)
            for (const auto receives : {optpipe::receive_issue::early, optpipe::receive_issue::when_due}) {
                CAPTURE(static_cast<int>(lanes));
                CAPTURE(static_cast<int>(receives));
                const auto programs = lower(p, s,
                                            {.bytes_per_unit = 64.0,
                                             .message_bytes = 24,
                                             .lanes = lanes,
                                             .receives = receives,
                                             .update = true,
                                             .reduce = receives == optpipe::receive_issue::when_due});
                REQUIRE(programs);
                visit(*programs);
            }
    };
    const auto built = [&](const optpipe::problem& p) {
        for_each_quick_builder([&](const auto& build) {
            const std::string name{build.name};
            CAPTURE(name);
            if (name == optpipe::adaptive.name) return; // with little effort below
            if (const auto s = build_schedule(p, build)) lowered(p, *s);
        });
    };
    built(uniform(ranks, optpipe::placement::linear{}));
    built(uniform(ranks, optpipe::placement::loop<optpipe::dynamic>{2}));
    built(uniform(ranks, optpipe::placement::v{}));
    auto narrow = uniform(ranks, optpipe::placement::linear{});
    for (const auto r : narrow.graph.all_ranks())
        narrow.memory_limit[r] = optpipe::memory_size{4.0};
    const auto s = build_schedule(narrow, quick_adaptive);
    REQUIRE(s);
    lowered(narrow, *s);
}

/// The same programs without one wait.
inline optpipe::per_rank<optpipe::rank_program> without_one_wait(optpipe::per_rank<optpipe::rank_program> programs,
                                                                 optpipe::random_numbers& random) {
    for (;;) {
        auto& p = programs[optpipe::rank{random.below(programs.size())}];
        auto& i = p.instructions[random.below(p.instructions.size())];
        if (i.waits == 0) continue;
        // The first of the other waits takes its place.
        std::swap(p.waits[i.first_wait], p.waits[i.first_wait + random.below(i.waits)]);
        ++i.first_wait;
        --i.waits;
        return programs;
    }
}

} // namespace pipelines
