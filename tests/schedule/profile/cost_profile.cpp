#include <optpipe/core/random.hpp>
#include <optpipe/pipeline/validate_problem.hpp>
#include <optpipe/schedule/builders/all.hpp>
#include <optpipe/schedule/construct/within_memory.hpp>
#include <optpipe/schedule/profile/cost_profile.hpp>
#include <optpipe/schedule/profile/drift.hpp>
#include <optpipe/schedule/profile/measured_costs.hpp>
#include <optpipe/schedule/time/evaluate.hpp>
#include <optpipe/schedule/time/measure.hpp>
#include <optpipe/schedule/time/noise.hpp>
#include <optpipe/schedule/time/simulate.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

problem example(std::size_t ranks = 3, std::size_t microbatches = 6) {
    per_stage<stage_costs> costs(ranks);
    for (const stage s : costs.indices()) {
        const double more = 1.0 + 0.1 * s.value();
        costs[s].forward = duration{more};
        costs[s].backward_input = duration{1.2 * more};
        costs[s].backward_weight = duration{0.8 * more};
        costs[s].activation = memory_size{1.0};
        costs[s].transfer = transfer_times{duration{0.5}, duration{0.6}};
    }
    problem p{to_any_graph(graph<dynamic, dynamic>{ranks, microbatches}), std::move(costs)};
    p.p2p = hop_times<>{duration{0.25}};
    return p;
}

/// Every stage has a list: keep, recompute within the backward, recompute ahead of it, or offload.
problem with_options(problem p) {
    for (const stage s : p.graph.all_stages()) {
        const auto keep = keep_stash(p.costs[s]);
        auto inside = keep;
        inside.name = "inside";
        inside.held = memory_size{0.2};
        inside.backward_extra = duration{0.9};
        auto ahead = keep;
        ahead.name = "ahead";
        ahead.held = memory_size{0.3};
        ahead.recompute = duration{0.7};
        auto host = keep;
        host.name = "host";
        host.transfer_size = memory_size{1.0};
        host.transfer = transfer_times{duration{0.4}, duration{0.3}};
        p.set_storage(s, std::vector{keep, inside, ahead, host});
    }
    return p;
}

/// Consecutive microbatches of a stage have different options, with full or split backwards.
order mixed_order(const problem& p, bool split) {
    order made{p.graph, {}};
    for (const microbatch m : p.graph.all_microbatches()) {
        const auto add = [&](operation op) {
            op.storage = static_cast<storage_index>(m.position() % 4);
            made.operations.push_back(op);
        };
        for (const stage s : p.graph.all_stages()) {
            add(forward(s, m));
            if (p.storage[s][m.position() % 4].offloads()) add(offload_of(s, m));
        }
        for (std::size_t i = p.graph.stages(); i-- > 0;) {
            const stage s{i};
            if (p.storage[s][m.position() % 4].offloads()) add(reload_of(s, m));
            if (p.storage[s][m.position() % 4].recomputes()) add(recompute_of(s, m));
            add(split ? backward_input(s, m) : backward(s, m));
            if (split) add(backward_weight(s, m));
        }
    }
    return made;
}

schedule stretched(schedule s, double factor) {
    for (auto& timed : s.operations) {
        timed.start = factor * timed.start;
        timed.end = factor * timed.end;
    }
    return s;
}

void check_same_costs(const problem& a, const problem& b) {
    for (const stage s : a.graph.all_stages()) {
        CAPTURE(s.value());
        CHECK(a.costs[s].forward.value() == doctest::Approx(b.costs[s].forward.value()));
        CHECK(a.costs[s].backward_input.value() == doctest::Approx(b.costs[s].backward_input.value()));
        CHECK(a.costs[s].backward_weight.value() == doctest::Approx(b.costs[s].backward_weight.value()));
        REQUIRE(a.storage_options(s) == b.storage_options(s));
        for (std::size_t i = 0; i < a.storage[s].size(); ++i) {
            const auto& one = a.storage[s][i];
            const auto& other = b.storage[s][i];
            CAPTURE(i);
            CHECK(one.recompute.value() == doctest::Approx(other.recompute.value()));
            CHECK(one.backward_extra.value() == doctest::Approx(other.backward_extra.value()));
            REQUIRE(one.offloads() == other.offloads());
            if (one.transfer) {
                CHECK(one.transfer->offload.value() == doctest::Approx(other.transfer->offload.value()));
                CHECK(one.transfer->reload.value() == doctest::Approx(other.transfer->reload.value()));
            }
        }
    }
}

