#include "optpipe/online/controller.hpp"

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/construct/accumulation_order.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/time/noise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;

problem four_ranks(double slow = 1.0) {
    const duration unit{10};
    const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
    auto p = to_problem(make_problem(graph<4, 8>{}, uniform_memory{costs}));
    for (auto* each :
         {&p.costs[stage{2}].forward, &p.costs[stage{2}].backward_input, &p.costs[stage{2}].backward_weight})
        *each = slow * *each;
    return p;
}

online_options quick() {
    online_options options;
    options.planning.how.time_limit = std::chrono::duration<double>{60.0};
    options.planning.how.gap = 0.02;
    options.calm_steps = 1;
    options.warm_up = 0;
    options.window = 3;
    return options;
}

/// Steps of the schedule in use, in which operations take their times in `real`, with noise of the given spread.
class trainer {
public:
    trainer(online_controller& of, double spread) : of_{of}, noise_{.spread = spread} {}

    void step(const problem& real) {
        const auto ran = simulate(real, order_of(of_.present_schedule()), noise_, of_.steps());
        of_.add_step(1e-3 * objective_of(real, ran).value());
        of_.add_measured(of_.steps(), ran, {});
        plan_ = of_.next_plan();
    }
    /// Steps until a plan is published.
    std::size_t until_plan(const problem& real) {
        std::size_t steps = 0;
        do {
            step(real);
            ++steps;
            std::this_thread::yield();
        } while (!plan_);
        return steps;
    }
    void settle(bool accepted) {
        of_.settled(accepted, accepted ? std::vector<std::string>{} : std::vector<std::string>{"rank 2 refuses"}, 1e-4);
    }
    [[nodiscard]] const online_plan& plan() const { return *plan_; }

private:
    online_controller& of_;
    noise_model noise_;
    std::optional<online_plan> plan_{};
};

/// Adds the number of measured steps that the controller wants before it offers a plan, all as planned.
void measure_costs(online_controller& of, const problem& p) {
    const auto as_planned = simulate(p, order_of(of.present_schedule()));
    for (std::uint64_t step = 0; step < quick().window; ++step)
        of.add_measured(step, *as_planned, {});
}

std::size_t count(const online_controller& of, online_event::kind_type kind) {
    std::size_t found = 0;
    for (const auto& event : of.log())
        found += event.kind == kind ? 1 : 0;
    return found;
}
using kind = online_event::kind_type;

} // namespace

TEST_CASE("a bad plan is replaced, and one that is refused isn't offered again") {
    const auto p = four_ranks();
    online_controller controller{p, *build_schedule(p, gpipe), quick()};
    trainer train{controller, 0.0};
    train.until_plan(p);
    const auto first = train.plan();
    CHECK(first.objective < first.present);
    CHECK(objective_of(p, *first.schedule) == first.objective);
    train.step(p);
    CHECK_FALSE(controller.next_plan()); // one at a time
    train.settle(false);
    CHECK(count(controller, kind::refused) == 1);
    CHECK(objective_of(p, controller.present_schedule()) == first.present);
    CHECK(controller.planner().wait_for(std::chrono::duration<double>{300.0}));
    if (controller.planner().poll().schedule == first.schedule) {
        train.step(p);
        CHECK_FALSE(controller.next_plan());
    }
}

TEST_CASE("no plan is offered for a guess, only for what was measured") {
    const auto real = four_ranks(2.0);
    online_controller controller{four_ranks(), *build_schedule(real, gpipe), quick()};
    trainer train{controller, 0.0};
    CHECK(controller.planner().wait_for(std::chrono::duration<double>{300.0})); // the plan for the guess is ready
    CHECK(train.until_plan(real) >= quick().window);
    CHECK(train.plan().problem.costs[stage{2}].forward.value() == doctest::Approx(20));
    CHECK(controller.log().front().kind == kind::costs);
}

