#include "optpipe/pipeline/transformer.hpp"

#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>

namespace {

using optpipe::listed_layers;
using optpipe::memory_size;
using optpipe::per_stage;
using optpipe::stage;
using optpipe::transformer;

/// Whether a value agrees with one that is given with six decimals.
bool agrees(double value, double given) {
    constexpr double half_a_decimal = 5e-7;
    return std::abs(value - given) <= half_a_decimal * (1.0 + 1e-6) + 1e-12 * std::abs(given);
}

struct given_costs {
    double forward, backward_input, backward_weight, activation, weight_stash, offload;
};

template <class Split>
void check_costs(const transformer<Split>& model, std::size_t at, std::size_t stages, const given_costs& given) {
    CAPTURE(at);
    const auto costs = model.costs(stage{at}, stages);
    CHECK(agrees(costs.forward.value(), given.forward));
    CHECK(agrees(costs.backward_input.value(), given.backward_input));
    CHECK(agrees(costs.backward_weight.value(), given.backward_weight));
    CHECK(agrees(costs.activation.value(), given.activation));
    CHECK(agrees(costs.weight_stash.value(), given.weight_stash));
    REQUIRE(costs.can_offload());
    CHECK(agrees(costs.transfer->offload.value(), given.offload));
    CHECK(costs.transfer->reload == costs.transfer->offload);
}

/// The files give every rank the same limit: the device without the average static memory of a rank.
template <class Split>
double average_static_memory(const transformer<Split>& model, std::size_t stages, std::size_t ranks) {
    memory_size sum{};
    for (std::size_t s = 0; s < stages; ++s)
        sum += model.static_memory(stage{s}, stages);
    return (sum / static_cast<double>(ranks)).value();
}

constexpr transformer<> a100{.compute_rate = 220.0, .host_link_rate = 15.0, .rank_link_rate = 45.0};
constexpr transformer<> h100{.compute_rate = 440.0, .host_link_rate = 21.0, .rank_link_rate = 45.0};

} // namespace

TEST_CASE("llama2-7b-4k-p4") {
    auto model = h100;
    model.layers = {32};
    model.hidden = 4096;
    model.sequence = 4096;
    model.microbatch_size = 4;
    model.vocabulary = 32000;
    check_costs(model, 0, 4, {139.937844, 159.928964, 119.946723, 10.737418, 8.589935, 511.30563});
    check_costs(model, 2, 4, {139.937844, 159.928964, 119.946723, 10.737418, 8.589935, 511.30563});
    check_costs(model, 3, 4, {149.699133, 169.690253, 129.708012, 10.871636, 8.589935, 517.696951});
    CHECK(agrees(model.p2p().value(), 2.982616));
    CHECK(agrees(64.0 - average_static_memory(model, 4, 4), 35.008971));
}

TEST_CASE("llama2-13b-4k-p8-tight") {
    auto model = h100;
    model.layers = {40};
    model.hidden = 5120;
    model.sequence = 4096;
    model.microbatch_size = 2;
    model.vocabulary = 32000;
    check_costs(model, 6, 8, {66.376767, 74.185799, 58.567736, 4.194304, 3.355443, 199.728762});
    check_costs(model, 7, 8, {72.477573, 80.286605, 64.668542, 4.27819, 3.355443, 203.723337});
    CHECK(agrees(model.p2p().value(), 1.864135));
    CHECK(agrees(48.0 - average_static_memory(model, 8, 8), 19.688448));
}

TEST_CASE("gpt-10.5b-4k-p8 and gpt-10.5b-8k-p8-tight: layers that don't divide, no output layer") {
    auto model = a100;
    model.layers = {38};
    model.hidden = 5120;
    model.sequence = 4096;
    model.microbatch_size = 4;
    check_costs(model, 0, 8, {265.507069, 296.743195, 234.270943, 8.388608, 6.710886, 559.240533});
    check_costs(model, 5, 8, {265.507069, 296.743195, 234.270943, 8.388608, 6.710886, 559.240533});
    check_costs(model, 6, 8, {212.405655, 237.394556, 187.416755, 6.710886, 5.368709, 447.392427});
    check_costs(model, 7, 8, {212.405655, 237.394556, 187.416755, 6.710886, 5.368709, 447.392427});
    CHECK(agrees(model.p2p().value(), 3.72827));
    CHECK(agrees(80.0 - average_static_memory(model, 8, 8), 53.104026));

    model.sequence = 8192;
    model.microbatch_size = 1;
    check_costs(model, 5, 8, {148.371597, 179.607723, 117.135472, 4.194304, 3.355443, 279.620267});
    check_costs(model, 6, 8, {118.697278, 143.686179, 93.708377, 3.355443, 2.684355, 223.696213});
    CHECK(agrees(model.p2p().value(), 1.864135));
    CHECK(agrees(44.0 - average_static_memory(model, 8, 8), 17.104026));
}