std::optional<estimate> estimate_named(const problem& p, const cost_profile& profile, const std::string& name) {
    for (const auto& e : profile.operations())
        if (to_string(p, e.of) == name) return e.estimate;
    return std::nullopt;
}

} // namespace

TEST_CASE("a step that ran as planned gives the problem back, with the backward full or split") {
    const auto p = example();
    for (const auto& s : {*build_schedule(p, one_forward_one_backward), *build_schedule(p, zero_bubble_h1)}) {
        cost_profile profile;
        profile.add(p, s);
        const auto now = with_measured_costs(p, profile);
        CHECK(validate(now).empty());
        check_same_costs(now, p);
        for (const auto& [pair, e] : profile.messages()) {
            CHECK(e.median.value() >= doctest::Approx(0.25));
            CHECK(now.p2p(pair.from, pair.to) == e.median);
        }
        CHECK_FALSE(profile.messages().empty());
    }
}

TEST_CASE("a step of a graph whose microbatches differ gives the problem back, whatever was planned") {
    const stage_costs c{duration{2.0}, duration{3.0}, duration{1.0}, memory_size{1.0}};
    const edges::any feeds{3, {{stage{0}, stage{2}, 2.0}, {stage{1}, stage{2}}}};
    const auto where = to_any_graph(graph<3, 3>{}).placement();
    problem p{any_graph{3, 3, where, feeds}, per_stage<stage_costs>(3, c)};
    p.p2p = hop_times<>{duration{0.5}};
    p.change_stage(stage{0}, [](stage_costs& frozen) {
        frozen.gradients = gradient_kind::none;
        frozen.backward_input = frozen.backward_weight = duration{};
        frozen.weight_stash = memory_size{};
    });
    p.change_stage(stage{1}, [](stage_costs& frozen) {
        frozen.gradients = gradient_kind::input;
        frozen.backward_weight = duration{};
        frozen.weight_stash = memory_size{};
    });
    p.microbatches.set_factors(std::vector<cost_factors>{{}, {0.5, 0.75, 2.0, 1.0, 3.0}, {1.5, 1.25, 0.5, 1.0, 0.5}});
    const auto measured = simulate(p, one_at_a_time(p));
    REQUIRE(measured);
    auto planned = p;
    planned.change_stages([](stage_costs& costs) {
        costs.forward = 2.0 * costs.forward;
        costs.backward_input = 3.0 * costs.backward_input;
        costs.backward_weight = 3.0 * costs.backward_weight; // B is divided as planned
    });
    cost_profile profile;
    profile.add(planned, *measured);
    const auto now = with_measured_costs(planned, profile);
    CHECK(validate(now).empty());
    check_same_costs(now, p);
    for (const auto& [pair, e] : profile.messages())
        CHECK(e.median.value() == doctest::Approx(0.5));
}

TEST_CASE("what ran slower has its measured costs: all storage options, full and split backwards") {
    const auto truth = with_options(example(3, 8));
    for (const bool split : {true, false}) {
        auto slower = truth;
        for (const stage s : slower.graph.all_stages()) {
            auto& c = slower.costs[s];
            c.forward = 1.5 * c.forward;
            c.backward_input = 1.25 * c.backward_input;
            c.backward_weight = (split ? 2.0 : 1.25) * c.backward_weight;
            slower.storage[s][1].backward_extra = duration{1.7};
            slower.storage[s][2].recompute = duration{1.1};
            slower.storage[s][3].transfer = transfer_times{duration{0.9}, duration{0.8}};
        }
        const auto made = simulate(slower, mixed_order(slower, split));
        REQUIRE(made);
        cost_profile profile;
        profile.add(truth, *made);
        const auto now = with_measured_costs(truth, profile);
        CHECK(validate(now).empty());
        check_same_costs(now, slower);
    }
}