TEST_CASE("costs that have drifted are found, measured and planned with") {
    const auto p = four_ranks();
    const auto slower = four_ranks(2.0);
    auto options = quick();
    options.least_gain = 1e-6;
    online_controller controller{p, *build_schedule(p, zero_bubble_h1), options};
    trainer train{controller, 0.01};
    for (std::size_t i = 0; i < 6; ++i)
        train.step(p);
    CHECK(count(controller, kind::drift) == 0);
    std::size_t steps = 0;
    while (count(controller, kind::drift) == 0 && steps < 100) {
        train.step(slower);
        ++steps;
    }
    CHECK(steps <= 3); // once the window is new
    while (count(controller, kind::costs) == 0 && steps < 100) {
        train.step(slower);
        ++steps;
    }
    CHECK(steps <= 6);
    const auto& measured = controller.present_problem().costs[stage{2}];
    CHECK(measured.forward.value() == doctest::Approx(20).epsilon(0.01));
    CHECK(controller.present_problem().costs[stage{1}].forward.value() == doctest::Approx(10).epsilon(0.01));
}

TEST_CASE("pairs that take longer than planned are measured, and planned with, also rare ones") {
    const auto with_pairs = [](double own, double across) {
        const duration unit{10};
        const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
        auto p = to_problem(make_problem(graph<2, 8, placement::v>{}, uniform_memory{costs}));
        for (const stage f : p.graph.all_stages())
            for (const stage b : p.graph.all_stages())
                if (p.rank_of(f) == p.rank_of(b))
                    p.overlaps.add({f, b, overlap_kind::backward, (f == b ? own : across) * unit, {}});
        return p;
    };
    const auto p = with_pairs(2.0, 2.0);
    const auto real = with_pairs(2.4, 2.8);
    const auto first = build_schedule(p, dual_pipe_v);
    REQUIRE(first);
    REQUIRE(has_pairs(first->operations));
    std::set<std::pair<stage, stage>> used;
    for_each_pair(*first,
                  [&](const timed_operation& f, const timed_operation& b) { used.emplace(f.op.stage, b.op.stage); });
    auto options = quick();
    options.least_gain = 1e-6;
    online_controller controller{p, *first, options};
    const auto step = [&] { // without noise, which knows no pairs
        const auto ran = *simulate(real, order_of(controller.present_schedule()));
        controller.add_step(1e-3 * objective_of(real, ran).value());
        controller.add_measured(controller.steps(), ran, {});
    };
    const auto is_measured = [&] {
        return std::all_of(used.begin(), used.end(), [&](const auto& stages) {
            const auto of = [&](const problem& in) {
                return in.overlaps.find(stages.first, stages.second, overlap_kind::backward)->duration;
            };
            return std::abs(of(controller.present_problem()) / of(real) - 1.0) < 0.01;
        });
    };
    std::size_t steps = 0;
    for (; !is_measured() && steps < 200; ++steps)
        step();
    CHECK(steps < 200);
    CHECK(count(controller, kind::costs) > 0);
    CHECK(count(controller, kind::failure) == 0);
    CHECK(objective_of(real, *simulate(real, order_of(controller.present_schedule()))).value() ==
          doctest::Approx(objective_of(controller.present_problem(),
                                       *simulate(controller.present_problem(), order_of(controller.present_schedule())))
                              .value())
              .epsilon(0.01));
}

/// Steps of a schedule by `gpipe` with split backwards where `is_split` says so. Full backwards take `factor` times as
/// long as planned.
class partly_split {
public:
    template <class IsSplit> partly_split(const problem& p, const IsSplit& is_split) : first_{p.graph, {}} {
        order both{p.graph, {}};
        for (const auto& op : order_of(*build_schedule(p, gpipe)).operations) {
            const bool split = op.kind == operation_kind::backward && is_split(op.microbatch);
            both.operations.push_back(split ? backward_input(op.stage, op.microbatch) : op);
            if (split) both.operations.push_back(backward_weight(op.stage, op.microbatch));
        }
        first_ = *simulate(p, both);
    }
    [[nodiscard]] const schedule& first() const { return first_; }
    void steps(online_controller& of, double factor, int count) const {
        auto ran = first_;
        for (auto& timed : ran.operations)
            if (timed.op.kind == operation_kind::backward) timed.end = timed.start + factor * (timed.end - timed.start);
        for (int i = 0; i < count; ++i) {
            of.add_step(0.1);
            of.add_measured(of.steps(), ran, {});
        }
    }

private:
    schedule first_;
};

