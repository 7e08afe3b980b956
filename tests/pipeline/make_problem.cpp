#include "optpipe/pipeline/make_problem.hpp"

#include "optpipe/pipeline/transformer.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::graph;
using optpipe::memory_size;
using optpipe::offload_decision;
using optpipe::rank;
using optpipe::stage;
using optpipe::storage_candidate;
using optpipe::transfer_times;
namespace offload = optpipe::offload;
namespace placement = optpipe::placement;

/// F = 1, I = 2, W = 3; stage s stashes s + 1 and is offloaded in 10 + s and back in 20 + s.
struct numbered {
    static constexpr optpipe::stage_costs costs(stage s, std::size_t) {
        const double at = s.value();
        return {duration{1},         duration{2},    duration{3},
                memory_size{1 + at}, memory_size{1}, transfer_times{duration{10 + at}, duration{20 + at}}};
    }
};

/// A policy that records its questions.
struct note_taking {
    std::vector<storage_candidate>* asked;
    bool allows(const storage_candidate& candidate) const {
        if (candidate.option.offloads()) asked->push_back(candidate);
        return true;
    }
};

struct only_large {
    static constexpr bool allows(const storage_candidate& candidate) {
        return !candidate.option.offloads() || candidate.costs.activation > memory_size{2};
    }
};

template <class Decisions> std::string listed(const Decisions& decisions) {
    std::string text;
    for (const auto decision : decisions) {
        if (!text.empty()) text += ' ';
        switch (decision) {
        case offload_decision::forbid: text += "forbid"; break;
        case offload_decision::permit: text += "permit"; break;
        case offload_decision::require: text += "require"; break;
        }
    }
    return text;
}

} // namespace

TEST_CASE("a problem has the shape, the costs and the limit it is made from, and defaults") {
    const auto p = make_problem(graph<optpipe::dynamic, 8, placement::v>{2, 8}, numbered{}, memory_size{9});
    CHECK(p.graph.ranks() == 2);
    CHECK(p.graph.microbatches() == 8);
    for (const stage s : p.graph.all_stages()) {
        auto costs = numbered::costs(s, 4);
        CHECK(p.storage_of(s, 1).transfer == costs.transfer);
        costs.transfer = {};
        CHECK(p.costs[s] == costs);
    }
    for (const rank r : p.graph.all_ranks()) {
        CHECK(p.memory_limit[r] == memory_size{9});
        CHECK(p.host_memory_limit[r].is_unlimited());
    }
    CHECK(p.transfer.link[rank{0}] != p.transfer.link[rank{1}]);
    CHECK(p.p2p(rank{0}, rank{1}) == duration{0});
    CHECK(p.split_backward);
    CHECK(p.transfer.engines == 1);
    CHECK(p.transfer.duplex == optpipe::duplex_kind::full);
    CHECK(p.objective == optpipe::objective_kind::makespan);
}

TEST_CASE("a model's units and times between ranks are those of the problem") {
    const optpipe::transformer<> model{
        .layers = {.total = 8}, .hidden = 1024, .sequence = 2048, .compute_rate = 100.0, .rank_link_rate = 10.0};
    const auto p = make_problem(graph<2, 3>{}, model);
    CHECK(model.p2p() > duration{});
    CHECK(p.p2p(rank{0}, rank{1}) == model.p2p());
    CHECK(p.time_unit == "ms");
    CHECK(p.memory_unit == "GB");
    CHECK(make_problem(graph<2, 3>{}, optpipe::unit_memory{}).time_unit.empty());
}

TEST_CASE("a policy sees each stage that can be offloaded, and its place by lifespan on its rank") {
    auto p = make_problem(graph<2, 1, placement::v>{}, numbered{});
    std::vector<storage_candidate> asked;
    CHECK(listed(decisions_of(p, note_taking{&asked})) == "permit permit permit permit");
    REQUIRE(asked.size() == 4);
    // Rank 0 holds stages 0 and 3, rank 1 holds 1 and 2. F = 1 and I = 2 of all later stages and of the stage itself.
    for (std::size_t s = 0; s < 4; ++s) {
        CAPTURE(s);
        CHECK(asked[s].stage == stage{s});
        CHECK(asked[s].lifespan == duration{3.0 * static_cast<double>(4 - s)});
        CHECK(asked[s].option.extra_time() == duration{30.0 + 2.0 * static_cast<double>(s)});
        CHECK(asked[s].costs.activation == memory_size{1.0 + static_cast<double>(s)});
        CHECK(asked[s].position == (s < 2 ? 0 : 1));
        CHECK(asked[s].stages_on_rank == 2);
    }
}

TEST_CASE("stages without transfer times are forbidden and not asked about, and still count as stages of their rank") {
    auto p = make_problem(graph<2, 1, placement::v>{}, numbered{});
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = {}; });
    std::vector<storage_candidate> asked;
    CHECK(listed(decisions_of(p, note_taking{&asked})) == "forbid permit permit permit");
    REQUIRE(asked.size() == 3);
    CHECK(asked[2].stage == stage{3});
    CHECK(asked[2].position == 1);
    CHECK(asked[2].stages_on_rank == 2);
    CHECK(listed(decisions_of(p, offload::always{})) == "forbid require require require");
}

TEST_CASE("longest lifespan first takes a share of the stages of each rank") {
    const auto p = make_problem(graph<2, 1, placement::loop<4>>{}, numbered{});
    CHECK(listed(decisions_of(p, offload::longest_lifespan_first{})) ==
          "require require require require forbid forbid forbid forbid");
    CHECK(listed(decisions_of(p, offload::longest_lifespan_first{0.25})) ==
          "require require forbid forbid forbid forbid forbid forbid");
    CHECK(listed(decisions_of(p, offload::longest_lifespan_first{1.0})) ==
          "require require require require require require require require");
    CHECK(listed(decisions_of(p, offload::longest_lifespan_first{0.0})) ==
          "forbid forbid forbid forbid forbid forbid forbid forbid");
}

