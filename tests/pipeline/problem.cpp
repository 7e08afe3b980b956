#include "optpipe/pipeline/problem.hpp"

#include "optpipe/pipeline/make_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>

namespace {

using optpipe::duration;
using optpipe::graph;
using optpipe::memory_size;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;
namespace placement = optpipe::placement;

/// A problem without equal fields, and without any at its default.
auto unlike_the_default() {
    auto p = make_problem(graph<3, 5, placement::v>{}, optpipe::unit_memory{});
    for (const stage s : p.graph.all_stages()) {
        const double at = s.value();
        p.set_stage(
            s,
            {duration{1 + at}, duration{10 + at}, duration{20 + at}, memory_size{30 + at}, memory_size{40 + at}, {}});
        if (s.value() % 2 == 1)
            p.change_stage(s, [&](auto& c) { c.transfer = transfer_times{duration{50 + at}, duration{60 + at}}; });
        else
            p.storage[s].push_back({"some",
                                    memory_size{25 + at},
                                    duration{100 + at},
                                    {},
                                    memory_size{20 + at},
                                    transfer_times{duration{110 + at}, duration{120 + at}}});
    }
    optpipe::bounded_vector<duration, 9> matrix;
    for (int i = 0; i < 9; ++i)
        matrix.push_back(duration{70.0 + i});
    p.p2p = optpipe::hop_times<3>{3, matrix};
    p.split_backward = false;
    for (const rank r : p.graph.all_ranks()) {
        p.memory_limit[r] = memory_size{80.0 + r.value()};
        p.host_memory_limit[r] = memory_size{90.0 + r.value()};
    }
    p.transfer.engines = 2;
    p.transfer.duplex = optpipe::duplex_kind::half;
    p.transfer.share_link(rank{0}, rank{2});
    p.objective = optpipe::objective_kind::span;
    p.name = "name";
    p.time_unit = "us";
    p.memory_unit = "MB";
    return p;
}

template <class A, class B> void check_same_shape(const A& a, const B& b) {
    REQUIRE(a.graph.ranks() == b.graph.ranks());
    REQUIRE(a.graph.stages() == b.graph.stages());
    CHECK(a.graph.microbatches() == b.graph.microbatches());
    for (const stage s : a.graph.all_stages()) {
        CAPTURE(s.value());
        CHECK(a.rank_of(s) == b.rank_of(s));
        CHECK(a.costs[s] == b.costs[s]);
        REQUIRE(a.storage[s].size() == b.storage[s].size());
        for (std::size_t i = 0; i < a.storage[s].size(); ++i)
            CHECK(a.storage[s][i] == b.storage[s][i]);
    }
}

template <class A, class B> void check_same(const A& a, const B& b) {
    check_same_shape(a, b);
    CHECK(a.p2p.is_uniform() == b.p2p.is_uniform());
    for (const rank r : a.graph.all_ranks()) {
        CAPTURE(r.value());
        CHECK(a.memory_limit[r] == b.memory_limit[r]);
        CHECK(a.host_memory_limit[r] == b.host_memory_limit[r]);
        CHECK(a.transfer.link[r] == b.transfer.link[r]);
        for (const rank other : a.graph.all_ranks())
            CHECK(a.p2p(r, other) == b.p2p(r, other));
    }
    CHECK(a.split_backward == b.split_backward);
    CHECK(a.transfer.engines == b.transfer.engines);
    CHECK(a.transfer.duplex == b.transfer.duplex);
    CHECK(a.objective == b.objective);
    CHECK(a.name == b.name);
    CHECK(a.time_unit == b.time_unit);
    CHECK(a.memory_unit == b.memory_unit);
}

} // namespace

TEST_CASE("to_problem keeps every field") {
    const auto p = unlike_the_default();
    check_same(p, to_problem(p));
    check_same(to_problem(p), to_problem(to_problem(p)));
}

TEST_CASE("to_problem keeps defaults, and one time between all ranks") {
    auto p = make_problem(graph<3, 5>{}, optpipe::unit_memory{});
    check_same(p, to_problem(p));
    p.p2p = optpipe::hop_times<3>{duration{0.25}};
    check_same(p, to_problem(p));
    CHECK(to_problem(p).p2p.is_uniform());
}

TEST_CASE("to_problem of a single rank") {
    auto p = make_problem(graph<1, 2>{}, optpipe::unit_memory{});
    check_same(p, to_problem(p));
    optpipe::bounded_vector<duration, 1> matrix;
    matrix.push_back(duration{});
    p.p2p = optpipe::hop_times<1>{1, matrix};
    check_same(p, to_problem(p));
}

TEST_CASE("times between ranks: none on the same rank, whatever the matrix says") {
    const auto p = unlike_the_default();
    CHECK(p.p2p(rank{1}, rank{1}) == duration{0});
    CHECK(p.p2p(rank{0}, rank{1}) == duration{71});
    CHECK(p.p2p(rank{1}, rank{0}) == duration{73});
    CHECK(p.hop(stage{2}, stage{3}) == duration{0});
    CHECK(p.hop(stage{0}, stage{5}) == duration{0});
    CHECK(p.hop(stage{5}, stage{1}) == duration{71});
}