TEST_CASE("gpt-18.1b-4k-p16-v2: two stages per rank") {
    auto model = a100;
    model.layers = {46};
    model.hidden = 6144;
    model.sequence = 4096;
    model.microbatch_size = 2;
    check_costs(model, 13, 32, {74.966702, 82.463372, 67.470032, 2.013266, 1.610613, 134.217728});
    check_costs(model, 14, 32, {37.483351, 41.231686, 33.735016, 1.006633, 0.805306, 67.108864});
    CHECK(agrees(model.p2p().value(), 2.236962));
    CHECK(agrees(52.0 - average_static_memory(model, 32, 16), 28.558035));
}

TEST_CASE("llama3-70b-8k-p16-tp8 and -v2-tp8: tensor parallel, layers of more than 12 h^2 parameters") {
    auto model = h100;
    model.layers = {80};
    model.hidden = 8192;
    model.sequence = 8192;
    model.tensor_parallel = 8;
    model.vocabulary = 128256;
    model.parameters_per_layer = 15.6;
    check_costs(model, 0, 16, {27.487791, 30.611403, 24.364178, 0.838861, 0.671089, 39.945752});
    check_costs(model, 15, 16, {32.378197, 35.501809, 29.254584, 0.855638, 0.671089, 40.744667});
    CHECK(agrees(model.p2p().value(), 0.372827));
    CHECK(agrees(24.0 - average_static_memory(model, 16, 16), 12.222394));

    check_costs(model, 15, 32, {16.492674, 18.366842, 14.618507, 0.503316, 0.402653, 23.967451});
    check_costs(model, 16, 32, {10.995116, 12.244561, 9.745671, 0.335544, 0.268435, 15.978301});
    check_costs(model, 31, 32, {15.885522, 17.134967, 14.636077, 0.352322, 0.268435, 16.777216});
    CHECK(agrees(22.0 - average_static_memory(model, 32, 16), 10.222394));
}

TEST_CASE("longcontext-7b-32k-p8") {
    auto model = h100;
    model.layers = {32};
    model.hidden = 4096;
    model.sequence = 32768;
    model.vocabulary = 32000;
    model.host_link_rate = 50.0;
    check_costs(model, 0, 8, {279.875687, 439.804651, 119.946723, 10.737418, 8.589935, 214.748365});
    check_costs(model, 7, 8, {299.398266, 459.32723, 139.469302, 11.005854, 8.589935, 220.117074});
    CHECK(agrees(model.p2p().value(), 5.965232));
    CHECK(agrees(80.0 - average_static_memory(model, 8, 8), 65.504485));
}

TEST_CASE("PipeOffload's k on A100 and H100") {
    struct row {
        std::size_t hidden;
        std::array<double, 4> on_a100, on_h100;
    };
    constexpr std::array<std::size_t, 4> sequences{4096, 8192, 16384, 32768};
    constexpr std::array<row, 6> rows{{
        {4096, {1.705, 1.492, 1.194, 0.853}, {2.436, 2.131, 1.705, 1.218}},
        {5120, {1.404, 1.256, 1.038, 0.77}, {2.006, 1.795, 1.483, 1.1}},
        {6144, {1.194, 1.085, 0.918, 0.702}, {1.705, 1.55, 1.312, 1.003}},
        {7168, {1.038, 0.955, 0.823, 0.645}, {1.483, 1.364, 1.176, 0.922}},
        {8192, {0.918, 0.853, 0.746, 0.597}, {1.312, 1.218, 1.066, 0.853}},
        {10240, {0.746, 0.702, 0.628, 0.519}, {1.066, 1.003, 0.897, 0.741}},
    }};
    const auto k = [](transformer<> model, std::size_t hidden, std::size_t sequence) {
        model.hidden = hidden;
        model.sequence = sequence;
        return model.round_trip_ratio();
    };
    for (const auto& given : rows)
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            CAPTURE(given.hidden);
            CAPTURE(sequences[i]);
            CHECK(std::abs(k(a100, given.hidden, sequences[i]) - given.on_a100[i]) <= 5.0001e-4);
            CHECK(std::abs(k(h100, given.hidden, sequences[i]) - given.on_h100[i]) <= 5.0001e-4);
        }
    CHECK(std::abs(k(h100, 4096, 1024) - 2.728) <= 5.0001e-4);
    CHECK(std::abs(k(h100, 8192, 1024) - 1.392) <= 5.0001e-4);
}

