#include "optpipe/pipeline/validate_problem.hpp"

#include "optpipe/pipeline/make_problem.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

namespace {

using optpipe::duration;
using optpipe::memory_size;
using optpipe::per_stage;
using optpipe::rank;
using optpipe::stage;
using optpipe::transfer_times;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Three ranks with a stage each, which needs 1 of memory.
optpipe::problem valid_problem() {
    auto p = to_problem(make_problem(optpipe::graph<3, 2>{}, optpipe::unit_memory{}, memory_size{2}));
    p.change_stages([&](auto& c) { c.transfer = transfer_times{duration{1}, duration{1}}; });
    return p;
}

std::string lines(const std::vector<std::string>& each) {
    std::string text;
    for (const auto& line : each)
        text += line + "\n";
    return text;
}

std::string texts(const optpipe::problem& p) {
    std::vector<std::string> each;
    for (const auto& v : validate(p))
        each.push_back(v.text());
    return lines(each);
}

optpipe::problem with_ranks(std::size_t ranks, std::size_t microbatches, const std::vector<int>& rank_of_stage) {
    per_stage<rank> where(rank_of_stage.size());
    for (std::size_t s = 0; s < rank_of_stage.size(); ++s)
        where[stage{s}] = rank{rank_of_stage[s]};
    const optpipe::any_graph g{ranks, microbatches, optpipe::placement::map<>{where}};
    return make_problem(g, optpipe::unit_memory{});
}

} // namespace

TEST_CASE("a valid problem") {
    CHECK(texts(valid_problem()) == lines({}));
    CHECK(texts(with_ranks(2, 1, {0, 1, 1, 0})) == lines({}));
}

TEST_CASE("pairs that no rank can run are refused, each with its place") {
    auto p = valid_problem();
    using optpipe::overlap_kind;
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{2}, {}});
    p.overlaps.add({stage{0}, stage{0}, overlap_kind::backward_input, duration{1}, memory_size{0.5}});
    CHECK(texts(p) == lines({}));
    p.overlaps.add({stage{1}, stage{2}, overlap_kind::backward, duration{2}, {}});
    p.overlaps.add({stage{1}, stage{7}, overlap_kind::backward, duration{2}, {}});
    p.overlaps.add({stage{2}, stage{2}, overlap_kind::backward, duration{1.5}, memory_size{-1}});
    p.overlaps.add({stage{2}, stage{2}, overlap_kind::backward_input, duration{0}, {}});
    CHECK(texts(p) ==
          lines({"overlaps[2]: has stage 1 on rank 1, and stage 2 on rank 2",
                 "overlaps[3].backward: is 7, there are 3 stages", "overlaps[4].memory: must not be negative, is -1",
                 "overlaps[4].duration: 1.5 is shorter than a part, which takes 2",
                 "overlaps[5].duration: must be above 0, is 0"}));
    auto frozen = valid_problem();
    frozen.costs[stage{0}].gradients = optpipe::gradient_kind::input;
    frozen.costs[stage{0}].backward_weight = duration{0};
    frozen.costs[stage{0}].weight_stash = memory_size{0};
    frozen.overlaps.add({stage{0}, stage{0}, overlap_kind::backward, duration{2}, {}});
    frozen.overlaps.add({stage{0}, stage{0}, overlap_kind::backward_input, duration{2}, {}});
    CHECK(texts(frozen) == lines({"overlaps[0].kind: stage 0 has no B"}));
}

TEST_CASE("what is allowed at its limit") {
    auto p = valid_problem();
    p.change_stage(stage{0}, [&](auto& c) { c.activation = memory_size{0}; });
    p.costs[stage{0}].weight_stash = memory_size{5};
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{0}, duration{0}}; });
    p.memory_limit[rank{0}] = memory_size{0};
    p.memory_limit[rank{1}] = memory_size{1};
    p.memory_limit[rank{2}] = memory_size::unlimited();
    p.host_memory_limit[rank{0}] = memory_size{0};
    p.transfer.engines = 2;
    CHECK(texts(p) == lines({}));
}

