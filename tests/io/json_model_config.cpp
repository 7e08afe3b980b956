#include <doctest/doctest.h>

#if !defined(OPTPIPE_HAS_JSON)
TEST_CASE("not built: nlohmann-json is missing") {}
#else

#include "optpipe/core/error.hpp"
#include "optpipe/io/json_model_config.hpp"
#include "optpipe/pipeline/model_shapes.hpp"

#include <nlohmann/json.hpp>

#include <string>

namespace {

using nlohmann::json;
using optpipe::decoder;
using optpipe::parse_model_config;
namespace shapes = optpipe::model_shapes;

/// Fields as published by the authors.
json llama3_8b() {
    return {{"architectures", {"LlamaForCausalLM"}},
            {"hidden_act", "silu"},
            {"hidden_size", 4096},
            {"intermediate_size", 14336},
            {"model_type", "llama"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 32},
            {"num_key_value_heads", 8},
            {"rms_norm_eps", 1e-05},
            {"rope_scaling", nullptr},
            {"rope_theta", 500000.0},
            {"tie_word_embeddings", false},
            {"torch_dtype", "bfloat16"},
            {"vocab_size", 128256},
            {"max_position_embeddings", 8192}};
}
json llama2_7b() {
    auto config = llama3_8b();
    config.erase("num_key_value_heads"); // older files leave it out
    config.update({{"intermediate_size", 11008}, {"vocab_size", 32000}, {"max_position_embeddings", 4096}});
    return config;
}
json llama2_13b() {
    auto config = llama2_7b();
    config.update({{"hidden_size", 5120},
                   {"intermediate_size", 13824},
                   {"num_attention_heads", 40},
                   {"num_hidden_layers", 40},
                   {"num_key_value_heads", 40}});
    return config;
}
json llama3_70b() {
    auto config = llama3_8b();
    config.update(
        {{"hidden_size", 8192}, {"intermediate_size", 28672}, {"num_attention_heads", 64}, {"num_hidden_layers", 80}});
    return config;
}
json qwen3_32b() {
    return {{"architectures", {"Qwen3ForCausalLM"}},
            {"attention_bias", false},
            {"head_dim", 128},
            {"hidden_size", 5120},
            {"intermediate_size", 25600},
            {"max_position_embeddings", 40960},
            {"max_window_layers", 64},
            {"num_attention_heads", 64},
            {"num_hidden_layers", 64},
            {"num_key_value_heads", 8},
            {"rope_theta", 1000000},
            {"sliding_window", nullptr},
            {"tie_word_embeddings", false},
            {"use_sliding_window", false},
            {"vocab_size", 151936}};
}
json mixtral() {
    auto config = llama3_8b();
    config.update({{"vocab_size", 32000},
                   {"num_local_experts", 8},
                   {"num_experts_per_tok", 2},
                   {"router_aux_loss_coef", 0.02},
                   {"output_router_logits", false}});
    return config;
}
json qwen3_moe() {
    return {{"decoder_sparse_step", 1},
            {"head_dim", 128},
            {"hidden_size", 4096},
            {"intermediate_size", 12288},
            {"mlp_only_layers", json::array()},
            {"moe_intermediate_size", 1536},
            {"norm_topk_prob", true},
            {"num_attention_heads", 64},
            {"num_experts", 128},
            {"num_experts_per_tok", 8},
            {"num_hidden_layers", 94},
            {"num_key_value_heads", 4},
            {"vocab_size", 151936}};
}
json deepseek_v3() {
    return {{"first_k_dense_replace", 3},
            {"hidden_size", 7168},
            {"intermediate_size", 18432},
            {"kv_lora_rank", 512},
            {"moe_intermediate_size", 2048},
            {"moe_layer_freq", 1},
            {"n_routed_experts", 256},
            {"n_shared_experts", 1},
            {"num_attention_heads", 128},
            {"num_experts_per_tok", 8},
            {"num_hidden_layers", 61},
            {"num_key_value_heads", 128},
            {"num_nextn_predict_layers", 1},
            {"q_lora_rank", 1536},
            {"qk_nope_head_dim", 128},
            {"qk_rope_head_dim", 64},
            {"v_head_dim", 128},
            {"vocab_size", 129280}};
}

void check_same_costs(decoder read, decoder known) {
    constexpr std::size_t stages = 4;
    read.sequence = known.sequence;
    read.compute_rate = known.compute_rate = 400.0;
    read.host_link_rate = known.host_link_rate = 20.0;
    CHECK(read.parameters() == known.parameters());
    for (std::size_t i = 0; i < stages; ++i) {
        const optpipe::stage s{i};
        CHECK(read.costs(s, stages) == known.costs(s, stages));
        CHECK(read.storage(s, stages) == known.storage(s, stages));
        CHECK(read.static_memory(s, stages) == known.static_memory(s, stages));
    }
}

std::string refusal(const json& config) {
    try {
        static_cast<void>(parse_model_config(config.dump(), "config.json"));
    } catch (const optpipe::input_error& e) {
        return e.what();
    }
    return "";
}

} // namespace