TEST_CASE("what a rank has to do, and the gradient that is handed on") {
    auto p = unlike_the_default();
    // Stages 1 and 4: 2 + 11 + 21 and 5 + 14 + 24, five times.
    CHECK(p.load(rank{1}) == duration{5 * (34 + 43)});
    CHECK(p.gradient_time(stage{1}) == duration{32});
    p.split_backward = true;
    CHECK(p.load(rank{1}) == duration{5 * (34 + 43)});
    CHECK(p.gradient_time(stage{1}) == duration{11});
}

TEST_CASE("the scale of memory is the largest amount that is mentioned") {
    auto p = unlike_the_default();
    CHECK(p.memory_scale() == memory_size{82});
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    CHECK(p.memory_scale() == memory_size{45});
    for (auto& c : p.costs)
        c.weight_stash = memory_size{};
    CHECK(p.memory_scale() == memory_size{35});
}

TEST_CASE("a limit beyond all that a rank can hold doesn't count for more than that") {
    auto p = unlike_the_default();
    for (auto& limit : p.memory_limit)
        limit = memory_size::unlimited();
    p.memory_limit[rank{0}] = memory_size{1e9};
    memory_size all{};
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == rank{0})
            all +=
                static_cast<double>(p.graph.microbatches()) * std::max(p.costs[s].activation, p.costs[s].weight_stash);
    CHECK(p.memory_scale() == all);
}

TEST_CASE("times between ranks, and work of the busiest rank") {
    auto p = to_problem(unlike_the_default());
    const auto ranks = p.graph.ranks();
    std::vector<duration> matrix;
    for (std::size_t i = 0; i < ranks * ranks; ++i)
        matrix.emplace_back(static_cast<double>(i));
    p.p2p = optpipe::hop_times<>{ranks, matrix};
    CHECK(p.p2p(rank{1}, rank{0}) == duration{static_cast<double>(ranks)});
    CHECK(optpipe::hop_times<>{duration{3}}.uniform() == duration{3});
    if (optpipe::contracts_throw()) CHECK_THROWS_AS(static_cast<void>(p.p2p.uniform()), optpipe::contract_error);
    duration most{};
    for (const rank r : p.graph.all_ranks())
        most = std::max(most, p.load(r) / static_cast<double>(p.graph.microbatches()));
    CHECK(p.busiest_work().value() == doctest::Approx(most.value()));
}

TEST_CASE("ranks share a link with all that any of them shares it with") {
    optpipe::transfer_rules<> rules(5);
    rules.share_link(rank{0}, rank{1});
    rules.share_link(rank{2}, rank{3});
    if (optpipe::contracts_throw()) CHECK_THROWS_AS(rules.share_link(rank{0}, rank{9}), optpipe::contract_error);
    CHECK(rules.link[rank{0}] == rules.link[rank{1}]);
    CHECK(rules.link[rank{2}] == rules.link[rank{3}]);
    CHECK(rules.link[rank{1}] != rules.link[rank{2}]);
    rules.share_link(rank{3}, rank{0});
    for (std::size_t r = 0; r < 4; ++r)
        CHECK(rules.link[rank{r}] == rules.link[rank{0}]);
    CHECK(rules.link[rank{4}] != rules.link[rank{0}]);
}

TEST_CASE("costs with transfer times describe two options, and others stay as they were given") {
    const optpipe::stage_costs costs{duration{1},    duration{2},    duration{3},
                                     memory_size{4}, memory_size{5}, transfer_times{duration{6}, duration{7}}};
    auto p = to_problem(make_problem(graph<2, 1>{}, optpipe::uniform_memory{costs}));
    CHECK(p.storage[stage{1}] == optpipe::described_storage(costs));
    CHECK_FALSE(p.costs[stage{1}].can_offload());
    CHECK(is_described_by_costs(p));
    CHECK(p.whole_offload(stage{1}) == 1);

    p.change_stage(stage{0}, [](optpipe::stage_costs& c) {
        c.activation = memory_size{8};
        c.transfer->reload = duration{9};
    });
    CHECK(p.storage_of(stage{0}, 0).held == memory_size{8});
    CHECK(p.storage_of(stage{0}, 1).transfer_size == memory_size{8});
    CHECK(p.storage_of(stage{0}, 1).transfer == transfer_times{duration{6}, duration{9}});

    p.storage[stage{1}].push_back({"full", memory_size{1}, duration{1}, {}, {}, {}});
    CHECK_FALSE(is_described_by_costs(p));
    const auto before = p.storage[stage{1}];
    p.change_stage(stage{1}, [](optpipe::stage_costs& c) { c.forward = duration{9}; });
    CHECK(p.costs[stage{1}].forward == duration{9});
    CHECK(p.storage[stage{1}] == before);
    p.set_stage(stage{1}, p.costs[stage{1}]);
    CHECK(p.storage_options(stage{1}) == 1);
    CHECK_FALSE(p.whole_offload(stage{1}));
}
