#include "optpipe/online/online_run.hpp"

#include "optpipe/execution/threads/run.hpp"
#include "optpipe/online/plan_text.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/dual_pipe_v.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/testing/executor_model.hpp"
#include "optpipe/testing/paced_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace optpipe;
using namespace std::chrono_literals;

problem three_ranks(double transfer = 1.0) {
    const duration unit{1};
    const stage_costs costs{
        unit, unit, unit, memory_size{1}, memory_size{0.5}, transfer_times{transfer * unit, transfer * unit}};
    return to_problem(make_problem(graph<3, 6>{}, uniform_memory{costs}));
}

} // namespace

TEST_CASE("all ranks switch to better plans between the same steps, and every byte arrives") {
    const auto p = three_ranks();
    const auto first = build_schedule(p, gpipe);
    REQUIRE(first);
    online_options options;
    options.planning.how.gap = 0.05;
    options.planning.how.time_limit = 60s;
    options.calm_steps = 1;
    const online_setting setting{{.bytes_per_unit = 64, .message_bytes = 24}, 100us};
    constexpr std::size_t most_steps = 5000; // far more than any machine needs
    threads::cluster cluster{3, {.record_times = true}};
    std::vector<std::vector<std::uint64_t>> versions(3);
    std::vector<std::size_t> weights(3);
    std::vector<online_event> log;
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        const auto self = here.self();
        testing::paced_model<testing::tracing_model> model{testing::tracing_model{3}, p, setting.time_unit};
        online_run run{p, *first, here, model, cluster.control(self), setting, options};
        // Each rank ends ten steps after its first switch, which is the same step on all.
        std::size_t switched = 0;
        for (std::size_t step = 0; step < most_steps && switched < 10; ++step) {
            versions[self.position()].push_back(run.version());
            run.step();
            if (run.version() > 0) ++switched;
        }
        weights[self.position()] = model.model().weights();
        if (run.controller()) log = run.controller()->log();
    });
    CHECK(versions[0].size() < most_steps);
    for (std::size_t r = 0; r < 3; ++r) {
        CHECK(versions[r] == versions[0]);
        CHECK(weights[r] == versions[r].size() * 6);
    }
    REQUIRE_FALSE(log.empty());
    for (const auto& event : log)
        CHECK_MESSAGE(event.kind != online_event::kind_type::failure, event.text);
}

TEST_CASE("pairs are measured while they run, and all ranks switch plans with them at the same step") {
    const auto with_pairs = [](double length) {
        const duration unit{1};
        const stage_costs costs{unit, unit, unit, memory_size{1}, memory_size{0.5}, {}};
        auto p = to_problem(make_problem(graph<2, 6, placement::v>{}, uniform_memory{costs}));
        for (const stage f : p.graph.all_stages())
            for (const stage b : p.graph.all_stages())
                if (p.rank_of(f) == p.rank_of(b))
                    p.overlaps.add({f, b, overlap_kind::backward, duration{length}, memory_size{0.5}});
        return p;
    };
    const auto planned = with_pairs(2.0);
    const auto real = with_pairs(2.5);
    const auto first = *build_schedule(planned, dual_pipe_v);
    std::set<std::pair<stage, stage>> used;
    for_each_pair(first,
                  [&](const timed_operation& f, const timed_operation& b) { used.emplace(f.op.stage, b.op.stage); });
    REQUIRE_FALSE(used.empty());
    online_options options;
    options.planning.how.time_limit = 60s;
    options.planning.how.gap = 0.05;
    options.measure_every = 1;
    options.calm_steps = 1;
    const online_setting setting{{.bytes_per_unit = 64, .message_bytes = 24}, 500us};
    constexpr std::size_t most_steps = 400; // on a loaded machine, noise may exceed what another plan gains
    threads::cluster cluster{2, {.record_times = true}};
    std::vector<std::vector<std::uint64_t>> versions(2);
    std::vector<std::size_t> weights(2);
    std::map<std::pair<stage, stage>, duration> longest;
    std::vector<online_event> log;
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        const auto self = here.self();
        testing::paced_model<testing::tracing_model> model{testing::tracing_model{4}, real, setting.time_unit};
        online_run run{planned, first, here, model, cluster.control(self), setting, options};
        std::size_t switched = 0;
        for (std::size_t step = 0; step < most_steps && switched < 10; ++step) {
            versions[self.position()].push_back(run.version());
            run.step();
            if (run.version() > 0) ++switched;
            if (!run.controller()) continue;
            for (const auto& [f, b] : used) {
                const auto& overlaps = run.controller()->present_problem().overlaps;
                auto& most = longest[{f, b}];
                most = std::max(most, overlaps.find(f, b, overlap_kind::backward)->duration);
            }
        }
        weights[self.position()] = model.model().weights();
        if (run.controller()) log = run.controller()->log();
    });
    for (std::size_t r = 0; r < 2; ++r) {
        CHECK(versions[r] == versions[0]);
        CHECK(weights[r] == versions[r].size() * 6 * 2);
    }
    for (const auto& each : used)
        CHECK(longest[each] >= duration{2.5});
    for (const auto& event : log)
        CHECK_MESSAGE(event.kind != online_event::kind_type::failure, event.text);
}