TEST_CASE("k is formula 1, whatever the size of a microbatch and the layers of a stage") {
    auto model = a100;
    model.hidden = 3072;
    model.sequence = 1536;
    const double k = 10.0 / (3.0 * (6.0 * 3072 + 1536)) * 220e12 / 15e9;
    CHECK(model.round_trip_ratio() == doctest::Approx(k).epsilon(1e-12));
    model.microbatch_size = 7;
    model.tensor_parallel = 4;
    CHECK(model.round_trip_ratio() == doctest::Approx(k).epsilon(1e-12));

    model.layers = {12};
    const auto costs = model.costs(stage{1}, 4);
    CHECK((costs.transfer->offload + costs.transfer->reload) / costs.work() == doctest::Approx(k).epsilon(1e-12));
}

TEST_CASE("without recomputation the stash is sb(34h + 5as), of which W needs 32sbh") {
    auto model = a100;
    model.layers = {24};
    model.hidden = 2304;
    model.heads = 24;
    model.sequence = 1024;
    model.microbatch_size = 6;
    model.recompute_cheap_layers = false;
    const double sb = 1024.0 * 6.0;
    auto costs = model.costs(stage{3}, 8);
    CHECK(costs.activation.value() == doctest::Approx(3 * sb * (34.0 * 2304 + 5.0 * 24 * 1024) * 1e-9).epsilon(1e-12));
    CHECK(costs.weight_stash.value() == doctest::Approx(3 * sb * 32.0 * 2304 * 1e-9).epsilon(1e-12));

    // Elements of four bytes, masks of one.
    model.bytes_per_element = 4.0;
    costs = model.costs(stage{3}, 8);
    CHECK(costs.activation.value() == doctest::Approx(3 * sb * (66.0 * 2304 + 9.0 * 24 * 1024) * 1e-9).epsilon(1e-12));
    CHECK(costs.weight_stash.value() == doctest::Approx(3 * sb * 64.0 * 2304 * 1e-9).epsilon(1e-12));

    model.recompute_cheap_layers = true;
    costs = model.costs(stage{3}, 8);
    CHECK(costs.activation.value() == doctest::Approx(3 * sb * 40.0 * 2304 * 1e-9).epsilon(1e-12));
}

TEST_CASE("layers as listed cost what they cost evenly split") {
    transformer<listed_layers<>> listed;
    listed.layers.each = per_stage<std::size_t>(3, 4);
    listed.layers.each[stage{1}] = 8;
    listed.hidden = 1024;
    listed.sequence = 512;
    listed.compute_rate = 100.0;
    transformer<> even{.layers = {12}, .hidden = 1024, .sequence = 512, .compute_rate = 100.0};
    CHECK(listed.costs(stage{0}, 3) == even.costs(stage{0}, 3));
    even.layers = {24};
    CHECK(listed.costs(stage{1}, 3) == even.costs(stage{1}, 3));
    CHECK(listed.static_memory(stage{1}, 3) == even.static_memory(stage{1}, 3));
    CHECK_FALSE(listed.costs(stage{2}, 3) == even.costs(stage{2}, 3));
}

TEST_CASE("however they are split, layers add up") {
    for (std::size_t fewer = 0; fewer < 3; ++fewer)
        for (std::size_t total = 30; total < 60; ++total)
            for (std::size_t stages = 1; stages <= 10; ++stages) {
                const optpipe::even_layers split{total, fewer};
                std::size_t sum = 0;
                for (std::size_t s = 0; s < stages; ++s)
                    sum += split.layers_of(stage{s}, stages);
                CAPTURE(fewer);
                CAPTURE(stages);
                CHECK(sum == total);
            }
}

