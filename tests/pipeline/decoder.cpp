#include "optpipe/pipeline/decoder.hpp"

#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/model_shapes.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/pipeline/validate_problem.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>

namespace {

using optpipe::decoder;
using optpipe::decoder_layer;
using optpipe::duration;
using optpipe::stage;
using optpipe::transformer;
namespace shapes = optpipe::model_shapes;

constexpr double billion = 1e9;

/// A rank that computes a GFLOP in a millisecond, so that durations are FLOP.
decoder counted(decoder model) {
    model.compute_rate = 1.0;
    return model;
}

} // namespace

TEST_CASE("published shapes have the parameters that were published") {
    const struct {
        const char* name;
        decoder model;
        double all, active;
    } published[] = {
        {"Llama 2 7B", shapes::llama2_7b, 6.74, 6.74},      {"Llama 2 13B", shapes::llama2_13b, 13.02, 13.02},
        {"Llama 3 8B", shapes::llama3_8b, 8.03, 8.03},      {"Llama 3 70B", shapes::llama3_70b, 70.55, 70.55},
        {"Qwen3 32B", shapes::qwen3_32b, 32.8, 32.8},       {"Qwen3 235B", shapes::qwen3_235b_a22b, 235.0, 22.0},
        {"Mixtral 8x7B", shapes::mixtral_8x7b, 46.7, 12.9}, {"DeepSeek-V3", shapes::deepseek_v3, 671.0, 37.5},
    };
    for (const auto& p : published) {
        CAPTURE(p.name);
        CHECK(p.model.parameters() / billion == doctest::Approx(p.all).epsilon(0.005));
        CHECK(p.model.active_parameters() / billion == doctest::Approx(p.active).epsilon(0.01));
    }
}

TEST_CASE("a layer with the parameters of the papers' layer takes their time") {
    // 4h² for attention and 3 · h · 8h/3
    const decoder model{.layers = 32,
                        .layer = shapes::dense_layer(3072, 24, 24, 128, 8192),
                        .vocabulary = 32000,
                        .sequence = 2048,
                        .microbatch_size = 2,
                        .tensor_parallel = 2,
                        .compute_rate = 300.0,
                        .host_link_rate = 20.0,
                        .rank_link_rate = 40.0};
    const transformer<> papers{.layers = {.total = 32},
                               .hidden = 3072,
                               .sequence = 2048,
                               .microbatch_size = 2,
                               .tensor_parallel = 2,
                               .vocabulary = 32000,
                               .compute_rate = 300.0,
                               .host_link_rate = 20.0,
                               .rank_link_rate = 40.0};
    for (const std::size_t at : {0U, 3U}) {
        const auto ours = model.costs(stage{at}, 4);
        const auto theirs = papers.costs(stage{at}, 4);
        CHECK(ours.forward.value() == doctest::Approx(theirs.forward.value()));
        CHECK(ours.backward_input.value() == doctest::Approx(theirs.backward_input.value()));
        CHECK(ours.backward_weight.value() == doctest::Approx(theirs.backward_weight.value()));
        // Two thirds of 8h for gate and up; the other model has 4h before GeLU.
        const double layers = 8 * 2.0 * 2048 * 2 * 3072 / 2 * 1e-9;
        const double output = at == 3 ? layers / 8 : 0.0;
        CHECK(theirs.activation.value() == doctest::Approx(10.0 * layers + output));
        CHECK(ours.activation.value() == doctest::Approx((6.0 + 16.0 / 3.0) * layers + output));
        CHECK(ours.weight_stash.value() == doctest::Approx(0.8 * (6.0 + 16.0 / 3.0) * layers));
        CHECK(ours.transfer->offload.value() == doctest::Approx(ours.activation.value() / 20.0 * 1e3));
    }
    CHECK(model.p2p().value() == doctest::Approx(papers.p2p().value()));
    // The embedding is at one end and the output layer at the other; `transformer` counts neither.
    const double ends = 32000.0 * 3072 * 18 / 2 * 1e-9;
    CHECK(model.static_memory(stage{0}, 4).value() ==
          doctest::Approx(papers.static_memory(stage{0}, 4).value() + ends));
    CHECK(model.static_memory(stage{1}, 4).value() == doctest::Approx(papers.static_memory(stage{1}, 4).value()));
}