TEST_CASE("a full backward that takes other than the sum of split ones is planned with once") {
    const auto p = four_ranks();
    const partly_split step{p, [](microbatch m) { return m.position() % 2 == 0; }};
    online_controller controller{p, step.first(), quick()};
    step.steps(controller, 0.9, 30);
    CHECK(count(controller, kind::costs) == 1);
    CHECK(count(controller, kind::drift) == 0);
    step.steps(controller, 0.7, 30);
    CHECK(count(controller, kind::costs) == 2);
    CHECK(count(controller, kind::drift) == 1);
}

TEST_CASE("so is a rare full backward of a problem with pairs, which doesn't change the costs of split ones") {
    auto p = four_ranks();
    for (const stage s : p.graph.all_stages())
        p.overlaps.add({s, s, overlap_kind::backward, 1.8 * p.gradient_time(s), {}});
    const partly_split step{p, [](microbatch m) { return m.position() > 0; }};
    online_controller controller{p, step.first(), quick()};
    step.steps(controller, 1.2, 80);
    CHECK(count(controller, kind::costs) >= 1);
    CHECK(count(controller, kind::costs) <= 2);
    for (const stage s : p.graph.all_stages())
        CHECK(controller.present_problem().costs[s].backward_weight.value() ==
              doctest::Approx(p.costs[s].backward_weight.value()));
}

TEST_CASE("a transfer that the plan hardly has is found to be faster") {
    const auto with_transfers = [](double time) {
        auto p = four_ranks();
        p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{time}, duration{time}}; });
        p.memory_limit[rank{0}] = memory_size{3.5};
        return p;
    };
    const auto slow = with_transfers(20.0);
    const auto fast = with_transfers(10.0);
    const auto first = plan(slow, {.time_limit = std::chrono::duration<double>{1.0}});
    REQUIRE(first);
    std::size_t transfers = 0;
    for (const auto& timed : first->schedule.operations)
        transfers += timed.op.kind == operation_kind::offload ? 1 : 0;
    CAPTURE(transfers);
    REQUIRE(transfers > 0);
    REQUIRE(transfers <= 6); // too few for this confidence in a window of three steps
    auto options = quick();
    options.drift.confidence = 0.9999;
    options.least_gain = 1.0; // no switch
    online_controller controller{slow, first->schedule, options};
    trainer train{controller, 0.0};
    for (std::size_t i = 0; i < 5; ++i)
        train.step(slow);
    CHECK(count(controller, kind::drift) == 0);
    std::size_t steps = 0;
    while (count(controller, kind::costs) == 0 && steps < 100) {
        train.step(fast);
        ++steps;
    }
    CHECK(steps <= 20);
    const auto& found = *controller.present_problem().storage_of(stage{0}, 1).transfer;
    CHECK(found.offload.value() == doctest::Approx(10));
    CHECK(found.reload.value() == doctest::Approx(10));
}

TEST_CASE("a probed transfer is planned with where it has changed by more than noise") {
    auto p = four_ranks();
    p.change_stages([&](auto& costs) { costs.transfer = transfer_times{duration{20}, duration{20}}; });
    online_controller controller{p, *build_schedule(p, zero_bubble_h1), quick()};
    const auto submitted = controller.planner().poll().submission;
    const operation offload{stage{1}, operation_kind::offload, microbatch{0}, 1};
    const auto times = [](double out, double in) { return transfer_times{duration{out}, duration{in}}; };
    controller.add_probe(3, offload, times(18, 22));
    controller.add_probe(5, offload, times(10, 30));
    controller.add_probe(7, offload, times(30, 20)); // noise goes in both directions
    controller.add_probe(9, offload, times(20, 30));
    CHECK(controller.present_problem().storage[stage{1}] == p.storage[stage{1}]);
    CHECK(controller.planner().poll().submission == submitted);
    controller.add_probe(11, offload, times(9, 22));
    controller.add_probe(13, offload, times(11, 22));
    CHECK(controller.present_problem().storage_of(stage{1}, 1).transfer == times(11, 20));
    CHECK(controller.present_problem().storage[stage{0}] == p.storage[stage{0}]);
    CHECK(controller.planner().poll().submission == submitted + 1);
    CHECK(count(controller, kind::drift) == 1);
    CHECK(count(controller, kind::costs) == 1);
}