TEST_CASE("published config files give the shapes that are known") {
    check_same_costs(parse_model_config(llama3_8b().dump(), "c").model, shapes::llama3_8b);
    check_same_costs(parse_model_config(llama2_7b().dump(), "c").model, shapes::llama2_7b);
    check_same_costs(parse_model_config(llama2_13b().dump(), "c").model, shapes::llama2_13b);
    check_same_costs(parse_model_config(llama3_70b().dump(), "c").model, shapes::llama3_70b);
    check_same_costs(parse_model_config(qwen3_32b().dump(), "c").model, shapes::qwen3_32b);
    check_same_costs(parse_model_config(mixtral().dump(), "c").model, shapes::mixtral_8x7b);
    check_same_costs(parse_model_config(qwen3_moe().dump(), "c").model, shapes::qwen3_235b_a22b);
    check_same_costs(parse_model_config(deepseek_v3().dump(), "c").model, shapes::deepseek_v3);
    // The language model of a multimodal model.
    const json multimodal{{"model_type", "some_vl"}, {"text_config", llama3_8b()}, {"vision_config", json::object()}};
    check_same_costs(parse_model_config(multimodal.dump(), "c").model, shapes::llama3_8b);
}

TEST_CASE("fields that the reading doesn't know are named") {
    CHECK(parse_model_config(llama3_8b().dump(), "c").unknown.empty());
    CHECK(parse_model_config(qwen3_32b().dump(), "c").unknown.empty()); // null says nothing
    CHECK(parse_model_config(deepseek_v3().dump(), "c").unknown ==
          std::vector<std::string>{"num_nextn_predict_layers"});
    auto config = llama3_8b();
    config.update({{"mamba_d_state", 16}, {"attn_layer_period", 8}});
    CHECK(parse_model_config(config.dump(), "c").unknown ==
          std::vector<std::string>{"attn_layer_period", "mamba_d_state"});
}

TEST_CASE("what is missing or not understood is refused with its field") {
    auto config = llama3_8b();
    config.erase("hidden_size");
    config["vocab_size"] = "many";
    CHECK(refusal(config).find("hidden_size: is missing") != std::string::npos);
    CHECK(refusal(config).find("vocab_size: must be a whole number, is \"many\"") != std::string::npos);
    config = qwen3_moe();
    config["mlp_only_layers"] = {0, 1};
    CHECK(refusal(config).find("mlp_only_layers: layers that alternate aren't understood") != std::string::npos);
    config = qwen3_moe();
    config["num_experts_per_tok"] = 129;
    CHECK(refusal(config).find("num_experts_per_tok: must be at most the number of experts, 128") != std::string::npos);
    config = deepseek_v3();
    config["first_k_dense_replace"] = 62;
    CHECK(refusal(config).find("first_k_dense_replace: must be at most num_hidden_layers, 61") != std::string::npos);
    CHECK(refusal(json::array()).find("must be an object") != std::string::npos);
}

#endif
