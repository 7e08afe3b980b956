// Under every published schedule the gradients are those of the model without a pipeline, bit for bit.
#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/evaluate.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

/// How many schedules each method made, and how many of them have stashes that travel.
struct tally {
    std::map<std::string, std::size_t> runs;
    std::map<std::string, std::size_t> travels;
};

void run_all(const optpipe::problem& p, tally& seen) {
    optpipe::for_each_builder([&](const auto& build) {
        const std::string method{build.name};
        CAPTURE(method);
        const auto s = build_schedule(p, build);
        if (!s) return;
        ++seen.runs[method];
        seen.travels[method] += measure(p, *s).offloads > 0 ? 1 : 0;
        CHECK(training::gradients_by(p, *s) == training::gradients_alone(*s));
    });
}

void run_with(std::size_t ranks) {
    namespace placement = optpipe::placement;
    CAPTURE(ranks);
    const std::size_t microbatches = 2 * ranks + 2;
    tally seen;
    run_all(training::problem_with<placement::linear>(ranks, microbatches), seen);
    run_all(training::problem_with<placement::loop<2>>(ranks, microbatches), seen);
    run_all(training::problem_with<placement::v>(ranks, microbatches), seen);
    auto tight = training::problem_with<placement::linear>(ranks, microbatches, optpipe::duration{0.8});
    training::limit_stashes(tight, 1.0 + 0.25 * static_cast<double>(ranks));
    run_all(tight, seen);
    auto tight_loop = training::problem_with<placement::loop<2>>(ranks, microbatches, optpipe::duration{0.8});
    training::limit_stashes(tight_loop, 2.0 + 0.5 * static_cast<double>(ranks));
    run_all(tight_loop, seen);
    std::string missing;
    optpipe::for_each_builder([&](const auto& build) {
        if (seen.runs[std::string{build.name}] == 0) missing += std::string{build.name} + " ";
    });
    CHECK(missing == "");
    for (const char* offloads : {"po", "po-h", "po-f", "adaptive"}) {
        CAPTURE(offloads);
        CHECK(seen.travels[offloads] > 0);
    }
}

} // namespace

TEST_CASE("on two ranks") { run_with(2); }
TEST_CASE("on four ranks") { run_with(4); }
TEST_CASE("on eight ranks") { run_with(8); }
