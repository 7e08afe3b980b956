#include "optpipe/schedule/time/value.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace optpipe;

namespace {

constexpr schedule_value value(double objective, double storage) { return {duration{objective}, duration{storage}}; }

static_assert(is_better(value(1.0, 9.0), value(2.0, 0.0)));
static_assert(!is_better(value(2.0, 0.0), value(1.0, 9.0)));
static_assert(is_better(value(2.0, 1.0), value(2.0, 2.0)));
static_assert(!is_better(value(2.0, 2.0), value(2.0, 2.0)));
// A sum of the same terms in another order.
static_assert(is_better(value(94.32000000000002, 0.0), value(94.32, 26.0)));
static_assert(!is_better(value(94.32, 26.0), value(94.32000000000002, 0.0)));
static_assert(!is_better(value(94.321, 0.0), value(94.32, 26.0)));
static_assert(is_better(value(1.0, 1.0), schedule_value{}));
static_assert(!is_better(schedule_value{}, value(1.0, 1.0)));
static_assert(!is_better(schedule_value{}, schedule_value{}));
static_assert(is_better(value(0.0, 0.0), value(0.0, 1.0)));

} // namespace

TEST_CASE("the time of transfers and recomputation, inside the backward, too") {
    stage_costs c;
    c.forward = c.backward_input = c.backward_weight = duration{1.0};
    c.activation = memory_size{1.0};
    problem p{to_any_graph(graph<1, 3>{}), per_stage<stage_costs>(1, c)};
    p.storage[stage{0}] = {
        keep_stash(c),
        {"offload", memory_size{1.0}, {}, {}, memory_size{1.0}, transfer_times{duration{2.0}, duration{3.0}}},
        {"ahead", memory_size{}, duration{1.5}, {}, {}, {}},
        {"inside", memory_size{}, {}, duration{0.5}, {}, {}}};
    const auto all_of = [&](storage_index option, bool offloads, bool recomputes) {
        schedule s{p.graph, {}};
        const auto put = [&](operation op) {
            op.storage = option;
            s.operations.push_back({op, {}, duration_of(p, op)});
        };
        put(forward(stage{0}, microbatch{0}));
        if (offloads) put(offload_of(stage{0}, microbatch{0}));
        if (offloads) put(reload_of(stage{0}, microbatch{0}));
        if (recomputes) put(recompute_of(stage{0}, microbatch{0}));
        put(backward_input(stage{0}, microbatch{0}));
        put(backward_weight(stage{0}, microbatch{0}));
        return storage_time_of(p, s).value();
    };
    CHECK(all_of(0, false, false) == 0.0);
    CHECK(all_of(1, true, false) == 5.0);
    CHECK(all_of(2, false, true) == 1.5);
    CHECK(all_of(3, false, false) == 0.5);
    p.microbatches.set_factors(std::vector<cost_factors>{{.forward = 3.0, .memory = 2.0}, {}, {}});
    CHECK(all_of(1, true, false) == 10.0);
    CHECK(all_of(2, false, true) == 4.5);
    CHECK(all_of(3, false, false) == 1.5);
}