TEST_CASE("experts: work of those a token meets, memory of those a rank holds") {
    auto model = counted(shapes::mixtral_8x7b);
    model.vocabulary = 0;
    model.layers = 1;
    const double tokens = 4096;
    const double attention = 4096.0 * 4096 * 2 + 4096.0 * 1024 * 2;
    const double expert = 3.0 * 4096 * 14336;
    const double router = 4096.0 * 8;
    const auto costs = model.costs(stage{0}, 1);
    const double weights = 2 * tokens * (attention + 2 * expert + router) * 1e-9;
    const double scores = 2 * tokens * 4096 * 32 * 256 * 1e-9;
    CHECK(costs.forward.value() == doctest::Approx(weights + scores));
    CHECK(costs.backward_input.value() == doctest::Approx(weights + 2 * scores));
    CHECK(costs.backward_weight.value() == doctest::Approx(weights));
    // input, queries, keys and values, attention, input of the experts, its copies, gate and up of both
    const double elements = 4096 + 4096 + 2 * 1024 + 4096 + 4096 + 2 * 4096 + 2 * 2 * 14336;
    CHECK(costs.activation.value() == doctest::Approx(2 * tokens * elements * 1e-9));

    CHECK(model.static_memory(stage{0}, 1).value() == doctest::Approx(18e-9 * (attention + router + 8 * expert)));
    model.expert_parallel = 8;
    CHECK(model.static_memory(stage{0}, 1).value() == doctest::Approx(18e-9 * (attention + router + expert)));
    CHECK(model.costs(stage{0}, 1) == costs);
    model.optimizer_shards = 16; // each expert is on two of them
    CHECK(model.static_memory(stage{0}, 1).value() ==
          doctest::Approx(1e-9 * ((6 + 12.0 / 16) * (attention + router) + (6 + 12.0 / 2) * expert)));

    model.expert_link_rate = 50.0;
    const double each_way = 2 * tokens * 2 * 4096 / 50e9 * 1e3;
    const auto sent = model.costs(stage{0}, 1);
    CHECK(sent.forward.value() == doctest::Approx(costs.forward.value() + 2 * each_way));
    CHECK(sent.backward_input.value() == doctest::Approx(costs.backward_input.value() + 2 * each_way));
    CHECK(sent.backward_weight == costs.backward_weight);
}

TEST_CASE("DeepSeek-V3: three dense layers first, latent attention") {
    const auto model = counted(shapes::deepseek_v3);
    // 61 layers on 16 stages: four each, three on the last three
    const auto first = model.costs(stage{0}, 16), second = model.costs(stage{1}, 16), last = model.costs(stage{15}, 16);
    const double tokens = 4096;
    const double dense = 3.0 * 7168 * 18432, expert = 3.0 * 7168 * 2048;
    const double more = 3 * 2 * tokens * (9 * expert + 7168.0 * 256 - dense) * 1e-9;
    CHECK(second.backward_weight.value() - first.backward_weight.value() == doctest::Approx(more));
    CHECK(last.backward_weight.value() ==
          doctest::Approx(0.75 * second.backward_weight.value() + 2 * tokens * 129280 * 7168 * 1e-9));

    const auto& l = model.layer;
    CHECK(l.attention_parameters() / 1e6 == doctest::Approx(187.1).epsilon(0.001));
    CHECK(l.projections_stashed() == 128 * (192 + 192 + 128) + 1536 + 512 + 64);
    CHECK(l.attention_work(4096) == 2.0 * 4096 * 128 * (192 + 128));
}

TEST_CASE("what can be computed again") {
    auto model = counted(shapes::qwen3_32b);
    CHECK(model.storage(stage{0}, 8).size() == 7); // keep, and three parts, ahead and inside
    model.host_link_rate = 20.0;
    const auto options = model.storage(stage{7}, 8);
    REQUIRE(options.size() == 21);
    CHECK(options[0].name == "keep");
    const auto costs = model.costs(stage{7}, 8);
    const auto named = [&](const char* name) {
        for (const auto& option : options)
            if (option.name == name) return option;
        FAIL("no option ", name);
        return options[0];
    };
    const double per_element = 8 * 2.0 * 4096 * 1e-9;
    CHECK((costs.activation - named("mlp").held).value() == doctest::Approx(per_element * 2 * 25600));
    CHECK(named("mlp").backward_extra.value() == doctest::Approx(8 * 4096 * 4.0 * 5120 * 25600 * 1e-9));
    CHECK((costs.activation - named("attention").held).value() == doctest::Approx(per_element * (8192 + 2 * 1024)));
    CHECK(named("attention-ahead").recompute.value() == doctest::Approx(8 * 4096 * 2.0 * 5120 * (8192 + 2048) * 1e-9));
    // the layers' inputs, and that of the output layer
    CHECK(named("full").held.value() == doctest::Approx(per_element * 5120 * 9.0 / 8.0));
    // all of the stage but its output layer
    CHECK(named("full-ahead").recompute.value() ==
          doctest::Approx(costs.forward.value() - 2.0 * 4096 * 151936 * 5120 * 1e-9));
    CHECK(named("full+offload-half").transfer_size.value() == doctest::Approx(0.5 * named("full").held.value()));
}