TEST_CASE("durations are above 0") {
    auto p = valid_problem();
    p.costs[stage{0}].forward = duration{0};
    p.costs[stage{1}].backward_input = duration{-1.5};
    p.costs[stage{2}].backward_weight = duration{infinity};
    CHECK(texts(p) ==
          lines({"stages[0].forward: must be above 0, is 0", "stages[1].backward_input: must be above 0, is -1.5",
                 "stages[2].backward_weight: is not a finite number"}));
}

TEST_CASE("sizes and transfers are not negative") {
    auto p = valid_problem();
    p.change_stage(stage{0}, [&](auto& c) { c.activation = memory_size{-1}; });
    p.costs[stage{0}].weight_stash = memory_size{not_a_number};
    p.change_stage(stage{1}, [&](auto& c) { c.transfer = transfer_times{duration{-2}, duration{-infinity}}; });
    CHECK(texts(p) ==
          lines({"stages[0].activation: must not be negative, is -1", "stages[0].weight_stash: is not a finite number",
                 "stages[1].offload: must not be negative, is -2", "stages[1].reload: is not a finite number"}));
}

TEST_CASE("times between ranks are not negative") {
    auto p = valid_problem();
    p.p2p = optpipe::hop_times<>{duration{-0.5}};
    CHECK(texts(p) == lines({"p2p: must not be negative, is -0.5"}));

    optpipe::bounded_vector<duration, optpipe::dynamic> matrix(9, duration{1});
    matrix[1] = duration{not_a_number};
    matrix[6] = duration{-3};
    p.p2p = optpipe::hop_times<>{3, matrix};
    CHECK(texts(p) == lines({"p2p[0][1]: is not a finite number", "p2p[2][0]: must not be negative, is -3"}));
}

TEST_CASE("links are numbered as ranks are") {
    auto p = valid_problem();
    p.transfer.link[rank{1}] = 3;
    CHECK(texts(p) == lines({"transfer.link[1]: is 3, must be below the number of ranks, 3"}));
}

TEST_CASE("one time between all ranks counts even where there is only one rank") {
    auto p = with_ranks(1, 1, {0});
    p.p2p = optpipe::hop_times<>{duration{-0.5}};
    CHECK(texts(p) == lines({"p2p: must not be negative, is -0.5"}));
}

TEST_CASE("limits are not negative") {
    auto p = valid_problem();
    p.memory_limit[rank{0}] = memory_size{-1};
    p.memory_limit[rank{1}] = memory_size{not_a_number};
    p.host_memory_limit[rank{2}] = memory_size{-2};
    CHECK(texts(p) == lines({"memory_limit[0]: must not be negative, is -1", "memory_limit[1]: is not a finite number",
                             "host_memory_limit[2]: must not be negative, is -2"}));
}

TEST_CASE("a limit below what a single microbatch needs") {
    auto p = valid_problem();
    p.memory_limit[rank{1}] = memory_size{0.5};
    p.memory_limit[rank{2}] = memory_size{1.0 - 1e-9};
    CHECK(texts(p) == lines({"memory_limit[1]: 0.5 is below 1, what a single microbatch needs on rank 1"}));
}

TEST_CASE("a single microbatch needs less where stashes may leave, and a full host contradicts nothing") {
    auto p = with_ranks(1, 1, {0, 0, 0});
    p.memory_limit[rank{0}] = memory_size{1};
    CHECK(texts(p) == lines({"memory_limit[0]: 1 is below 3, what a single microbatch needs on rank 0"}));
    p.change_stage(stage{0}, [&](auto& c) { c.transfer = transfer_times{duration{1}, duration{1}}; });
    CHECK(texts(p) == lines({"memory_limit[0]: 1 is below 2, what a single microbatch needs on rank 0"}));
    p.change_stage(stage{1}, [&](auto& c) { c.transfer = transfer_times{duration{1}, duration{1}}; });
    CHECK(texts(p) == lines({}));
    p.host_memory_limit[rank{0}] = memory_size{1};
    CHECK(texts(p) == lines({}));
    CHECK_FALSE(fits_one_at_a_time(p));
}

