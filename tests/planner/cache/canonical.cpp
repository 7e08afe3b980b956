#include "optpipe/planner/cache/canonical.hpp"

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/cache/carried_bound.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"
#include "oracle/random_cases.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

/// Limit of an exhaustive search of a test; cases that exceed it are left out.
constexpr std::size_t most_nodes = 20'000;

problem some_problem(std::uint64_t seed) {
    random_numbers random{seed};
    return testing::make_random_problem(random, {.storage_percent = 50, .graph_percent = 50}).problem;
}

/// The graph with other memory held by its edges.
any_graph with_held(const any_graph& g, double factor) {
    if (g.is_chain()) return g;
    std::vector<edge> all;
    for (const stage s : g.all_stages())
        g.for_each_edge_out_of(s, [&](edge e) {
            e.held = factor * e.held;
            all.push_back(e);
        });
    return {g.ranks(), g.microbatches(), g.placement(), edges::any{g.stages(), std::move(all)}};
}
stage_groups<> with_delays(const problem& p, double factor) {
    stage_groups<> groups;
    for (const stage s : p.graph.all_stages()) {
        std::vector<stage> members;
        duration delay{};
        p.groups.for_each_member(s, [&](stage member, duration of) {
            members.push_back(member);
            delay = factor * of;
        });
        if (!members.empty() && members.front() == s) groups.add(members, delay, p.graph.stages());
    }
    return groups;
}

/// The same problem with other units.
problem scaled(problem p, double time, double memory) {
    p.change_stages([&](auto& c) {
        c.forward = time * c.forward;
        c.backward_input = time * c.backward_input;
        c.backward_weight = time * c.backward_weight;
        c.activation = memory * c.activation;
        c.weight_stash = memory * c.weight_stash;
        c.kv = memory * c.kv;
        if (c.transfer) c.transfer = transfer_times{time * c.transfer->offload, time * c.transfer->reload};
    });
    for (const stage s : p.graph.all_stages())
        for (auto& o : p.storage[s]) {
            if (is_described_by_costs(p.costs[s], p.storage[s])) break;
            o.held = memory * o.held;
            o.transfer_size = memory * o.transfer_size;
            o.recompute = time * o.recompute;
            o.backward_extra = time * o.backward_extra;
            if (o.transfer) o.transfer = transfer_times{time * o.transfer->offload, time * o.transfer->reload};
        }
    p.graph = with_held(p.graph, memory);
    p.groups = with_delays(p, time);
    bounded_vector<duration, dynamic> hops;
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            hops.push_back(time * p.p2p(a, b));
    p.p2p = hop_times<>{p.graph.ranks(), std::move(hops)};
    for (const rank r : p.graph.all_ranks()) {
        if (!p.memory_limit[r].is_unlimited()) p.memory_limit[r] = memory * p.memory_limit[r];
        if (!p.host_memory_limit[r].is_unlimited()) p.host_memory_limit[r] = memory * p.host_memory_limit[r];
    }
    return p;
}

/// The same problem with its ranks numbered in reverse.
problem mirrored(const problem& p) {
    const auto ranks = p.graph.ranks();
    const auto other = [&](rank r) { return rank{ranks - 1 - r.position()}; };
    per_stage<rank> map(p.graph.stages());
    for (const stage s : p.graph.all_stages())
        map[s] = other(p.rank_of(s));
    std::vector<edge> edges;
    for (const stage s : p.graph.all_stages())
        p.graph.for_each_edge_out_of(s, [&](const edge& e) { edges.push_back(e); });
    problem result{any_graph{ranks, p.graph.microbatches(), placement::map<>{std::move(map)},
                             edges::any{p.graph.stages(), std::move(edges)}},
                   p.costs};
    result.storage = p.storage;
    result.microbatches = p.microbatches;
    result.groups = p.groups;
    bounded_vector<duration, dynamic> hops;
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            hops.push_back(p.p2p(other(a), other(b)));
    result.p2p = hop_times<>{ranks, std::move(hops)};
    result.split_backward = p.split_backward;
    result.objective = p.objective;
    result.transfer.engines = p.transfer.engines;
    result.transfer.duplex = p.transfer.duplex;
    for (const rank r : p.graph.all_ranks()) {
        result.memory_limit[r] = p.memory_limit[other(r)];
        result.host_memory_limit[r] = p.host_memory_limit[other(r)];
        result.transfer.link[r] = p.transfer.link[other(r)] + 7;
    }
    return result;
}

