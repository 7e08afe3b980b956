// Stages that stash their input alone and recompute the rest: the gradients stay the same, bit for bit.
#include "../../examples/language_model/recomputing_model.hpp"

#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/evaluate.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

namespace placement = optpipe::placement;
using model = language_model::recomputing_model<double>;

constexpr std::size_t ranks = 4;
constexpr std::size_t microbatches = 8;

std::vector<optpipe::stage> all_but_last(const optpipe::problem& p) {
    std::vector<optpipe::stage> which;
    for (const auto s : p.graph.all_stages())
        if (!p.is_last(s)) which.push_back(s);
    return which;
}
optpipe::problem recomputing(const optpipe::problem& p) {
    return with_recomputation(p, training::fresh_stages(p.graph.stages()), all_but_last(p));
}

/// The gradients of one step, and how much device memory each rank took.
struct outcome {
    std::vector<double> gradients;
    optpipe::per_rank<std::size_t> device_bytes{ranks};
};
outcome train(const optpipe::problem& p, const optpipe::schedule& s) {
    auto stages = training::fresh_stages(p.graph.stages());
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * stages.front().boundary(),
                                 .placement = optpipe::part_placement::contiguous,
                                 .recompute = all_but_last(p)});
    REQUIRE(programs.has_value());
    optpipe::threads::cluster cluster{ranks};
    std::vector<model> models(ranks, model{stages, training::text, training::tiny, microbatches, all_but_last(p)});
    optpipe::threads::run(*programs, cluster, [&](optpipe::rank r) -> model& { return models[r.position()]; });
    outcome result{training::gradients_of(stages)};
    for (const auto& each : *programs)
        result.device_bytes[each.self] = each.device_bytes;
    return result;
}

} // namespace