TEST_CASE("what is too short to matter may change as it likes") {
    auto p = four_ranks();
    p.change_stages([&](auto& costs) { costs.transfer = transfer_times{duration{1e-3}, duration{1e-3}}; });
    online_controller controller{p, *build_schedule(p, zero_bubble_h1), quick()};
    const operation offload{stage{1}, operation_kind::offload, microbatch{0}, 1};
    for (std::uint64_t step = 0; step < 20; ++step)
        controller.add_probe(step, offload, {duration{5e-3}, duration{1e-4}});
    CHECK(controller.log().empty());
    // A thousandth of a forward longer on all stages, and no noise that hides it.
    trainer train{controller, 0.0};
    auto longer = p;
    for (auto& costs : longer.costs)
        costs.forward = 1.001 * costs.forward;
    for (std::size_t i = 0; i < 10; ++i)
        train.step(p);
    for (std::size_t i = 0; i < 10; ++i)
        train.step(longer);
    CHECK(count(controller, kind::drift) == 0);
}

TEST_CASE("noise is no reason to switch") {
    const auto p = four_ranks();
    const auto best = plan(p);
    REQUIRE(best);
    online_controller controller{p, best->schedule, quick()};
    trainer train{controller, 0.1};
    for (std::size_t i = 0; i < 1000; ++i) {
        train.step(p);
    }
    for (const auto& event : controller.log())
        CHECK_MESSAGE(event.kind != kind::publish, "step " << event.step << ": " << event.text);
}

TEST_CASE("why there is no plan is said once, and training goes on") {
    auto p = four_ranks();
    const auto first = build_schedule(p, gpipe); // holds eight stashes
    for (auto& limit : p.memory_limit)
        limit = memory_size{2};
    online_controller controller{p, *first, quick()};
    while (count(controller, kind::failure) == 0) {
        controller.add_step(1.0);
        CHECK_FALSE(controller.next_plan());
        std::this_thread::yield();
    }
    controller.add_step(1.0);
    CHECK_FALSE(controller.next_plan());
    CHECK(count(controller, kind::failure) == 1);
}

TEST_CASE("a plan that is accepted is the one in use") {
    const auto p = four_ranks();
    online_controller controller{p, *build_schedule(p, gpipe), quick()};
    trainer train{controller, 0.0};
    train.until_plan(p);
    train.settle(true);
    CHECK(count(controller, kind::accepted) == 1);
    CHECK(objective_of(p, controller.present_schedule()) == train.plan().objective);
}

TEST_CASE("plans add up weight gradients as the first schedule does, where that is asked for") {
    const auto p = four_ranks();
    const auto first = build_schedule(p, gpipe);
    auto options = quick();
    options.keep_accumulation_order = true;
    online_controller controller{p, *first, options};
    trainer train{controller, 0.0};
    train.until_plan(p);
    CHECK(is_valid(p, *train.plan().schedule));
    CHECK(accumulation_order_of(*train.plan().schedule) == accumulation_order_of(*first));
    CHECK(objective_of(p, *train.plan().schedule) == train.plan().objective);
}

TEST_CASE("a plan that noise hides is said to be, and taken once it doesn't") {
    const auto p = four_ranks();
    online_controller controller{p, *build_schedule(p, gpipe), quick()};
    measure_costs(controller, p);
    REQUIRE(controller.planner().wait_for(std::chrono::duration<double>{300.0}));
    for (std::size_t i = 0; i < 20; ++i) {
        controller.add_step(i % 3 == 0 ? 1.0 : i % 3 == 1 ? 20.0 : 400.0);
        if (i > 0) CHECK_FALSE(controller.next_plan());
    }
    CHECK(count(controller, kind::declined) == 1);
    std::size_t steps = 0;
    do {
        controller.add_step(1.0);
    } while (!controller.next_plan() && ++steps < 100);
    CHECK(steps < 100);
    CHECK(count(controller, kind::declined) == 1);
}

TEST_CASE("at the end of the training no switch pays") {
    const auto p = four_ranks();
    const auto first = build_schedule(p, gpipe);
    for (const bool ends : {true, false}) {
        auto options = quick();
        if (ends) options.steps = 3;
        online_controller controller{p, *first, options};
        for (int i = 0; i < 3; ++i)
            controller.add_step(1.0);
        measure_costs(controller, p);
        REQUIRE(controller.planner().wait_for(std::chrono::duration<double>{300.0}));
        CHECK(controller.next_plan().has_value() == !ends);
    }
}