/// The same problem with other names of storage options, and its lists reversed.
problem with_other_lists(problem p) {
    for (auto& list : p.storage) {
        std::reverse(list.begin(), list.end());
        for (auto& option : list)
            option.name = bounded_text<32>{"renamed-", option.name.view()};
    }
    return p;
}

/// The bound for `asked` that the optimum of `known` implies; 0 if there is none.
double implied_bound(const problem& known, double optimum, const problem& asked) {
    return carried_bound(canonical_form(known), duration{optimum} / canonical_units_of(known).time,
                         canonical_form(asked)) *
           canonical_units_of(asked).time.value();
}

} // namespace

TEST_CASE("names, units, numbers of ranks and links and the order of storage options don't count") {
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        const auto p = some_problem(seed);
        const auto form = canonical_form(p);
        auto renamed = p;
        renamed.name = "another";
        renamed.time_unit = "s";
        renamed.memory_unit = "MB";
        CHECK(canonical_form(renamed) == form);
        CHECK(canonical_form(mirrored(p)) == form);
        CHECK(canonical_form(with_other_lists(p)) == form);
        CHECK(canonical_form(scaled(p, 4.0, 0.5)) == form);
        const auto odd = canonical_form(scaled(p, 0.3, 700.0));
        CHECK(is_same(odd, form));
        CHECK(odd.shape == form.shape);
        const double bound = carried_bound(odd, 1.0, form);
        CHECK((bound > 0.999999 && bound <= 1.0));
    }
}

TEST_CASE("what counts makes another problem") {
    using change = std::pair<const char*, void (*)(problem&)>;
    const change changes[] = {
        {"forward", [](problem& p) { p.costs[stage{0}].forward = 1.01 * p.costs[stage{0}].forward; }},
        {"weight", [](problem& p) { p.costs[stage{0}].backward_weight = 1.01 * p.costs[stage{0}].backward_weight; }},
        {"stash",
         [](problem& p) { p.costs[stage{1}].weight_stash = p.costs[stage{1}].weight_stash + memory_size{0.3}; }},
        {"split", [](problem& p) { p.split_backward = !p.split_backward; }},
        {"hop", [](problem& p) { p.p2p = hop_times<>{p.p2p(rank{0}, rank{1}) + duration{0.5}}; }},
        {"limit", [](problem& p) { p.memory_limit[rank{1}] = memory_size{4.5}; }},
        {"objective", [](problem& p) { p.objective = objective_kind::span; }},
        {"reload",
         [](problem& p) {
             p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{1.0}, duration{3.0}}; });
         }},
        {"no offload", [](problem& p) { p.change_stage(stage{0}, [&](auto& c) { c.transfer = {}; }); }},
        {"host", [](problem& p) { p.host_memory_limit[rank{0}] = memory_size{1.5}; }},
        {"engines", [](problem& p) { p.transfer.engines = 2; }},
        {"duplex", [](problem& p) { p.transfer.duplex = duplex_kind::half; }},
        {"link", [](problem& p) { p.transfer.share_link(rank{0}, rank{1}); }},
    };
    stage_costs c{duration{1.0},    duration{1.0},    duration{1.0},
                  memory_size{2.0}, memory_size{1.0}, transfer_times{duration{2.0}, duration{2.0}}};
    const problem p{to_any_graph(graph<dynamic, dynamic>{2, 4}), per_stage<stage_costs>(2, c)};
    std::set<std::string> names{fingerprint_of(canonical_form(p))};
    for (const auto& each : changes) {
        auto changed = p;
        each.second(changed);
        INFO(each.first);
        CHECK_FALSE(is_same(canonical_form(changed), canonical_form(p)));
        CHECK(names.insert(fingerprint_of(canonical_form(changed))).second);
    }
    const problem longer{to_any_graph(graph<dynamic, dynamic>{2, 5}), per_stage<stage_costs>(2, c)};
    CHECK_FALSE(is_same(canonical_form(longer), canonical_form(p)));
}

namespace {

constexpr stage source{0}, middle{1}, sink{2};

void set_edges(problem& p, std::vector<edge> all) {
    p.graph = {3, 4, p.graph.placement(), edges::any{3, std::move(all)}};
}

} // namespace