TEST_CASE("what can't be measured is said, not guessed") {
    const auto p = three_ranks();
    const auto first = build_schedule(p, one_forward_one_backward);
    REQUIRE(first);
    const auto run_with = [&](threads::options how, std::chrono::microseconds unit) -> std::string {
        const online_setting setting{{.bytes_per_unit = 64, .message_bytes = 24}, unit};
        threads::cluster cluster{3, how};
        try {
            threads::on_all_ranks(cluster, [&](threads::executor& here) {
                testing::tracing_model model{3};
                online_run run{p, *first, here, model, cluster.control(here.self()), setting};
                for (std::size_t step = 0; step < 3; ++step)
                    run.step();
            });
        } catch (const std::exception& e) {
            return e.what();
        }
        return "no error";
    };
    CHECK(run_with({.record_times = true}, 1ms) == "no error");
    CHECK(run_with({.record_times = false}, 1ms).find("its executor has to record times") != std::string::npos);
    if (!contracts_throw()) return;
    CHECK(run_with({.record_times = true}, 0us).find("online_setting: time_unit is above 0") != std::string::npos);
}

TEST_CASE("a link that the plan avoids is found to be fast") {
    // The assumed transfer of a stash takes as long as the whole step; the true one takes a unit each way.
    const auto slow = three_ranks(10.0);
    const auto first = build_schedule(slow, one_forward_one_backward);
    REQUIRE(first);
    const auto real = three_ranks();
    online_options options;
    options.planning.how.gap = 0.05;
    options.probe_share = 0.05;
    options.least_gain = 1.0; // no switch
    const online_setting setting{{.bytes_per_unit = 64, .message_bytes = 24}, 1ms};
    threads::cluster cluster{3, {.copies = threads::planned_copies(real, setting.time_unit), .record_times = true}};
    const auto rounds = probe_rounds{slow, *first, rank{0}, options.probe_share, 0.25}.steps_between();
    std::vector<std::size_t> weights(3);
    std::optional<problem> planned;
    std::size_t probed = 0;
    threads::on_all_ranks(cluster, [&](threads::executor& here) {
        testing::tracing_model model{3};
        online_run run{slow, *first, here, model, cluster.control(here.self()), setting, options};
        // One probe, and one more because it differs. Each is reported with its step, and read with the next.
        for (std::size_t step = 0; step < rounds + 3; ++step)
            run.step();
        weights[here.self().position()] = model.weights();
        if (!run.controller()) return;
        planned = run.controller()->present_problem();
        for (const auto& event : run.controller()->log())
            probed += event.text.ends_with(", probed") ? 1 : 0;
    });
    CHECK(probed == 3);
    for (const auto each : weights)
        CHECK(each == (rounds + 3) * 6); // as many as without probes
    for (const stage s : slow.graph.all_stages()) {
        const auto found = *planned->storage_of(s, 1).transfer;
        for (const auto each : {found.offload, found.reload}) {
            CHECK(each >= duration{1.0});
            CHECK(each < duration{10.0});
        }
    }
}

TEST_CASE("plans and times survive the way as text, and what is none is refused") {
    const auto p = three_ranks();
    const auto s = build_schedule(p, gpipe);
    const lowering_options how{.bytes_per_unit = 64, .message_bytes = 24};
    const online_plan plan{p, std::make_shared<const schedule>(*s), {}, {}, "gpipe"};
    const auto text = detail::plan_to_text(plan);
    const auto programs = detail::programs_from_text(text, how);
    const auto expected = *lower(p, *s, how);
    REQUIRE(programs.size() == expected.size());
    for (const auto& each : expected) {
        CHECK(programs[each.self].instructions.size() == each.instructions.size());
        CHECK(programs[each.self].device_bytes == each.device_bytes);
    }
    for (const auto* bad : {"", "x", "12", "-1\n{}", "999999999999999999999\n{}", "99\n{}"})
        CHECK_THROWS_AS(static_cast<void>(detail::programs_from_text(bad, how)), error);
    CHECK_THROWS_AS(static_cast<void>(detail::programs_from_text(text.substr(0, text.size() / 2), how)), error);

    const detail::step_times times{7, 2, {{5ns, 9ns}, {9ns, 11ns}}};
    const auto back = detail::times_from_text(detail::times_to_text(times));
    CHECK((back.step == 7 && back.version == 2 && back.times.size() == 2));
    CHECK(back.times[1].end == 11ns);
    for (const auto* bad : {"", "1", "1 2 3"})
        CHECK_THROWS_AS(static_cast<void>(detail::times_from_text(bad)), error);

    const detail::probe_times probe{7, {stage{2}, operation_kind::offload, microbatch{0}, 3}, 5ns, 9ns};
    const auto same = detail::probe_from_text(detail::probe_to_text(probe));
    REQUIRE(same);
    CHECK((same->step == 7 && same->offload == probe.offload && same->out == 5ns && same->in == 9ns));
    CHECK_FALSE(detail::probe_from_text(detail::times_to_text(times)));
    for (const auto* bad : {"probe", "probe 1 2 3 4", "probe 1 2 3 4 -5"})
        CHECK_THROWS_AS(static_cast<void>(detail::probe_from_text(bad)), error);
}
