#pragma once

#include "interruption.hpp"
#include <optpipe/core/quantity.hpp>
#include <optpipe/pipeline/problem.hpp>
#include <optpipe/schedule/schedule.hpp>

#include <string>
#include <vector>

namespace program {

/// A problem with something changed.
struct variant {
    std::string what;
    optpipe::problem changed;
};

/// The objective and bound of a variant's plan.
struct replanned {
    std::string what;
    optpipe::duration objective{};
    optpipe::duration bound{};
    /// Why there is no plan; empty if there is one.
    std::string reason{};

    [[nodiscard]] bool has_plan() const { return reason.empty(); }
};

struct replan_options {
    /// Time limit of each plan in seconds.
    double time_limit = 1.0;
    unsigned threads = 0;
    bool quiet = false;
};

/// Plans the variants, one after the other, with a result for each. The first variant is the problem as it is. Its plan
/// starts with the given schedule. Each other plan starts with the given schedule or with the first variant's plan,
/// whichever is better for the variant. So no plan is longer than these two, where they are valid. Once `interrupted`,
/// the running search ends, and no further variant is planned. Without the solver, the result is empty.
std::vector<replanned> plan_again(const std::vector<variant>& variants, const optpipe::schedule& start,
                                  const replan_options& options, const interruption& interrupted);

bool has_transfers(const optpipe::problem& p);
bool has_hops(const optpipe::problem& p);
bool is_limited(const optpipe::per_rank<optpipe::memory_size>& limits);

} // namespace program