TEST_CASE("what counts in graphs and draws makes another problem") {
    using change = std::pair<const char*, void (*)(problem&)>;
    const change changes[] = {
        {"another edge",
         [](problem& p) {
             set_edges(p, {{source, sink}, {middle, sink}, {source, middle}});
         }},
        {"size",
         [](problem& p) {
             set_edges(p, {{source, sink, 2.0}, {middle, sink}});
         }},
        {"held",
         [](problem& p) {
             set_edges(p, {{source, sink, 1.0, memory_size{0.5}}, {middle, sink}});
         }},
        {"chain",
         [](problem& p) {
             set_edges(p, {{source, middle}, {middle, sink}});
         }},
        {"frozen", [](problem& p) { p.costs[source].gradients = gradient_kind::none; }},
        {"without weights", [](problem& p) { p.costs[source].gradients = gradient_kind::input; }},
        {"other frozen stage", [](problem& p) { p.costs[middle].gradients = gradient_kind::none; }},
        {"group",
         [](problem& p) {
             p.groups.add(std::vector{source, middle}, duration{}, 3);
         }},
        {"delay",
         [](problem& p) {
             p.groups.add(std::vector{source, middle}, duration{1.0}, 3);
         }},
        {"other group",
         [](problem& p) {
             p.groups.add(std::vector{middle, sink}, duration{}, 3);
         }},
        {"slices",
         [](problem& p) {
             p.microbatches.set_sequences(std::vector{0, 0, 1, 2});
         }},
        {"other slices",
         [](problem& p) {
             p.microbatches.set_sequences(std::vector{0, 1, 1, 2});
         }},
        {"keys and values",
         [](problem& p) {
             p.microbatches.set_sequences(std::vector{0, 0, 1, 2});
             p.costs[middle].kv = memory_size{0.25};
         }},
        {"forward",
         [](problem& p) {
             p.microbatches.set_factors(std::vector<cost_factors>{{2.0}, {}, {}, {}});
         }},
        {"message",
         [](problem& p) {
             p.microbatches.set_factors(std::vector<cost_factors>{{.message = 2.0}, {}, {}, {}});
         }},
        {"memory",
         [](problem& p) {
             p.microbatches.set_factors(std::vector<cost_factors>{{.memory = 2.0}, {}, {}, {}});
         }},
        {"memory of one stage",
         [](problem& p) {
             std::vector<cost_factors> all(12);
             all[4].memory = 2.0;
             p.microbatches.set_factors_by_stage(all, 4);
         }},
    };
    const stage_costs cost{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{2.0}, memory_size{1.0}};
    problem p{to_any_graph(graph<dynamic, dynamic>{3, 4}), per_stage<stage_costs>(3, cost)};
    p.p2p = hop_times<>{duration{0.5}};
    set_edges(p, {{source, sink}, {middle, sink}});
    for (auto& limit : p.memory_limit)
        limit = memory_size{6.0};
    std::set<std::string> names{fingerprint_of(canonical_form(p))};
    for (const auto& each : changes) {
        auto changed = p;
        each.second(changed);
        INFO(each.first);
        CHECK_FALSE(is_same(canonical_form(changed), canonical_form(p)));
        CHECK(names.insert(fingerprint_of(canonical_form(changed))).second);
    }
}

TEST_CASE("draws of one problem have one shape, and the work of each microbatch is known") {
    const stage_costs cost{duration{1.0}, duration{2.0}, duration{1.0}, memory_size{2.0}, memory_size{1.0}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 2}), per_stage<stage_costs>(2, cost)};
    auto other = p;
    p.microbatches.set_factors(std::vector<cost_factors>{{0.5, 0.5, 0.5, 0.5, 0.5}, {2.0, 1.0, 1.0, 1.0, 1.0}});
    other.microbatches.set_factors(std::vector<cost_factors>{{}, {}, {3.0, 3.0, 3.0, 3.0, 3.0}});
    other.graph = {2, 3, other.graph.placement()};
    const auto form = canonical_form(p);
    CHECK(same_shape(form, canonical_form(other)));
    CHECK_FALSE(is_same(form, canonical_form(other)));
    CHECK(form.factors.size() == 10); // one row for both stages
    CHECK(canonical_work(form) == std::vector<double>{0.5, 1.25});
    CHECK(canonical_work(canonical_form(other)) == std::vector<double>{1.0, 1.0, 3.0});
}