TEST_CASE("engines are 1 or 2") {
    auto p = valid_problem();
    p.transfer.engines = 0;
    CHECK(texts(p) == lines({"transfer.engines: must be 1 or 2, is 0"}));
    p.transfer.engines = 3;
    CHECK(texts(p) == lines({"transfer.engines: must be 1 or 2, is 3"}));
}

TEST_CASE("ranks, microbatches and stages: at least one of each") {
    CHECK(texts(with_ranks(0, 0, {})) == lines({"ranks: must be at least 1", "microbatches: must be at least 1",
                                                "stages: must hold at least one stage"}));
    CHECK(texts(with_ranks(1, 0, {0})) == lines({"microbatches: must be at least 1"}));
}

TEST_CASE("every rank holds a stage, and no other rank does") {
    CHECK(texts(with_ranks(3, 1, {0, 2, 2})) == lines({"stages: rank 1 holds no stage"}));
    // Built directly, like a problem from a reader of files that checks nothing.
    auto p = valid_problem();
    per_stage<rank> where(3);
    where[stage{1}] = rank{3};
    where[stage{2}] = rank{7};
    p.graph = optpipe::any_graph{3, 2, optpipe::placement::map<>{where}};
    CHECK(texts(p) == lines({"stages[1].rank: is 3, there are 3 ranks", "stages[2].rank: is 7, there are 3 ranks"}));
}

TEST_CASE("tables for another number of ranks or stages") {
    auto p = valid_problem();
    p.memory_limit = optpipe::per_rank<memory_size>(2, memory_size{2});
    p.p2p = optpipe::hop_times<>{2, {duration{}, duration{1}, duration{1}, duration{}}};
    p.storage = per_stage<optpipe::storage_list<false>>(4);
    CHECK(texts(p) ==
          lines({"storage: has 4 entries, there are 3 stages", "memory_limit: has 2 entries, there are 3 ranks",
                 "p2p: has 2 entries, there are 3 ranks"}));
}

TEST_CASE("microbatches, groups and edges of another number of stages") {
    auto p = valid_problem();
    p.microbatches.set_factors_by_stage(std::vector<optpipe::cost_factors>(6, optpipe::equal_factors(2.0)), 3);
    p.groups.add(std::vector{stage{1}, stage{9}}, duration{}, 12);
    p.graph = {3, 2, p.graph.placement(), optpipe::edges::any{8, {optpipe::edge{stage{1}, stage{7}, 1.0, {}}}}};
    CHECK(texts(p) == lines({"microbatches: must list 2 microbatches on 3 stages", "groups: must be of 3 stages",
                             "edge from stage 1 to 7: there are 3 stages"}));
}

TEST_CASE("all violations at once") {
    auto p = valid_problem();
    p.transfer.engines = 5;
    p.costs[stage{1}].forward = duration{-1};
    p.change_stage(stage{2}, [&](auto& c) { c.activation = memory_size{-1}; });
    p.p2p = optpipe::hop_times<>{duration{-1}};
    p.memory_limit[rank{1}] = memory_size{-1};
    p.host_memory_limit[rank{0}] = memory_size{-1};
    const auto found = validate(p);
    std::vector<std::string> places;
    for (const auto& v : found)
        places.push_back(v.place);
    CHECK(lines(places) == lines({"transfer.engines", "stages[1].forward", "stages[2].activation", "p2p",
                                  "host_memory_limit[0]", "memory_limit[1]"}));
}

