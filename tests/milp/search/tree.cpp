#include "bare_search.hpp"
#include "oracle/milp_exhaustive.hpp"
#include <optpipe/core/random.hpp>
#include <optpipe/milp/search/conflict/prover.hpp>
#include <optpipe/milp/search/context.hpp>
#include <optpipe/milp/search/tree/tree_worker.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

using namespace optpipe;
using namespace optpipe::milp;
using namespace optpipe::milp::search;

namespace {

/// Items into five knapsacks at once, each of half the weight of all.
model knapsacks(std::uint64_t seed, std::size_t items) {
    random_numbers random{seed};
    model m;
    for (std::size_t j = 0; j < items; ++j)
        m.set_cost(m.add_binary(), -static_cast<double>(random.between(100, 200)));
    for (std::size_t i = 0; i < 5; ++i) {
        std::vector<term> row;
        double sum = 0.0;
        for (const variable x : m.all_variables()) {
            row.push_back({x, static_cast<double>(random.between(50, 150))});
            sum += row.back().coefficient;
        }
        m.add_row(-infinity, row, static_cast<double>(static_cast<std::size_t>(sum) / 2));
    }
    return m;
}

constexpr std::size_t no_end = std::numeric_limits<std::size_t>::max();

} // namespace

TEST_CASE("what is taken out of a dive and searched by another worker makes up for what the dive then leaves out") {
    std::size_t shared = 0, found_by_others = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        const auto m = knapsacks(seed, 14);
        bare_search s{m};
        const propagator engine{s.instance};
        const relaxation lp{s.instance, 1};
        tree_worker first{s.shared, engine, lp}, second{s.shared, engine, lp};
        std::vector<node> taken, open;
        node root;
        root.bound = -infinity;
        first.dive(std::move(root), no_end, open, [&](std::vector<node>& left) {
            if (left.size() < 2) return;
            CHECK(left.front().decisions.size() <= left.back().decisions.size());
            taken.push_back(std::move(left.front()));
            left.erase(left.begin());
        });
        CHECK(open.empty());
        shared += taken.size();
        const double alone = s.best.objective();
        for (auto& n : taken)
            second.dive(std::move(n), no_end, open, [](std::vector<node>&) {});
        found_by_others += s.best.objective() < alone ? 1 : 0;
        CHECK(s.best.objective() == oracle::exhaustive_optimum(m).objective);
    }
    CHECK(shared > 0);
    CHECK(found_by_others > 0);
}

TEST_CASE("a dive takes over the cutoff of incumbents that others find meanwhile, unless it must be deterministic") {
    for (const bool deterministic : {false, true}) {
        CAPTURE(deterministic);
        const auto m = knapsacks(1, 14);
        bare_search s{m};
        s.options.deterministic = deterministic;
        tree_worker worker{s.shared, propagator{s.instance}, relaxation{s.instance, 1}};
        const auto optimum = oracle::exhaustive_optimum(m);
        std::vector<node> open;
        node root;
        root.bound = -infinity;
        worker.dive(std::move(root), 2, open, [&](std::vector<node>&) { s.best.offer(optimum.values); });
        CHECK((worker.found().cutoff < optimum.objective) == !deterministic);
    }
}

TEST_CASE("a prover that is called back leaves early, and goes on later") {
    constexpr std::size_t conflicts_of_a_call = 100;
    const auto m = knapsacks(3, 16);
    const auto truth = oracle::exhaustive_optimum(m).objective;
    const auto conflicts_of_a_turn = [&](bool called_back) {
        bare_search s{m};
        prover p{s.shared, propagator{s.instance}.least_objective(), 0.0, 1};
        const std::atomic<bool> leave{called_back};
        p.work(conflicts_of_a_call, no_end / 2, &leave);
        const auto conflicts = p.conflicts();
        while (!p.done() && !p.stuck())
            p.work(conflicts_of_a_call, no_end / 2);
        p.found().publish(s.shared);
        CHECK(p.done());
        CHECK(s.best.objective() == truth);
        return conflicts;
    };
    CHECK(conflicts_of_a_turn(false) >= conflicts_of_a_call);
    CHECK(conflicts_of_a_turn(true) < conflicts_of_a_call);
}