TEST_CASE("where every backward recomputes, its time is divided as planned") {
    const auto p = with_options(example(2, 4));
    order all_inside{p.graph, {}};
    for (auto op : mixed_order(p, true).operations) {
        op.storage = 1;
        if (!is_transfer(op.kind) && op.kind != operation_kind::recompute) all_inside.operations.push_back(op);
    }
    const auto made = simulate(p, all_inside);
    REQUIRE(made);
    cost_profile profile;
    profile.add(p, stretched(*made, 2.0));
    const auto now = with_measured_costs(p, profile);
    for (const stage s : p.graph.all_stages()) {
        CHECK(now.costs[s].backward_input.value() == doctest::Approx(2.0 * p.costs[s].backward_input.value()));
        CHECK(now.storage[s][1].backward_extra.value() == doctest::Approx(1.8));
        // Not measured: scaled like the forward, which took twice as long.
        CHECK(now.storage[s][2].recompute.value() == doctest::Approx(2.0 * p.storage[s][2].recompute.value()));
    }
}

TEST_CASE("of several options that recompute within the backward, each has its own time") {
    auto p = with_options(example(2, 4));
    for (auto& options : p.storage) {
        options[2] = options[1];
        options[2].name = "more";
        options[2].backward_extra = duration{1.5};
    }
    order mixed{p.graph, {}};
    for (auto op : mixed_order(p, true).operations) {
        op.storage = op.microbatch.position() % 2 == 0 ? 1 : 2;
        if (!is_transfer(op.kind) && op.kind != operation_kind::recompute) mixed.operations.push_back(op);
    }
    const auto made = simulate(p, mixed);
    REQUIRE(made);
    cost_profile profile;
    profile.add(p, stretched(*made, 1.3));
    const auto slower = with_measured_costs(p, profile);
    for (const stage s : p.graph.all_stages()) {
        CHECK(slower.costs[s].backward_input.value() == doctest::Approx(1.3 * p.costs[s].backward_input.value()));
        CHECK(slower.storage[s][1].backward_extra.value() == doctest::Approx(1.3 * 0.9));
        CHECK(slower.storage[s][2].backward_extra.value() == doctest::Approx(1.3 * 1.5));
    }

    // By accident, the one with more work takes no longer than the other; it is still measured separately.
    auto ran = *made;
    for (auto& timed : ran.operations)
        if (timed.op.kind == operation_kind::backward_input && timed.op.storage == 2)
            timed.end = timed.start + p.costs[timed.op.stage].backward_input;
    cost_profile odd;
    odd.add(p, ran);
    for (const stage s : p.graph.all_stages())
        CHECK(with_measured_costs(p, odd).storage[s][2].backward_extra > duration{});
}

TEST_CASE("transfers that weren't measured take as much longer as the largest that was") {
    auto p = with_options(example(2, 4));
    for (const stage s : p.graph.all_stages()) {
        auto part = p.storage[s][3];
        part.name = "part";
        part.transfer_size = 0.5 * part.transfer_size;
        part.transfer = transfer_times{0.5 * part.transfer->offload, 0.5 * part.transfer->reload};
        p.storage[s].push_back(part);
    }
    auto slower = p;
    for (const stage s : p.graph.all_stages())
        slower.storage[s][3].transfer =
            transfer_times{3.0 * p.storage[s][3].transfer->offload, 2.0 * p.storage[s][3].transfer->reload};
    const auto made = simulate(slower, mixed_order(slower, true));
    REQUIRE(made);
    cost_profile profile;
    profile.add(p, *made);
    const auto now = with_measured_costs(p, profile);
    for (const stage s : p.graph.all_stages()) {
        const auto& planned = *p.storage[s][4].transfer;
        CHECK(now.storage[s][4].transfer->offload.value() == doctest::Approx(3.0 * planned.offload.value()));
        CHECK(now.storage[s][4].transfer->reload.value() == doctest::Approx(2.0 * planned.reload.value()));
    }
}

TEST_CASE("a full backward beside a measured half is divided by that") {
    const auto p = example(1, 4);
    schedule s{p.graph, {}};
    const auto at = [&](operation op, double start, double end) {
        s.operations.push_back({op, duration{start}, duration{end}});
    };
    at(forward(stage{0}, microbatch{0}), 0.0, 1.0);
    at(backward(stage{0}, microbatch{0}), 1.0, 4.0);
    at(forward(stage{0}, microbatch{1}), 4.0, 5.0);
    at(backward_weight(stage{0}, microbatch{1}), 6.0, 6.5);
    cost_profile profile;
    profile.add(p, s);
    const auto now = with_measured_costs(p, profile);
    CHECK(now.costs[stage{0}].backward_weight == duration{0.5});
    CHECK(now.costs[stage{0}].backward_input == duration{2.5});
}