TEST_CASE("problems of static extents are validated alike") {
    auto p = make_problem(optpipe::graph<2, 2>{}, optpipe::unit_memory{}, memory_size{0.5});
    REQUIRE(validate(p).size() == 2);
    CHECK(validate(p) == validate(to_problem(p)));
}

namespace {

/// The valid problem with two options at stage 1 in addition to a kept stash.
optpipe::problem with_storage_options() {
    auto p = valid_problem();
    p.change_stage(stage{1}, [](auto& c) { c.transfer = {}; });
    p.storage[stage{1}].push_back({"ahead", memory_size{0.5}, duration{1}, {}, {}, {}});
    p.storage[stage{1}].push_back(
        {"half", memory_size{1}, {}, {}, memory_size{0.5}, transfer_times{duration{1}, duration{1}}});
    return p;
}
template <class Change> std::string texts_with(Change change) {
    auto p = with_storage_options();
    change(p.storage[stage{1}][1], p.storage[stage{1}][2]);
    return texts(p);
}
using option = optpipe::storage_option;

} // namespace

TEST_CASE("storage options that contradict") {
    CHECK(texts(with_storage_options()) == lines({}));
    CHECK(texts_with([](option& a, option&) { a.held = memory_size{1.5}; }) ==
          lines({"stages[1].storage[1].held: 1.5 is above the stage's activation, 1"}));
    CHECK(texts_with([](option&, option& b) { b.transfer_size = memory_size{1.5}; }) ==
          lines({"stages[1].storage[2].transfer_size: 1.5 is above held, 1"}));
    CHECK(
        texts_with([](option& a, option&) { a.backward_extra = duration{1}; }) ==
        lines({"stages[1].storage[1].backward_extra: excludes recompute: either ahead of the backward or inside it"}));
    CHECK(texts_with([](option&, option& b) { b.transfer.reset(); }) ==
          lines({"stages[1].storage[2].transfer_size: needs offload and reload, the durations of the transfers"}));
    CHECK(texts_with([](option&, option& b) { b.name = "keep"; }) ==
          lines({"stages[1].storage[2].name: is that of storage[0], too"}));
    CHECK(texts_with([](option& a, option&) { a.name = ""; }) ==
          lines({"stages[1].storage[1].name: must not be empty"}));
}

TEST_CASE("storage is stated in the lists alone") {
    auto p = valid_problem();
    p.costs[stage{1}].transfer = transfer_times{duration{1}, duration{1}};
    CHECK(
        texts(p) ==
        lines({"stages[1].transfer: must be empty in a problem: set_stage turns transfer times into storage options"}));
    p = valid_problem();
    p.storage[stage{2}].clear();
    CHECK(texts(p) == lines({"stages[2].storage: must hold at least one option"}));
    p = valid_problem();
    p.costs[stage{0}].activation = memory_size{2};
    CHECK(texts(p) ==
          lines({"stages[0].storage[0].held: 1 is less than the stage's activation, 2, and nothing restores "
                 "the rest: recompute or backward_extra",
                 "stages[0].storage[1].held: 1 is less than the stage's activation, 2, and nothing restores "
                 "the rest: recompute or backward_extra"}));
    p.set_stage(stage{0}, p.costs[stage{0}]);
    CHECK(texts(p) == lines({}));
}

TEST_CASE("an option that holds less restores the rest") {
    const auto free = "stages[1].storage[1].held: 0.5 is less than the stage's activation, 1, and nothing restores the "
                      "rest: recompute or backward_extra";
    CHECK(texts_with([](option& a, option&) { a.recompute = {}; }) == lines({free}));
    CHECK(texts_with([](option& a, option&) {
              a.recompute = {};
              a.backward_extra = duration{1};
          }) == lines({}));
    // An offload needn't: it brings back all that it took.
    CHECK(
        texts_with([](option&, option& b) { b.held = memory_size{0.5}; }) ==
        lines({"stages[1].storage[2].held: 0.5 is less than the stage's activation, 1, and nothing restores the rest: "
               "recompute or backward_extra"}));
    // Sums of the same numbers in another order.
    CHECK(texts_with([](option&, option& b) { b.held = memory_size{1.0 - 1e-12}; }) == lines({}));
}

