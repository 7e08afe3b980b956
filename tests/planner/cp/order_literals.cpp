// Tasks that start together: one start has all the others before it, whichever tasks take no time or are optional.
#include "optpipe/planner/cp/order_literals.hpp"

#include "optpipe/planner/cp/knapsack_builder.hpp"
#include "optpipe/planner/cp/model.hpp"
#include "optpipe/planner/cp/solver.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace optpipe;

namespace {

struct together {
    std::size_t tasks = 0;
    /// One bit per task: whether it is optional; all are present.
    std::size_t optional = 0;
    /// Whether one of the tasks that share a machine takes time.
    bool lasting = false;
};

/// Tasks that all start at 0 and acquire one unit each; the last one has its own machine.
cp::model acquire_together(const together& c, cp::ticks capacity) {
    cp::model m;
    std::vector<cp::task_index> all;
    for (std::size_t i = 0; i < c.tasks; ++i) {
        const bool optional = (c.optional >> i & 1U) != 0;
        const bool alone = i + 1 == c.tasks;
        all.push_back(m.add_task(alone || (c.lasting && i == 0) ? 1 : 0, optional ? m.add_variable() : cp::always));
        if (optional) m.add_clause({m.tasks.back().presence});
    }
    cp::order_literals known{m};
    known.add_machine({all.begin(), all.end() - 1});
    for (const auto at : all) {
        cp::knapsack_builder use{m, known, at};
        use.capacity = capacity - 1;
        for (const auto other : all)
            if (other != at) use.taken(other, 1);
        use.finish(m.tasks[at].presence);
    }
    return m;
}

cp::search_status search_at_once(const cp::model& m) {
    cp::solver solver{m, 1};
    for (cp::task_index t = 0; t < m.tasks.size(); ++t)
        solver.at_most(t, 0);
    return solver.search(10'000, [] { return false; });
}

} // namespace

TEST_CASE("tasks that start together need what they acquire together, and no more") {
    for (std::size_t tasks = 2; tasks <= 5; ++tasks)
        for (std::size_t optional = 0; optional < std::size_t{1} << tasks; ++optional)
            for (const bool lasting : {false, true}) {
                CAPTURE(tasks);
                CAPTURE(optional);
                CAPTURE(lasting);
                const together c{tasks, optional, lasting};
                const auto all = static_cast<cp::ticks>(tasks);
                CHECK(search_at_once(acquire_together(c, all - 1)) == cp::search_status::infeasible);
                CHECK(search_at_once(acquire_together(c, all)) == cp::search_status::solved);
            }
}
