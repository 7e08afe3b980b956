#include "optpipe/planner/cache/canonical.hpp"

#include "optpipe/pipeline/validate_problem.hpp"
#include "optpipe/planner/cache/carried_bound.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "oracle/exhaustive.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace optpipe;

namespace {

problem some_problem(std::uint64_t seed) {
    random_numbers random{seed};
    return testing::make_random_problem(random).problem;
}

/// The same problem with other units.
problem scaled(problem p, double time, double memory) {
    for (auto& c : p.costs) {
        c.forward = time * c.forward;
        c.backward_input = time * c.backward_input;
        c.backward_weight = time * c.backward_weight;
        c.activation = memory * c.activation;
        c.weight_stash = memory * c.weight_stash;
        if (c.transfer) c.transfer = transfer_times{time * c.transfer->offload, time * c.transfer->reload};
    }
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

/// The same problem with its ranks numbered the other way round.
problem mirrored(const problem& p) {
    const auto ranks = p.graph.ranks();
    const auto other = [&](rank r) { return rank{ranks - 1 - r.position()}; };
    per_stage<rank> map(p.graph.stages());
    for (const stage s : p.graph.all_stages())
        map[s] = other(p.rank_of(s));
    problem result{any_graph{ranks, p.graph.microbatches(), placement::map<>{std::move(map)}}, p.costs};
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

} // namespace

TEST_CASE("names, units and numbers of ranks and links don't count") {
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
             p.costs[stage{0}].transfer = transfer_times{duration{1.0}, duration{3.0}};
         }},
        {"no offload", [](problem& p) { p.costs[stage{0}].transfer.reset(); }},
        {"host", [](problem& p) { p.host_memory_limit[rank{0}] = memory_size{1.5}; }},
        {"engines", [](problem& p) { p.transfer.engines = 2; }},
        {"duplex", [](problem& p) { p.transfer.duplex = duplex_kind::half; }},
        {"link", [](problem& p) { p.transfer.share_link(rank{0}, rank{1}); }},
    };
    stage_costs c{duration{1.0},    duration{1.0},    duration{1.0},
                  memory_size{2.0}, memory_size{1.0}, transfer_times{duration{2.0}, duration{2.0}}};
    const problem p{to_any_graph(graph<dynamic, dynamic>{2, 4}), per_stage<stage_costs>(2, c)};
    std::set<std::string> names{fingerprint_of(canonical_form(p))};
    for (const auto& [what, apply] : changes) {
        auto changed = p;
        apply(changed);
        INFO(what);
        CHECK_FALSE(is_same(canonical_form(changed), canonical_form(p)));
        CHECK(names.insert(fingerprint_of(canonical_form(changed))).second);
    }
    const problem longer{to_any_graph(graph<dynamic, dynamic>{2, 5}), per_stage<stage_costs>(2, c)};
    CHECK_FALSE(is_same(canonical_form(longer), canonical_form(p)));
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
        // Longer here, tighter there, more microbatches; all on the grid.
        for (auto& c : asked.costs) {
            if (random.chance(30)) c.forward = c.forward + duration{made.grid};
            if (random.chance(30) && c.backward_weight > duration{1.5 * made.grid})
                c.backward_weight = c.backward_weight - duration{made.grid};
            if (random.chance(20)) c.activation = c.activation + memory_size{0.25};
        }
        if (random.chance(40))
            for (auto& limit : asked.memory_limit)
                limit = limit - memory_size{0.25};
        if (!validate(asked).empty()) continue;
        const auto before = oracle::exhaustive_optimum(known, made.grid);
        const auto after = oracle::exhaustive_optimum(asked, made.grid);
        if (!before.objective || !before.proven || !after.objective || !after.proven) continue;
        const auto known_units = canonical_units_of(known);
        const auto asked_units = canonical_units_of(asked);
        const double bound = carried_bound(canonical_form(known), duration{*before.objective} / known_units.time,
                                           canonical_form(asked)) *
                             asked_units.time.value();
        CHECK(bound <= *after.objective * (1.0 + 1e-9));
        carried += bound > 0.0 ? 1 : 0;
        tight += bound > 0.95 * *after.objective ? 1 : 0;
    }
    CHECK(carried > 50);
    CHECK(tight > 20);
}