TEST_CASE("what a file has by default, an option of a program has, or it has to be said") {
    CHECK(texts_with([](option& a, option&) { a = option{.name = "ahead", .recompute = duration{1}}; }) ==
          lines({"stages[1].storage[1].held: is missing: all of it is the stage's activation"}));
    const optpipe::stage_costs short_one{duration{1}, duration{1}, duration{1}, memory_size{3}};
    CHECK(short_one.weight_stash == memory_size{1.5});
    const optpipe::stage_costs named{.forward = duration{1}, .activation = memory_size{3}, .transfer = {}};
    CHECK(named.weight_stash == memory_size{1.5});
}

TEST_CASE("names of storage options that don't fit are refused, and never cut within a character") {
    const std::string long_name(50, 'x');
    CHECK(texts_with([&](option& a, option&) { a.name = long_name; }) ==
          lines({"stages[1].storage[1].name: must have at most 32 bytes"}));
    CHECK(texts_with([&](option& a, option& b) { a.name = b.name = long_name; }) ==
          lines({"stages[1].storage[1].name: must have at most 32 bytes",
                 "stages[1].storage[2].name: must have at most 32 bytes"}));
    CHECK(texts_with([](option& a, option&) { a.name = std::string(32, 'x'); }) == lines({}));
}

TEST_CASE("a problem has backwards of one kind at least") {
    auto p = valid_problem();
    p.full_backward = false;
    CHECK(texts(p) == lines({}));
    p.split_backward = false;
    CHECK(texts(p) == lines({"full_backward: is false, and so is split_backward: there is no backward"}));
}

TEST_CASE("numbers of storage options are finite and not negative") {
    CHECK(texts_with([](option& a, option&) { a.held = memory_size{-1}; }) ==
          lines({"stages[1].storage[1].held: must not be negative, is -1"}));
    CHECK(texts_with([](option& a, option&) { a.recompute = duration{-1}; }) ==
          lines({"stages[1].storage[1].recompute: must not be negative, is -1"}));
    CHECK(texts_with([](option&, option& b) { b.backward_extra = duration{infinity}; }) ==
          lines({"stages[1].storage[2].backward_extra: is not a finite number"}));
    CHECK(texts_with([](option&, option& b) { b.transfer_size = memory_size{-1}; }) ==
          lines({"stages[1].storage[2].transfer_size: must not be negative, is -1"}));
    CHECK(texts_with([](option&, option& b) { b.transfer->reload = duration{not_a_number}; }) ==
          lines({"stages[1].storage[2].reload: is not a finite number"}));
    CHECK(texts_with([](option&, option& b) { b.transfer->offload = duration{-2}; }) ==
          lines({"stages[1].storage[2].offload: must not be negative, is -2"}));
}

TEST_CASE("a limit below what the most frugal storage options need") {
    auto p = with_storage_options();
    p.memory_limit[rank{1}] = memory_size{0.9};
    CHECK(texts(p) == lines({"memory_limit[1]: 0.9 is below 1, what a single microbatch needs on rank 1"}));
    p.storage[stage{1}][1].recompute = duration{};
    p.storage[stage{1}][1].backward_extra = duration{1};
    CHECK(texts(p) == lines({}));
    p.memory_limit[rank{1}] = memory_size{0.4};
    CHECK(texts(p) == lines({"memory_limit[1]: 0.4 is below 0.5, what a single microbatch needs on rank 1"}));
}

TEST_CASE("a stage has so many storage options and no more") {
    auto p = with_storage_options();
    while (p.storage[stage{1}].size() <= optpipe::most_storage_options)
        p.storage[stage{1}].push_back(
            {optpipe::bounded_text<32>{"option-", p.storage[stage{1}].size()}, memory_size{1}, {}, {}, {}, {}});
    CHECK(texts(p) == lines({"stages[1].storage: holds 33 options, at most 32 are possible"}));
}