TEST_CASE("what counts in storage options makes another problem") {
    using change = std::pair<const char*, void (*)(problem&)>;
    const change changes[] = {
        {"held", [](problem& p) { p.storage[stage{1}][2].held = memory_size{0.7}; }},
        {"recompute", [](problem& p) { p.storage[stage{1}][2].recompute = duration{0.6}; }},
        {"inside the backward",
         [](problem& p) { std::swap(p.storage[stage{1}][2].recompute, p.storage[stage{1}][2].backward_extra); }},
        {"transfer size", [](problem& p) { p.storage[stage{1}][1].transfer_size = memory_size{1.5}; }},
        {"offload", [](problem& p) { p.storage[stage{1}][1].transfer->offload = duration{2.5}; }},
        {"reload", [](problem& p) { p.storage[stage{1}][1].transfer->reload = duration{2.5}; }},
        {"no offload", [](problem& p) { p.storage[stage{1}][1].transfer.reset(); }},
        {"one less", [](problem& p) { p.storage[stage{1}].pop_back(); }},
        {"one more", [](problem& p) { p.storage[stage{1}].push_back(p.storage[stage{1}][2]); }},
        {"only keep", [](problem& p) { p.storage[stage{1}].resize(1); }},
        {"only keep anywhere",
         [](problem& p) {
             for (auto& list : p.storage)
                 list.resize(1);
         }},
        {"host", [](problem& p) { p.host_memory_limit[rank{0}] = memory_size{1.5}; }},
        {"engines", [](problem& p) { p.transfer.engines = 2; }},
    };
    const stage_costs c{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{2.0}, memory_size{1.0}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 4}), per_stage<stage_costs>(2, c)};
    const transfer_times times{duration{2.0}, duration{2.0}};
    for (auto& list : p.storage) {
        list.push_back({"offload", c.activation, {}, {}, c.activation, times});
        list.push_back({"ahead", memory_size{0.5}, duration{0.5}, {}, {}, {}});
    }
    std::set<std::string> names{fingerprint_of(canonical_form(p))};
    for (const auto& each : changes) {
        auto changed = p;
        each.second(changed);
        INFO(each.first);
        CHECK_FALSE(is_same(canonical_form(changed), canonical_form(p)));
        CHECK(names.insert(fingerprint_of(canonical_form(changed))).second);
    }
    // A plan for other options may still be near.
    auto without_one = p;
    without_one.storage[stage{1}].resize(1);
    CHECK(same_shape(canonical_form(without_one), canonical_form(p)));
    // The limit doesn't matter for a host that holds everything offloaded at once.
    p.host_memory_limit[rank{0}] = memory_size{8.0};
    CHECK(names.contains(fingerprint_of(canonical_form(p))));
}

TEST_CASE("limits that nothing can reach don't count") {
    stage_costs c{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{2.0}, memory_size{1.0}};
    const problem p{to_any_graph(graph<dynamic, dynamic>{2, 4}), per_stage<stage_costs>(2, c)};
    auto ample = p;
    ample.memory_limit[rank{0}] = memory_size{8.0};
    CHECK(is_same(canonical_form(ample), canonical_form(p)));
    ample.memory_limit[rank{0}] = memory_size{7.9};
    CHECK_FALSE(is_same(canonical_form(ample), canonical_form(p)));
}

TEST_CASE("a carried bound is one: against exhaustive search") {
    std::size_t carried = 0;
    std::size_t tight = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto made =
            testing::make_random_problem(random, {.ranks = 2, .stages = 2, .microbatches = 3, .cells = 4});
        const auto& known = made.problem;
        auto asked = known;
        // Longer, tighter, or with more microbatches; all on the grid.
        asked.change_stages([&](auto& c) {
            if (random.chance(30)) c.forward = c.forward + duration{made.grid};
            if (random.chance(30) && c.backward_weight > duration{1.5 * made.grid})
                c.backward_weight = c.backward_weight - duration{made.grid};
            if (random.chance(20)) c.activation = c.activation + memory_size{0.25};
        });
        if (random.chance(40))
            for (auto& limit : asked.memory_limit)
                limit = limit - memory_size{0.25};
        if (!validate(asked).empty()) continue;
        const auto before = oracle::exhaustive_optimum(known, made.grid);
        const auto after = oracle::exhaustive_optimum(asked, made.grid);
        if (!before.objective || !before.proven || !after.objective || !after.proven) continue;
        const double bound = implied_bound(known, *before.objective, asked);
        CHECK(bound <= *after.objective * (1.0 + 1e-9));
        carried += bound > 0.0 ? 1 : 0;
        tight += bound > 0.95 * *after.objective ? 1 : 0;
    }
    CHECK(carried > 50);
    CHECK(tight > 20);
}