TEST_CASE("transfers that shared their link are kept apart from those that were alone") {
    auto p = example(2, 2);
    p.transfer.share_link(rank{0}, rank{1});
    schedule s{p.graph, {}};
    const auto at = [&](operation op, double start, double end) {
        op.storage = 1;
        s.operations.push_back({op, duration{start}, duration{end}});
    };
    at(offload_of(stage{0}, microbatch{0}), 0.0, 1.0);
    at(offload_of(stage{1}, microbatch{0}), 0.5, 1.5);
    at(offload_of(stage{0}, microbatch{1}), 2.0, 2.6);
    at(reload_of(stage{0}, microbatch{0}), 2.0, 2.7); // the other direction of a full-duplex link
    at(offload_of(stage{1}, microbatch{1}), 2.599, 3.2);
    cost_profile profile;
    profile.add(p, s);
    REQUIRE(estimate_named(p, profile, "0OFFLOAD (offload), link shared"));
    CHECK(estimate_named(p, profile, "0OFFLOAD (offload), link shared")->median == duration{1.0});
    REQUIRE(estimate_named(p, profile, "0OFFLOAD (offload)"));
    CHECK(estimate_named(p, profile, "0OFFLOAD (offload)")->median.value() == doctest::Approx(0.6));
    REQUIRE(estimate_named(p, profile, "0RELOAD (offload)"));
    const auto now = with_measured_costs(p, profile);
    CHECK(now.storage_of(stage{0}, 1).transfer->offload.value() == doctest::Approx(0.6));
    CHECK(now.storage_of(stage{0}, 1).transfer->reload.value() == doctest::Approx(0.7));
    p.transfer.duplex = duplex_kind::half;
    cost_profile half;
    half.add(p, s);
    CHECK(estimate_named(p, half, "0RELOAD (offload), link shared"));
}

TEST_CASE("ranks that measured the same steps are merged into what one measurement of all gives") {
    const auto p = example();
    const auto whole = *build_schedule(p, zero_bubble_h1);
    cost_profile all;
    std::vector<cost_profile> by_rank(p.graph.ranks());
    for (std::uint64_t step = 0; step < 4; ++step) {
        const auto ran = stretched(whole, 1.0 + 0.01 * static_cast<double>(step));
        all.add(p, step, ran);
        for (const rank r : p.graph.all_ranks()) {
            schedule own{p.graph, {}};
            for (const auto& timed : ran.operations)
                if (p.rank_of(timed.op.stage) == r) own.operations.push_back(timed);
            by_rank[r.position()].add(p, step, own);
        }
    }
    auto merged = by_rank[2];
    merged.merge(by_rank[0]);
    merged.merge(by_rank[1]);
    CHECK(merged.steps() == 4);
    CHECK(merged.peaks() == all.peaks());
    const auto one = all.operations();
    const auto other = merged.operations();
    REQUIRE(one.size() == other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
        CHECK(one[i].of == other[i].of);
        CHECK(one[i].estimate.median == other[i].estimate.median);
        CHECK(one[i].estimate.count == other[i].estimate.count);
    }
    // A receiver can't tell when its message was sent.
    CHECK(merged.messages().empty());

    auto twice = all;
    twice.append(all);
    CHECK(twice.steps() == 8);
}

TEST_CASE("slow first steps are left out, unless the number is given; the oldest are forgotten") {
    const auto p = example();
    const auto usual = *build_schedule(p, one_forward_one_backward);
    cost_profile profile;
    for (const double factor : {6.0, 2.0, 1.0, 1.001, 0.999, 1.0, 1.002})
        profile.add(p, stretched(usual, factor));
    CHECK(profile.warm_up_steps() == 2);
    CHECK(estimate_named(p, profile, "0F")->median.value() == doctest::Approx(1.0).epsilon(0.002));
    profile.set_warm_up(0);
    CHECK(profile.warm_up_steps() == 0);
    profile.set_warm_up(100);
    CHECK(profile.warm_up_steps() == 6);
    CHECK_FALSE(profile.operations().empty());

    cost_profile latest{3};
    for (const double factor : {6.0, 2.0, 1.0, 1.0, 1.0})
        latest.add(p, stretched(usual, factor));
    CHECK(latest.steps() == 3);
    CHECK(estimate_named(p, latest, "0F")->median == duration{1.0});
}

