// Plans of problems at the limits of the format: each is refused, has no schedule, or gets a valid one.
#include "optpipe/planner/plan.hpp"

#include "fuzz/corner_problem.hpp"
#include "fuzz/iterations.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/schedule/time/validate.hpp"
#include "oracle/reference_checker.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

using namespace optpipe;

namespace {

struct tally {
    std::size_t refused = 0;
    std::size_t without_schedule = 0;
    std::size_t planned = 0;
    std::size_t proven = 0;
};

plan_options options_for(random_numbers& random, std::uint64_t seed) {
    plan_options options{.threads = 1 + random.below(2), .seed = seed};
    // Only few without a limit, because they take a second.
    if (!random.chance(1)) options.time_limit = std::chrono::milliseconds{random.between(0, 30)};
    options.deterministic = random.chance(20);
    return options;
}

duration longest_operation(const problem& p) {
    duration longest{};
    for (const auto& c : p.costs)
        longest = std::max({longest, c.forward, c.backward()});
    for (const auto& options : p.storage)
        for (const auto& o : options)
            if (o.transfer) longest = std::max({longest, o.transfer->offload, o.transfer->reload});
    return longest;
}

void check_plan(const problem& p, const plan_result& planned) {
    const auto violations = validate(p, planned.schedule);
    CHECK_MESSAGE(violations.empty(), violations.front().text());
    // The oracle's tolerance is relative to the longest operation, not to the last end. It is smaller than the rounding
    // of times if the paths between ranks are far longer than the operations.
    if (time_slack(p, planned.schedule) <= 1e-4 * longest_operation(p)) {
        const auto judged = oracle::judge(p, planned.schedule);
        CHECK_MESSAGE(judged.valid(), judged.text());
    }
    CHECK(planned.bound <= planned.objective);
    CHECK(planned.objective <= (1.0 + 1e-9) * objective_of(p, planned.schedule));
}

void check_problem(const problem& p, const plan_options& options, tally& seen) {
    if (!validate(p).empty()) {
        CHECK_THROWS_AS(static_cast<void>(plan(p, options)), input_error);
        ++seen.refused;
        return;
    }
    const auto planned = plan(p, options);
    if (!planned) {
        CHECK(!describe(planned.why()).empty());
        ++seen.without_schedule;
        return;
    }
    check_plan(p, *planned);
    ++seen.planned;
    seen.proven += planned->why == plan_end::optimal ? 1 : 0;
}

} // namespace

TEST_CASE("a problem from the edges is refused, has no schedule, or gets a valid one") {
    tally seen;
    const auto count = fuzz::iterations(300);
    for (std::size_t i = 0; i < count; ++i) {
        const auto seed = fuzz::first_seed() + i;
        INFO("seed " << seed);
        random_numbers random{seed};
        const auto p = fuzz::corner_maker{random}.make();
        check_problem(p, options_for(random, seed), seen);
    }
    MESSAGE(count << " problems: " << seen.refused << " refused, " << seen.without_schedule << " without a schedule, "
                  << seen.planned << " planned, " << seen.proven << " of them proven optimal");
    if (count < 100) return;
    CHECK(seen.refused > count / 100);
    CHECK(seen.planned > count / 2);
}