namespace {

optpipe::storage_option option_of(const transformer<>& model, std::size_t at, std::size_t stages, const char* name) {
    for (const auto& option : model.storage(stage{at}, stages))
        if (option.name == name) return option;
    FAIL("there is no ", name);
    return {};
}
transformer<> llama2_7b() {
    auto model = h100;
    model.layers = {32};
    model.hidden = 4096;
    model.sequence = 4096;
    model.microbatch_size = 4;
    model.vocabulary = 32000;
    return model;
}

} // namespace

TEST_CASE("storage options of llama2-7b, as those of its problem file") {
    const auto model = llama2_7b();
    const auto norms = option_of(model, 0, 4, "norms");
    CHECK(norms.held.value() == doctest::Approx(8.589934).epsilon(1e-6));
    CHECK(norms.backward_extra.value() == doctest::Approx(4.198135).epsilon(1e-6));
    const auto full = option_of(model, 0, 4, "full");
    CHECK(full.held.value() == doctest::Approx(1.073742).epsilon(1e-6));
    CHECK(full.backward_extra.value() == doctest::Approx(139.937844).epsilon(1e-6));
    CHECK(option_of(model, 0, 4, "full-ahead").recompute == full.backward_extra);
    // The file rounds: 0.55 of the stash, 0.3 of the forward.
    const auto mlp = option_of(model, 0, 4, "mlp-ahead");
    CHECK(mlp.held.value() == doctest::Approx(5.90558).epsilon(0.1));
    CHECK(mlp.recompute.value() == doctest::Approx(41.981353).epsilon(0.06));
    const auto half = option_of(model, 0, 4, "offload-half");
    CHECK(half.transfer->offload.value() == doctest::Approx(255.652815).epsilon(1e-6));
    CHECK(option_of(model, 0, 4, "norms+offload").transfer->reload.value() ==
          doctest::Approx(409.044504).epsilon(1e-6));
    CHECK(option_of(model, 0, 4, "full+offload").transfer_size == full.held);
}

TEST_CASE("storage options by the formulas of Korthikanti et al.") {
    auto model = llama2_7b();
    model.recompute_cheap_layers = false;
    model.heads = 32;
    model.vocabulary = 0;
    // Selective recomputation leaves 34 and full recomputation leaves 2 of sb(34h + 5as) bytes per layer.
    const double sbh = 4096.0 * 4 * 4096 * 8 * 1e-9;
    const auto activation = model.costs(stage{0}, 4).activation.value();
    CHECK(activation == doctest::Approx((34.0 + 5.0 * 32) * sbh));
    CHECK(option_of(model, 0, 4, "attention").held.value() == doctest::Approx(34.0 * sbh));
    CHECK(option_of(model, 0, 4, "full").held.value() == doctest::Approx(2.0 * sbh));
    CHECK(option_of(model, 0, 4, "norms").held.value() == doctest::Approx(activation - 4.0 * sbh));
    CHECK(option_of(model, 0, 4, "mlp").held.value() == doctest::Approx(activation - 16.0 * sbh));
    // 4bs²h out of 24bsh² + 4bs²h: at s = h a seventh of the forward.
    const auto forward = model.costs(stage{0}, 4).forward.value();
    CHECK(option_of(model, 0, 4, "attention").backward_extra.value() == doctest::Approx(forward / 7.0));
    CHECK(option_of(model, 0, 4, "full").backward_extra.value() == doctest::Approx(forward));
}

TEST_CASE("storage options contradict nothing, whatever the model") {
    for (const bool cheap : {false, true})
        for (const double link : {0.0, 21.0}) {
            auto model = llama2_7b();
            model.recompute_cheap_layers = cheap;
            model.heads = 32;
            model.host_link_rate = link;
            const auto p = to_problem(make_problem(optpipe::graph<4, 4>{}, model, memory_size::unlimited(),
                                                   optpipe::storage::uniform{"full-ahead"}));
            CHECK(p.storage_options(stage{3}) == 1);
            optpipe::problem all{to_any_graph(optpipe::graph<4, 4>{}),
                                 costs_of(model, to_any_graph(optpipe::graph<4, 4>{}))};
            const auto options =
                make_problem(all.graph, model, memory_size::unlimited(), optpipe::storage::solver_decides{});
            CHECK(validate(options).empty());
            const std::size_t each = cheap ? 7 : 9;
            CHECK(options.storage_options(stage{3}) == (link > 0.0 ? 3 * each : each));
        }
}