TEST_CASE("what doesn't belong to the problem is refused") {
    const auto p = example();
    auto s = *build_schedule(p, one_forward_one_backward);
    const auto refused = [&](const schedule& bad) {
        cost_profile profile;
        CHECK_THROWS_AS(profile.add(p, bad), input_error);
        CHECK(profile.empty());
    };
    auto twice = s;
    twice.operations.push_back(twice.operations.front());
    refused(twice);
    auto unknown = s;
    unknown.operations.push_back({forward(stage{7}, microbatch{0}), duration{0.0}, duration{1.0}});
    refused(unknown);
    auto backwards = s;
    std::swap(backwards.operations[0].start, backwards.operations[0].end);
    refused(backwards);
    auto recomputed = s;
    recomputed.operations.push_back({recompute_of(stage{0}, microbatch{0}), duration{0.0}, duration{1.0}});
    refused(recomputed);
}

TEST_CASE("drift names what has drifted, and nothing where there is only noise") {
    const auto p = example();
    const auto usual = *build_schedule(p, one_forward_one_backward);
    const auto noisy = [&](std::uint64_t seed, double slower) {
        random_numbers random{seed};
        cost_profile profile;
        for (int step = 0; step < 8; ++step) {
            auto ran = usual;
            for (auto& [op, start, end] : ran.operations) {
                const double factor = 0.95 + 0.1 * std::ldexp(static_cast<double>(random.next() >> 11U), -53);
                end = start + factor * (op == forward(stage{1}, op.microbatch) ? slower : 1.0) * (end - start);
            }
            profile.add(p, static_cast<std::uint64_t>(step), ran, {});
        }
        return profile;
    };
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        CAPTURE(seed);
        CHECK(drift(p, noisy(seed, 1.0)).empty());
    }
    const auto found = drift(p, noisy(3, 1.2));
    REQUIRE(found.size() == 1);
    CHECK(found.front().name == "1F");
    CHECK(found.front().relative_change() == doctest::Approx(0.2).epsilon(0.2));
    CHECK(describe(found.front()).find("1F: planned 1.1, measured 1.3") == 0);
    CHECK(describe(found.front()).find(", +") != std::string::npos);
    // One step of six microbatches isn't enough for this confidence.
    cost_profile once;
    once.add(p, stretched(usual, 2.0));
    CHECK(drift(p, once).empty());
}

TEST_CASE("Student's distribution is that of the tables") {
    using detail::student_probability;
    CHECK(student_probability(12.7062, 1) == doctest::Approx(0.95).epsilon(1e-6));
    CHECK(student_probability(4.30265, 2) == doctest::Approx(0.95).epsilon(1e-6));
    CHECK(student_probability(5.84091, 3) == doctest::Approx(0.99).epsilon(1e-6));
    CHECK(student_probability(2.13185, 4) == doctest::Approx(0.9).epsilon(1e-6));
    CHECK(student_probability(3.16927, 10) == doctest::Approx(0.99).epsilon(1e-6));
    CHECK(student_probability(1.98422, 99) == doctest::Approx(0.95).epsilon(1e-6));
    CHECK(student_probability(0.0, 5) == 0.0);
    CHECK(student_probability(std::numeric_limits<double>::infinity(), 6) == doctest::Approx(1.0));
}

TEST_CASE("operations of a step that are slow together are no drift, and real drift is still found") {
    const auto p = example(4, 32);
    const auto planned = order_of(*build_schedule(p, one_forward_one_backward));
    const auto measured = [&](const problem& real, std::uint64_t seed, std::uint64_t steps, double correlation) {
        cost_profile profile;
        profile.set_warm_up(0);
        for (std::uint64_t step = 0; step < steps; ++step)
            profile.add(p,
                        simulate(real, planned, {.spread = 0.1, .rank_correlation = correlation, .seed = seed}, step));
        return profile;
    };
    constexpr std::uint64_t trials = 100;
    for (const double correlation : {0.0, 0.25, 0.9})
        for (const std::uint64_t steps : {2, 3, 10}) {
            CAPTURE(correlation);
            CAPTURE(steps);
            std::size_t alarms = 0;
            for (std::uint64_t seed = 0; seed < trials; ++seed)
                alarms += drift(p, measured(p, seed, steps, correlation)).empty() ? 0 : 1;
            CHECK(alarms <= 5);
        }
    auto slower = p;
    slower.change_stage(stage{2}, [](auto& costs) { costs.forward = 1.3 * costs.forward; });
    std::size_t found = 0;
    for (std::uint64_t seed = 0; seed < trials; ++seed) {
        const auto listed = drift(p, measured(slower, seed, 10, 0.25));
        found += std::any_of(listed.begin(), listed.end(), [](const auto& each) { return each.name == "2F"; }) ? 1 : 0;
    }
    CHECK(found >= 90);
}

