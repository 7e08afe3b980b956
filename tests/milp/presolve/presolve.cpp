#include "oracle/milp_exhaustive.hpp"
#include "oracle/milp_models.hpp"
#include "oracle/milp_random.hpp"
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/presolve.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace optpipe::milp;
using oracle::exhaustive_status;

namespace {

constexpr oracle::random_model_shape shapes[] = {{6, 2, 6, true},    {8, 0, 8, false}, {3, 3, 4, true},
                                                 {10, 0, 12, false}, {0, 3, 5, true},  {5, 1, 10, true}};

bool same(double a, double b) { return std::abs(a - b) <= 1e-6 * std::max({1.0, std::abs(a), std::abs(b)}); }

/// What is wrong with the presolved model; nothing if it has the optimum that was found by exhaustion.
std::string disagreement(const model& m, const presolve_result& p) {
    const auto truth = oracle::exhaustive_optimum(m);
    std::ostringstream text;
    if (p.status() == presolve_status::infeasible)
        return truth.status == exhaustive_status::infeasible ? "" : "it is feasible";
    if (p.status() == presolve_status::unbounded)
        return truth.status != exhaustive_status::optimal ? "" : "it has an optimum";
    const auto found = oracle::exhaustive_optimum(p.model(), 1e5);
    if (found.status != truth.status) {
        text << "the status was " << static_cast<int>(truth.status) << ", is " << static_cast<int>(found.status);
        return text.str();
    }
    if (truth.status != exhaustive_status::optimal) return "";
    if (!same(found.objective, truth.objective)) {
        text << "the optimum was " << truth.objective << ", is " << found.objective;
        return text.str();
    }
    const auto restored = p.restore(found.values);
    if (!same(objective_value(m, restored), truth.objective)) return "the restored objective differs";
    const auto violations = check(m, restored);
    return violations.empty() ? "" : "restored: " + describe(m, violations.front());
}

} // namespace

TEST_CASE("the presolved model has the optimum of the original, and solutions are restored") {
    const std::uint64_t seeds = std::getenv("SEEDS") ? std::strtoull(std::getenv("SEEDS"), nullptr, 10) : 3000;
    MESSAGE("seeds 1 to " << seeds);
    std::map<std::string, std::size_t> applied;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        const auto m = oracle::random_model(seed, shapes[seed % std::size(shapes)]);
        const auto p = presolve(m);
        const auto wrong = disagreement(m, p);
        CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
        for (const auto& count : p.counts())
            applied[std::string{count.method}] += count.applied;
    }
    CHECK(applied.size() >= 14);
    for (const auto& [method, count] : applied)
        CHECK_MESSAGE(count > 0, method << " was never applied");
}