namespace {

/// A change in the storage options of a problem.
enum class storage_change { none, fewer, more, held, transfer_size, transfer, way, recompute, backward_extra };

/// Another option, which costs more or less; all on the grid.
void change(random_numbers& random, storage_option& o, storage_change what, double grid) {
    const memory_size quarter{0.25};
    const duration step{grid * static_cast<double>(random.between(1, 3))};
    const bool is_less = random.chance(60);
    const auto other = [&](duration t) { return is_less ? std::max(duration{grid}, t - step) : t + step; };
    switch (what) {
    case storage_change::none:
    case storage_change::fewer:
    case storage_change::more: return;
    case storage_change::held: o.held = std::max(o.transfer_size, o.held - 2.0 * quarter); return;
    case storage_change::transfer_size:
        if (!o.offloads()) return;
        o.transfer_size = is_less ? std::max(quarter, o.transfer_size - 3.0 * quarter) : o.held;
        return;
    case storage_change::transfer:
        if (!o.offloads()) return;
        o.transfer = transfer_times{other(o.transfer->offload), other(o.transfer->reload)};
        if (random.chance(20)) o.transfer.reset();
        if (!o.offloads()) o.transfer_size = memory_size{};
        return;
    case storage_change::way: return std::swap(o.recompute, o.backward_extra);
    case storage_change::recompute:
        if (o.recomputes()) o.recompute = random.chance(30) ? duration{} : other(o.recompute);
        return;
    case storage_change::backward_extra:
        if (o.backward_extra > duration{}) o.backward_extra = random.chance(30) ? duration{} : other(o.backward_extra);
        return;
    }
}

/// Other lists with one difference, so that no other change hides its effect on a bound.
void change_storage(random_numbers& random, problem& p, double grid) {
    constexpr std::size_t kinds = 9;
    const auto what = static_cast<storage_change>(random.below(kinds));
    for (const stage s : p.graph.all_stages()) {
        auto& list = p.storage[s];
        if (is_described_by_costs(p.costs[s], list)) continue;
        for (auto& option : list)
            change(random, option, what, grid);
        if (what == storage_change::fewer && list.size() > 1)
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(random.below(list.size())));
        if (what != storage_change::more) continue;
        list.push_back(list[random.below(list.size())]);
        list.back().name = "new";
        change(random, list.back(), static_cast<storage_change>(random.below(kinds)), grid);
    }
}

/// Limits that matter, on the device and in half of the cases on the host.
void set_tight_limits(random_numbers& random, problem& p) {
    const auto some = [&] { return memory_size{0.25 * static_cast<double>(random.between(0, 3))}; };
    const bool is_host_limited = random.chance(50);
    for (const rank r : p.graph.all_ranks()) {
        memory_size largest{};
        for (const stage s : p.graph.all_stages())
            for (const auto& option : p.storage[s])
                if (p.rank_of(s) == r) largest = std::max(largest, option.transfer_size);
        if (is_host_limited) p.host_memory_limit[r] = largest + some();
        if (const auto least = least_memory(p, r).needed; !least.is_unlimited()) p.memory_limit[r] = least + some();
    }
}

} // namespace

TEST_CASE("with storage options, a carried bound is one: against exhaustive search") {
    std::size_t carried = 0;
    std::size_t tight = 0;
    for (std::uint64_t seed = 1; seed <= oracle::random_cases(2000); ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto made = testing::make_random_problem(
            random, {.ranks = 2, .stages = 2, .microbatches = 3, .cells = 4, .storage_percent = 100});
        auto known = made.problem;
        set_tight_limits(random, known);
        auto asked = known;
        change_storage(random, asked, made.grid);
        if (random.chance(20))
            for (auto& limit : asked.memory_limit)
                limit = limit - memory_size{0.25};
        if (random.chance(10))
            for (auto& c : asked.costs)
                c.forward = c.forward + duration{made.grid};
        if (!validate(known).empty() || !validate(asked).empty()) continue;
        const auto before = oracle::exhaustive_optimum(known, made.grid, most_nodes);
        const auto after = oracle::exhaustive_optimum(asked, made.grid, most_nodes);
        if (!before.objective || !before.proven || !after.objective || !after.proven) continue;
        const double bound = implied_bound(known, *before.objective, asked);
        CHECK(bound <= *after.objective * (1.0 + 1e-9));
        carried += bound > 0.0 ? 1 : 0;
        tight += bound > 0.95 * *after.objective ? 1 : 0;
    }
    CHECK(carried >= oracle::random_cases(400));
    CHECK(tight >= oracle::random_cases(250));
}

