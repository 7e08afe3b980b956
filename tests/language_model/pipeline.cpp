// Under every published schedule the gradients are those of the model without a pipeline, bit for bit.
#include "language_model/training.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "schedule/compiled/for_each_schedule.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

/// The number of schedules that each method made, and how many of them have offloaded stashes.
struct tally {
    std::map<std::string, std::size_t> runs;
    std::map<std::string, std::size_t> offloads;
};

void run_all(const optpipe::problem& p, tally& seen) {
    compiled::for_each_schedule(p, [&](const std::string& method, const optpipe::schedule& s) {
        CAPTURE(method);
        ++seen.runs[method];
        seen.offloads[method] += measure(p, s).offloads > 0 ? 1 : 0;
        CHECK(training::gradients_by(p, s) == training::gradients_alone(s));
    });
}

void run_with(std::size_t ranks) {
    namespace placement = optpipe::placement;
    CAPTURE(ranks);
    const std::size_t microbatches = ranks + 4;
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
    for (const auto& method : compiled::all_methods())
        if (seen.runs[method] == 0) missing += method + " ";
    CHECK(missing == "");
    for (const char* method : {"po", "po-h", "po-f", "adaptive"}) {
        CAPTURE(method);
        CHECK(seen.offloads[method] > 0);
    }
}

/// `gradients_alone` adds up the same sums as the whole model, in another order of operations.
void check_whole_model(std::size_t ranks) {
    const auto p = training::problem_with<optpipe::placement::linear>(ranks, 5);
    auto whole = training::fresh_stages(ranks);
    unpipelined_step(whole, language_model::text_step{training::text, training::tiny, 5, 0}, 5);
    compiled::for_each_schedule(p, [&](const std::string& method, const optpipe::schedule& s) {
        if (method == "1f1b") CHECK(training::gradients_alone(s) == training::gradients_of(whole));
    });
}

} // namespace

TEST_CASE("without a pipeline") { check_whole_model(4); }
TEST_CASE("on two ranks") { run_with(2); }
TEST_CASE("on four ranks") { run_with(4); }
TEST_CASE("on eight ranks") { run_with(8); }
