// Stages that stash their input alone and recompute the rest: the gradients stay the same, bit for bit.
#include "../../examples/language_model/recomputing_model.hpp"
#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/pipe_offload_full.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

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
struct trained {
    std::vector<double> gradients;
    optpipe::per_rank<std::size_t> device_bytes{ranks};
};
trained train(const optpipe::problem& p, const optpipe::schedule& s, const std::vector<optpipe::stage>& which) {
    auto stages = training::fresh_stages(p.graph.stages());
    const auto programs = lower(p, s,
                                {.bytes_per_unit = 1.0,
                                 .alignment = alignof(double),
                                 .message_bytes = sizeof(double) * stages.front().boundary(),
                                 .placement = optpipe::part_placement::contiguous,
                                 .recompute = which});
    REQUIRE(programs.has_value());
    optpipe::threads::cluster cluster{ranks};
    std::vector<model> models;
    for (std::size_t r = 0; r < ranks; ++r)
        models.emplace_back(stages, training::text, training::tiny, microbatches, which);
    optpipe::threads::run(*programs, cluster, [&](optpipe::rank r) -> model& { return models[r.position()]; });
    trained result{training::gradients_of(stages), optpipe::per_rank<std::size_t>(ranks)};
    for (const auto& each : *programs)
        result.device_bytes[each.self] = each.device_bytes;
    return result;
}

template <class Placement, class Builder> void check(const Builder& build, bool offloads = false) {
    CAPTURE(std::string{build.name});
    const auto whole = training::problem_with<Placement>(ranks, microbatches, optpipe::duration{0.5});
    const auto p = recomputing(whole);
    const auto s = build_schedule(p, build);
    REQUIRE(s.has_value());
    CHECK((measure(p, *s).offloads > 0) == offloads);
    CHECK(train(p, *s, all_but_last(p)).gradients == training::gradients_alone(*s));
}

} // namespace

TEST_CASE("under schedules with full and with split backwards") {
    check<placement::linear>(optpipe::gpipe);
    check<placement::linear>(optpipe::one_forward_one_backward);
    check<placement::linear>(optpipe::zero_bubble_h1);
    check<placement::v>(optpipe::zero_bubble_v);
}

TEST_CASE("what is left of a stash may be offloaded") { check<placement::loop<2>>(optpipe::pipe_offload_full, true); }

TEST_CASE("between forward and backward no more is held than the input") {
    const auto whole = training::problem_with<placement::linear>(ranks, microbatches);
    const auto p = recomputing(whole);
    const auto before = train(whole, *build_schedule(whole, optpipe::gpipe), {});
    const auto after = train(p, *build_schedule(p, optpipe::gpipe), all_but_last(p));
    CHECK(before.gradients == after.gradients);
    const auto stages = training::fresh_stages(ranks);
    for (const std::size_t r : {0U, 1U, 2U}) {
        const auto& at = stages[r];
        const auto stash = sizeof(double) * (at.kept() + at.freed());
        const auto input = r == 0 ? 0 : sizeof(double) * at.boundary();
        CHECK(before.device_bytes[optpipe::rank{r}] == microbatches * stash);
        CHECK(after.device_bytes[optpipe::rank{r}] == microbatches * input + stash);
    }
    CHECK(before.device_bytes[optpipe::rank{3}] == after.device_bytes[optpipe::rank{3}]);
}
