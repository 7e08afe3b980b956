#include "optpipe/pipeline/layer_costs.hpp"

#include "optpipe/pipeline/decoder.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/model_shapes.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <vector>

using namespace optpipe;

namespace {

constexpr auto all_options = storage::keep | storage::offload | storage::selective | storage::full;

void check_same(duration a, duration b) { CHECK(a.value() == doctest::Approx(b.value())); }
void check_same(memory_size a, memory_size b) { CHECK(a.value() == doctest::Approx(b.value())); }
void check_same(const std::optional<transfer_times>& a, const std::optional<transfer_times>& b) {
    REQUIRE(a.has_value() == b.has_value());
    if (!a) return;
    check_same(a->offload, b->offload);
    check_same(a->reload, b->reload);
}

/// Two pipelines have the same costs and storage options, except for rounding.
void check_same(const problem& a, const problem& b) {
    for (const stage s : a.graph.all_stages()) {
        CAPTURE(s.value());
        check_same(a.costs[s].forward, b.costs[s].forward);
        check_same(a.costs[s].backward_input, b.costs[s].backward_input);
        check_same(a.costs[s].backward_weight, b.costs[s].backward_weight);
        check_same(a.costs[s].activation, b.costs[s].activation);
        check_same(a.costs[s].weight_stash, b.costs[s].weight_stash);
        REQUIRE(a.storage[s].size() == b.storage[s].size());
        for (std::size_t i = 0; i < a.storage[s].size(); ++i) {
            const auto& x = a.storage[s][i];
            const auto& y = b.storage[s][i];
            CHECK(x.name == y.name);
            check_same(x.held, y.held);
            check_same(x.recompute, y.recompute);
            check_same(x.backward_extra, y.backward_extra);
            check_same(x.transfer_size, y.transfer_size);
            check_same(x.transfer, y.transfer);
        }
    }
}

any_graph linear(std::size_t ranks) { return to_any_graph(graph<dynamic, dynamic>{ranks, 6}); }
problem on_devices(const any_graph& g, memory_size device) {
    problem p{g, per_stage<stage_costs>(g.stages())};
    for (auto& l : p.memory_limit)
        l = device;
    return p;
}

layer_costs unit_layer() {
    layer_costs one;
    one.costs = {duration{1},    duration{2},    duration{3},
                 memory_size{4}, memory_size{2}, transfer_times{duration{5}, duration{6}}};
    one.static_memory = memory_size{7};
    return one;
}

} // namespace

TEST_CASE("a stage costs what its layers cost") {
    transformer<listed_layers<>> model{
        .layers = {}, .hidden = 4096, .sequence = 4096, .compute_rate = 300.0, .host_link_rate = 20.0};
    model.layers.each = per_stage<std::size_t>(20, 1);
    const auto keep = layer_costs_of(model, 20);
    const auto all = layer_costs_of(model, 20, all_options);
    const std::vector<std::size_t> counts{3, 8, 4, 5};
    model.layers.each = per_stage<std::size_t>(4);
    for (const stage s : linear(4).all_stages())
        model.layers.each[s] = counts[s.position()];
    const auto p = on_devices(linear(4), memory_size{80});
    check_same(with_layers(p, keep, counts), make_problem(linear(4), model));
    check_same(with_layers(p, all, counts), make_problem(linear(4), model, memory_size{80}, all_options));
    for (const rank r : p.graph.all_ranks())
        check_same(with_layers(p, all, counts).memory_limit[r],
                   memory_size{80} - model.static_memory(stage{r.position()}, 4));
}

TEST_CASE("layers of different shapes, an embedding and an output layer") {
    auto model = model_shapes::deepseek_v3;
    model.expert_parallel = 64;
    model.optimizer_shards = 128;
    model.compute_rate = 300.0;
    model.host_link_rate = 20.0;
    const auto layers = layer_costs_of(model, model.layers, all_options);
    REQUIRE(layers.size() == 61);
    std::vector<std::size_t> counts;
    for (const stage s : linear(8).all_stages())
        counts.push_back(even_layers{.total = model.layers}.layers_of(s, 8));
    const auto p = with_layers(on_devices(linear(8), memory_size{80}), layers, counts);
    check_same(p, make_problem(linear(8), model, memory_size{80}, all_options));
    for (const rank r : p.graph.all_ranks())
        check_same(p.memory_limit[r], memory_size{80} - model.static_memory(stage{r.position()}, 8));
    CHECK(validate(p).empty());
}

TEST_CASE("a stage has the storage options that all of its layers have") {
    std::vector<layer_costs> layers(4, unit_layer());
    const auto& costs = layers.front().costs;
    const storage_option full{"full", memory_size{1}, {}, duration{1}, {}, {}};
    const storage_option norms{"norms", memory_size{3}, duration{1}, {}, {}, {}};
    layers[0].storage = layers[1].storage = {keep_stash(costs), full, norms};
    layers[2].storage = {keep_stash(costs), norms, full};
    const auto p = on_devices(linear(2), memory_size{100});
    const auto q = with_layers(p, layers, std::vector<std::size_t>{2, 2});
    REQUIRE(q.storage[stage{0}].size() == 3);
    CHECK(q.storage[stage{0}][1].backward_extra == duration{2});
    CHECK(q.storage[stage{0}][2].recompute == duration{2});
    CHECK(q.storage[stage{0}][2].held == memory_size{6});
    // The last layer has no list: it can be kept, or offloaded, and all others can only be kept with it.
    CHECK(q.storage_options(stage{1}) == 1);
    CHECK(q.storage_of(stage{1}, 0) == keep_stash(q.costs[stage{1}]));
    const auto moved = with_layers(p, layers, std::vector<std::size_t>{3, 1});
    CHECK(moved.storage[stage{0}].size() == 3);
    CHECK(moved.storage[stage{1}] == described_storage(costs));
    CHECK(moved.memory_limit[rank{0}] == memory_size{100 - 21});
    CHECK(moved.memory_limit[rank{1}] == memory_size{100 - 7});
}

TEST_CASE("what one layer recomputes ahead of the backward and another inside it is no option of both") {
    std::vector<layer_costs> layers(2, unit_layer());
    const auto keep = keep_stash(layers.front().costs);
    layers[0].storage = {keep, {"full", memory_size{1}, {}, duration{1}, {}, {}}};
    layers[1].storage = {keep, {"full", memory_size{1}, duration{1}, {}, {}, {}}};
    const auto q = with_layers(on_devices(linear(1), memory_size{100}), layers, std::vector<std::size_t>{2});
    CHECK(q.storage_options(stage{0}) == 1);
}

TEST_CASE("ranks with several stages") {
    const std::vector<layer_costs> layers(7, unit_layer());
    const auto p = on_devices(to_any_graph(graph<dynamic, dynamic, placement::v>{2, 4}), memory_size{100});
    const auto q = with_layers(p, layers, std::vector<std::size_t>{1, 2, 3, 1});
    CHECK(q.costs[stage{2}].work() == duration{18});
    CHECK(q.storage_of(stage{2}, 1).transfer == transfer_times{duration{15}, duration{18}});
    CHECK(q.memory_limit[rank{0}] == memory_size{100 - 14});
    CHECK(q.memory_limit[rank{1}] == memory_size{100 - 35});
}