TEST_CASE("a step that ran as planned has no drift, whatever the factors of its first microbatch") {
    auto p = with_options(example(2, 4));
    p.microbatches.set_factors(std::vector<cost_factors>{{2.0, 2.5, 1.5, 3.0, 1.0}, {}, {}, {0.5, 0.5, 0.5, 0.5, 0.5}});
    const auto ran = simulate(p, mixed_order(p, true));
    REQUIRE(ran);
    cost_profile profile;
    for (int step = 0; step < 8; ++step)
        profile.add(p, *ran);
    CHECK(drift(p, profile).empty());
}

TEST_CASE("measured messages replace those that times of operations suggest") {
    const auto p = example(2, 2);
    cost_profile profile;
    profile.add(p, 0, *build_schedule(p, one_forward_one_backward), {{{rank{0}, rank{1}}, duration{0.75}}});
    const auto now = with_measured_costs(p, profile);
    CHECK(now.p2p(rank{0}, rank{1}) == duration{0.75});
    CHECK(now.p2p(rank{1}, rank{0}) == duration{0.25});
}

TEST_CASE("a measured pair becomes the duration of the pair, and what wasn't measured changes like its parts") {
    auto p = example(1, 4);
    p.microbatches.set_factors(
        std::vector<cost_factors>{{}, {.forward = 2.0, .backward_input = 2.0, .backward_weight = 2.0}, {}, {}});
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{2.5}, {}});
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward_input, duration{2.0}, {}});
    const auto pair = pair_of(forward(stage{0}, microbatch{1}), backward(stage{0}, microbatch{0}));
    order o{p.graph,
            {forward(stage{0}, microbatch{0}), pair.forward, pair.backward, forward(stage{0}, microbatch{2}),
             backward(stage{0}, microbatch{1}), forward(stage{0}, microbatch{3}), backward(stage{0}, microbatch{2}),
             backward(stage{0}, microbatch{3})}};
    auto slow = p;
    slow.overlaps = {};
    slow.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{2.75}, {}});
    slow.costs[stage{0}].forward = duration{1.5};
    const auto measured = simulate(slow, o);
    REQUIRE(measured);
    cost_profile profile;
    for (int step = 0; step < 8; ++step)
        profile.add(p, *measured);
    const cost_key key{stage{0}, operation_kind::backward, {}, false, stage{0}};
    const auto all = profile.operations();
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.of == key; });
    REQUIRE(found != all.end());
    CHECK(to_string(p, key) == "(0F;0B)");
    // The forward has twice the work; both parts together were planned to have 4 of the usual 3.
    CHECK(found->estimate.median.value() == doctest::Approx(2.75 * (5.0 / 3.5) / (4.0 / 3.0)));
    CHECK(profile_violations(p, profile).empty());
    const auto known = with_measured_costs(p, profile);
    CHECK(known.costs[stage{0}].forward.value() == doctest::Approx(1.5));
    const auto* whole = known.overlaps.find(stage{0}, stage{0}, overlap_kind::backward);
    const auto* half = known.overlaps.find(stage{0}, stage{0}, overlap_kind::backward_input);
    CHECK(whole->duration == found->estimate.median);
    CHECK(half->duration.value() == doctest::Approx(2.0 * (1.5 + 1.2) / (1.0 + 1.2)));
    CHECK(drift(p, profile).size() == 2); // F and the pair
    auto without = p;
    without.overlaps = {};
    CHECK(profile_violations(without, profile).size() == 1);
    // No pair is shorter than a part.
    cost_profile long_backward;
    for (int step = 0; step < 8; ++step)
        long_backward.add(static_cast<std::uint64_t>(step),
                          {{{{stage{0}, operation_kind::backward}, duration{9.0}}, {key, duration{2.5}}}, {}});
    CHECK(with_measured_costs(p, long_backward).overlaps.find(stage{0}, stage{0}, overlap_kind::backward)->duration ==
          duration{9.0});
}