TEST_CASE("a stage has the gradients that its costs say") {
    auto p = valid_problem();
    for (auto& list : p.storage)
        list.resize(1);
    auto& frozen = p.costs[stage{1}];
    frozen.gradients = optpipe::gradient_kind::input;
    CHECK(texts(p) == lines({"stages[1].backward_weight: must be 0 with this backward, is 1",
                             "stages[1].weight_stash: must be 0 with this backward, is 0.5"}));
    frozen.backward_weight = duration{};
    frozen.weight_stash = memory_size{};
    CHECK(texts(p) == lines({}));
    frozen.gradients = optpipe::gradient_kind::none;
    CHECK(texts(p) == lines({"stages[1].backward_input: must be 0 with this backward, is 1",
                             "stages[1].backward: is \"none\", but stage 0, which feeds it, computes gradients"}));
    frozen.backward_input = duration{};
    p.costs[stage{0}] = frozen;
    CHECK(texts(p) == lines({}));
    frozen.kv = memory_size{-1};
    CHECK(texts(p) == lines({"stages[1].kv: must not be negative, is -1"}));
}

TEST_CASE("sizes of edges, delays of groups and factors") {
    auto p = valid_problem();
    const optpipe::any_graph chain = p.graph;
    p.graph = {3, 2, chain.placement(),
               optpipe::edges::any{3, {optpipe::edge{stage{0}, stage{2}, -1.0, memory_size{-2}}}}};
    CHECK(texts(p) == lines({"edge from stage 0 to 2.size: must not be negative, is -1",
                             "edge from stage 0 to 2.held: must not be negative, is -2"}));
    p.graph = chain;
    p.groups.add(std::vector{stage{1}, stage{2}}, duration{-1}, 3);
    CHECK(texts(p) == lines({"groups: delay of stage 1: must not be negative, is -1"}));
    p.groups = {};
    std::vector<optpipe::cost_factors> factors{{}, {0, -1, infinity, 1, not_a_number}};
    p.microbatches.set_factors(factors);
    CHECK(texts(p) == lines({"microbatches[1].forward: must be above 0, is 0",
                             "microbatches[1].backward_input: must be above 0, is -1",
                             "microbatches[1].backward_weight: is not a finite number",
                             "microbatches[1].message: is not a finite number"}));
    factors.assign(6, {});
    factors[3].memory = 0.0;
    p.microbatches.set_factors_by_stage(factors, 2);
    CHECK(texts(p) == lines({"microbatches[1].memory[1]: must be above 0, is 0"}));
}

TEST_CASE("a limit below what the stages before leave, of the largest microbatch") {
    auto p = with_ranks(2, 2, {0, 1, 0}); // a stash of 1 each
    p.groups.add(std::vector{stage{2}}, duration{}, 3);
    p.memory_limit[rank{0}] = memory_size{2};
    CHECK(texts(p) == lines({}));
    p.memory_limit[rank{0}] = memory_size{1.5};
    CHECK(texts(p) == lines({"memory_limit[0]: 1.5 is below 2, what a single microbatch needs on rank 0"}));
    std::vector<optpipe::cost_factors> factors(2);
    factors[1].memory = 0.5;
    p.microbatches.set_factors(factors);
    CHECK(texts(p) == lines({"memory_limit[0]: 1.5 is below 2, what a single microbatch needs on rank 0"}));
    factors[0].memory = 0.75;
    p.microbatches.set_factors(factors);
    CHECK(texts(p) == lines({}));
    // Stages that don't lead to one another may run one after the other.
    p = with_ranks(2, 2, {0, 1, 0});
    p.graph = {2, 2, p.graph.placement(), optpipe::edges::any{3, {}}};
    p.memory_limit[rank{0}] = memory_size{1};
    CHECK(texts(p) == lines({}));
}