TEST_CASE("slices: keys and values beside the stash, and the share of attention") {
    auto model = counted(shapes::llama3_8b);
    model.layers = 2;
    const double tokens = 8192;
    const auto whole = model.costs(stage{0}, 2);
    CHECK(whole.kv == optpipe::memory_size{});
    model.is_sliced = true;
    const auto sliced = model.costs(stage{0}, 2);
    const double kv = 8 * 256; // 8 heads of keys and values, 128 wide each
    CHECK(sliced.kv.value() == doctest::Approx(2 * tokens * kv * 1e-9));
    CHECK((whole.activation - sliced.activation).value() == doctest::Approx(sliced.kv.value()));
    CHECK(sliced.weight_stash == whole.weight_stash);
    CHECK(sliced.forward == whole.forward);
    const auto options = model.storage(stage{0}, 2);
    REQUIRE(options.size() == 7);
    CHECK(options[3].name == "attention"); // queries alone: keys and values stay
    CHECK((sliced.activation - options[3].held).value() == doctest::Approx(2 * tokens * 4096 * 1e-9));
    CHECK(options[3].backward_extra.value() == doctest::Approx(tokens * 2 * 4096 * 4096 * 1e-9));
    CHECK(options[5].held.value() == doctest::Approx(2 * tokens * 4096 * 1e-9)); // full
    CHECK(options[6].recompute.value() == doctest::Approx(sliced.forward.value() - tokens * 2 * 4096 * kv * 1e-9));

    // 4 T per token for each of 32 heads of 128, beside two FLOP for each parameter
    const double attention = 2 * tokens * 32 * 256;
    const double others = 2 * (2.0 * 4096 * 4096 + 4096 * kv + 3.0 * 4096 * 14336);
    CHECK(model.attention_share(stage{0}, 2) == doctest::Approx(attention / (attention + others)));
    const double output = 2.0 * 128256 * 4096;
    CHECK(model.attention_shares(2)[stage{1}] == doctest::Approx(attention / (attention + others + output)));

    auto latent = counted(shapes::deepseek_v3);
    latent.is_sliced = true;
    const auto costs = latent.costs(stage{0}, 61); // a dense layer
    CHECK(costs.kv.value() == doctest::Approx(2 * 4096.0 * 128 * (192 + 128) * 1e-9));
    // keys and values needn't be expanded again
    const auto again = latent.storage(stage{0}, 61)[3].backward_extra.value();
    CHECK(again == doctest::Approx(2 * 4096.0 * (7168.0 * (1536 + 512 + 64) + 1536.0 * 128 * 192) * 1e-9));
}

TEST_CASE("a vocabulary split over ranks: the stages have neither end of the model") {
    auto model = counted(shapes::llama2_7b);
    const double matrix = 32000.0 * 4096;
    const auto whole = model.costs(stage{3}, 4);
    const auto first = model.static_memory(stage{0}, 4);
    model.vocabulary_shards = 4;
    CHECK(model.costs(stage{3}, 4) == model.costs(stage{1}, 4));
    CHECK((whole.forward - model.costs(stage{3}, 4).forward).value() == doctest::Approx(4096 * 2 * matrix * 1e-9));
    const auto shard = model.vocabulary_shard();
    CHECK(shard.forward.value() == doctest::Approx(4096 * 2 * matrix / 4 * 1e-9)); // the pass S
    CHECK(shard.backward() == 2.0 * shard.forward);                                // the pass T
    CHECK(shard.activation.value() == doctest::Approx(2 * 4096.0 * (4096 + 8000) * 1e-9));
    CHECK(shard.weight_stash == shard.activation);
    CHECK(shard.kv == optpipe::memory_size{});
    CHECK((first - model.static_memory(stage{0}, 4)).value() == doctest::Approx(18e-9 * matrix));
    CHECK(model.static_memory(stage{0}, 4) == model.static_memory(stage{3}, 4));
    CHECK(model.static_memory_of_shard().value() == doctest::Approx(18e-9 * 2 * matrix / 4));
}

TEST_CASE("every shape gives a problem that can be planned") {
    for (auto model : {shapes::llama2_7b, shapes::llama2_13b, shapes::llama3_8b, shapes::llama3_70b, shapes::qwen3_32b,
                       shapes::qwen3_235b_a22b, shapes::mixtral_8x7b, shapes::deepseek_v3}) {
        model.compute_rate = 400.0;
        model.host_link_rate = 20.0;
        model.expert_link_rate = 40.0;
        CAPTURE(model.layers);
        const auto whole = model.costs(stage{0}, 1).activation;
        const auto all_options =
            optpipe::storage::keep | optpipe::storage::offload | optpipe::storage::selective | optpipe::storage::full;
        const auto p = optpipe::to_problem(optpipe::make_problem(optpipe::graph<8, 16>{}, model, whole, all_options));
        CHECK(p.storage[stage{0}].size() == 21);
        CHECK(validate(p).empty());
    }
}