TEST_CASE("equal lifespans: the earlier stage first") {
    auto p = make_problem(graph<1, 1, placement::loop<2>>{}, numbered{});
    p.costs[stage{0}].forward = duration{};
    p.costs[stage{0}].backward_input = duration{};
    CHECK(listed(decisions_of(p, offload::longest_lifespan_first{})) == "require forbid");
}

TEST_CASE("lifespans include the weight gradients behind where the backward isn't split") {
    auto p = make_problem(graph<1, 1>{}, numbered{});
    std::vector<storage_candidate> asked;
    p.split_backward = false;
    CHECK(listed(decisions_of(p, note_taking{&asked})) == "permit");
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].lifespan == duration{6});
}

TEST_CASE("what a policy forbids is taken away, and nothing else") {
    const auto before = make_problem(graph<2, 1, placement::v>{}, numbered{}, memory_size{9});
    const auto after = restrict_storage(before, only_large{});
    for (const stage s : before.graph.all_stages()) {
        CAPTURE(s.value());
        CHECK(after.costs[s] == before.costs[s]);
        CHECK(after.storage_options(s) == (s.value() >= 2 ? 2 : 1));
        CHECK(after.storage_of(s, 0) == before.storage_of(s, 0));
        if (s.value() >= 2) CHECK(after.storage_of(s, 1) == before.storage_of(s, 1));
    }
    CHECK(after.memory_limit == before.memory_limit);
    CHECK(restrict_storage(after, only_large{}).storage == after.storage);
    CHECK(restrict_storage(before, offload::solver_decides{}).storage == before.storage);
    for (const auto& options : restrict_storage(before, offload::always{}).storage) {
        REQUIRE(options.size() == 1);
        CHECK(options[0].name == "offload");
    }
}

TEST_CASE("making a problem with a policy is restricting one without") {
    const graph<2, 1, placement::v> shape;
    CHECK(make_problem(shape, numbered{}, memory_size{9}, only_large{}).storage ==
          restrict_storage(make_problem(shape, numbered{}), only_large{}).storage);
    for (const auto& options : make_problem(shape, numbered{}, memory_size{9}, offload::never{}).storage)
        CHECK(options.size() == 1);
}

TEST_CASE("measured costs, stage by stage") {
    optpipe::memory_per_stage<> measured{optpipe::per_stage<optpipe::stage_costs>(2, numbered::costs(stage{0}, 2))};
    measured.each[stage{1}] = numbered::costs(stage{5}, 2);
    const auto p = make_problem(graph<2, 1>{}, measured);
    for (const stage s : p.graph.all_stages()) {
        auto costs = p.costs[s];
        costs.transfer = p.storage_of(s, 1).transfer;
        CHECK(costs == numbered::costs(stage{5 * s.value()}, 2));
    }
}

namespace {

/// Two stages on each of two ranks; names of the options of each stage that a policy allows.
template <class Policy> std::string allowed(const Policy& policy) {
    optpipe::transformer<> model{
        .layers = {8}, .hidden = 1024, .sequence = 1024, .compute_rate = 100.0, .host_link_rate = 20.0};
    const auto p =
        make_problem(optpipe::graph<2, 4, optpipe::placement::v>{}, model, optpipe::memory_size::unlimited(), policy);
    std::string text;
    for (const stage s : p.graph.all_stages()) {
        if (s.value() > 0) text += "| ";
        for (std::size_t i = 0; i < p.storage_options(s); ++i)
            text += std::string{p.storage_of(s, i).name.view()} + " ";
    }
    return text;
}
std::string four_times(const std::string& each) { return each + "| " + each + "| " + each + "| " + each; }

} // namespace

TEST_CASE("storage policies choose from the options of a model") {
    namespace storage = optpipe::storage;
    CHECK(allowed(storage::keep) == four_times("keep "));
    CHECK(allowed(storage::offload) == four_times("offload offload-half "));
    CHECK(allowed(storage::keep | storage::offload) == four_times("keep offload offload-half "));
    CHECK(allowed(storage::keep | storage::selective) == four_times("keep norms norms-ahead mlp mlp-ahead "));
    CHECK(allowed(storage::keep | storage::full) == four_times("keep full full-ahead "));
    CHECK(allowed(storage::full | storage::offload) ==
          four_times("offload offload-half full full+offload full+offload-half full-ahead full-ahead+offload "
                     "full-ahead+offload-half "));
    CHECK(allowed(storage::uniform{"mlp+offload"}) == four_times("mlp+offload "));
    CHECK(allowed(storage::uniform{"unknown"}) == four_times("keep "));
    CHECK(allowed(storage::longest_lifespan_first{}) == "offload | offload | keep | keep ");
    CHECK(allowed(storage::longest_lifespan_first{1.0, "full"}) == four_times("full "));
}

TEST_CASE("restricting the storage of a problem keeps all else") {
    auto p = to_problem(make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}));
    p.change_stages([&](auto& c) { c.transfer = optpipe::transfer_times{optpipe::duration{1}, optpipe::duration{2}}; });
    const auto same = restrict_storage(p, optpipe::storage::solver_decides{});
    CHECK(same.costs == p.costs);
    CHECK(same.storage == p.storage);
    const auto kept = restrict_storage(p, optpipe::storage::keep);
    CHECK(kept.storage_options(stage{0}) == 1);
    CHECK(kept.costs == p.costs);
    const auto again = restrict_storage(kept, optpipe::storage::solver_decides{});
    CHECK(again.storage == kept.storage);
}