TEST_CASE("with graphs and draws, a carried bound is one: against exhaustive search") {
    std::size_t carried = 0;
    std::size_t tight = 0;
    const auto cases = oracle::random_cases(600);
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
        CAPTURE(seed);
        random_numbers random{seed};
        const auto made = testing::make_random_problem(
            random, {.ranks = 2, .stages = 3, .microbatches = 3, .cells = 6, .graph_percent = 100});
        const auto& known = made.problem;
        auto asked = known;
        constexpr double step = 4.0; // whatever the factors, on half of the grid
        if (random.chance(50))
            asked.costs[stage{0}].forward = asked.costs[stage{0}].forward + duration{step * made.grid};
        if (random.chance(70)) {
            std::vector<cost_factors> factors;
            for (const microbatch m : known.graph.all_microbatches())
                factors.push_back(known.microbatches.factors(stage{0}, m));
            auto& one = factors[random.below(factors.size())];
            double* const any[] = {&one.forward, &one.backward_input, &one.backward_weight, &one.message, &one.memory};
            *any[random.below(5)] *= random.chance(50) ? 2.0 : 0.5;
            if (!known.microbatches.is_by_stage()) asked.microbatches.set_factors(factors);
        }
        if (!validate(asked).empty()) continue;
        const auto before = oracle::exhaustive_optimum(known, made.grid, most_nodes);
        const auto after = oracle::exhaustive_optimum(asked, made.grid / 2.0, most_nodes);
        if (!before.objective || !before.proven || !after.objective || !after.proven) continue;
        const double bound = implied_bound(known, *before.objective, asked);
        CHECK(bound <= *after.objective * (1.0 + 1e-9));
        carried += bound > 0.0 ? 1 : 0;
        tight += bound > 0.95 * *after.objective ? 1 : 0;
    }
    if (cases < 600) return;
    CHECK(carried > 50);
    CHECK(tight > 20);
}

TEST_CASE("a bound is carried to shorter lists and to options that cost more, and to no others") {
    const stage_costs c{duration{1.0}, duration{1.0}, duration{1.0}, memory_size{2.0}, memory_size{1.0}, {}};
    problem p{to_any_graph(graph<dynamic, dynamic>{2, 4}), per_stage<stage_costs>(2, c)};
    const transfer_times times{duration{2.0}, duration{2.0}};
    for (auto& list : p.storage) {
        list.push_back({"offload", c.activation, {}, {}, memory_size{1.5}, times});
        list.push_back({"ahead", memory_size{0.5}, duration{0.5}, {}, {}, {}});
        list.push_back({"transfers nothing", memory_size{0.25}, {}, duration{0.25}, {}, times});
    }
    const auto after = [&](void (*change)(storage_list<false>&)) {
        auto asked = p;
        change(asked.storage[stage{1}]);
        return carried_bound(canonical_form(p), 1.0, canonical_form(asked));
    };
    using list = storage_list<false>;
    CHECK(after([](list&) {}) > 0.999999);
    CHECK(after([](list& l) { l.pop_back(); }) > 0.999999);
    CHECK(after([](list& l) { l[2].held = memory_size{0.75}; }) > 0.999999);
    CHECK(after([](list& l) { l[2].recompute = duration{1.5}; }) > 0.999999);
    CHECK(after([](list& l) { l[1].transfer->reload = duration{3.0}; }) > 0.999999);
    CHECK(after([](list& l) { l[1].recompute = duration{1.0}; }) > 0.999999);
    // Less time: the times of everything else are scaled to it.
    CHECK(after([](list& l) { l[2].recompute = duration{0.4}; }) == doctest::Approx(0.8));
    CHECK(after([](list& l) { l[1].transfer->offload = duration{1.0}; }) == doctest::Approx(0.5));

    CHECK(after([](list& l) { l[2].held = memory_size{0.25}; }) == 0.0);
    CHECK(after([](list& l) { l[1].transfer_size = memory_size{1.75}; }) == 0.0);
    CHECK(after([](list& l) { l[1].transfer_size = memory_size{1.25}; }) == 0.0);
    CHECK(after([](list& l) { l[3].transfer.reset(); }) == 0.0);
    CHECK(after([](list& l) { std::swap(l[2].recompute, l[2].backward_extra); }) == 0.0);
    CHECK(after([](list& l) { l[2].recompute = duration{}; }) == 0.0);
    CHECK(after([](list& l) { l[1].held = memory_size{1.75}; }) == 0.0);
    CHECK(after([](list& l) { l.push_back({"new", memory_size{0.25}, {}, duration{1.0}, {}, {}}); }) == 0.0);
}
