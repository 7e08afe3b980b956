#pragma once

#include "optpipe/pipeline/decoder.hpp"

#include <array>
#include <string_view>

namespace optpipe::model_shapes {

// The shapes of published models: layers, widths, heads and vocabulary. The shapes are from the cited papers, and from
// the config.json files published with the weights. The user adds rates and parallelism:
//
//     auto model = model_shapes::mixtral_8x7b;
//     model.expert_parallel = 8;
//     model.compute_rate = 440;

/// A layer with grouped-query attention and one feed-forward part.
[[nodiscard]] constexpr decoder_layer dense_layer(std::size_t hidden, std::size_t heads, std::size_t key_value_heads,
                                                  std::size_t head_width, std::size_t feed_forward) {
    return {.hidden = hidden,
            .heads = heads,
            .key_value_heads = key_value_heads,
            .key_width = head_width,
            .value_width = head_width,
            .feed_forward = feed_forward};
}
/// The layer `dense` with experts in place of its feed-forward part. Each expert has the width of the feed-forward part
/// of `dense`.
[[nodiscard]] constexpr decoder_layer with_experts(decoder_layer dense, std::size_t experts, std::size_t active,
                                                   std::size_t shared = 0) {
    dense.experts = experts;
    dense.active_experts = active;
    dense.shared_experts = shared;
    return dense;
}

/// Llama 2 (arXiv 2307.09288), with 6.7 and 13.0 billion parameters.
inline constexpr decoder llama2_7b{
    .layers = 32, .layer = dense_layer(4096, 32, 32, 128, 11008), .vocabulary = 32000, .sequence = 4096};
inline constexpr decoder llama2_13b{
    .layers = 40, .layer = dense_layer(5120, 40, 40, 128, 13824), .vocabulary = 32000, .sequence = 4096};

/// Llama 3 (arXiv 2407.21783, table 3): 8.0 and 70.6 billion parameters.
inline constexpr decoder llama3_8b{
    .layers = 32, .layer = dense_layer(4096, 32, 8, 128, 14336), .vocabulary = 128256, .sequence = 8192};
inline constexpr decoder llama3_70b{
    .layers = 80, .layer = dense_layer(8192, 64, 8, 128, 28672), .vocabulary = 128256, .sequence = 8192};

/// Qwen3 (arXiv 2505.09388, tables 1 and 2). `qwen3_32b` has 32.8 billion parameters. `qwen3_235b_a22b` has 235 billion
/// parameters, of which 22 billion are active. The heads together are wider than the hidden size.
inline constexpr decoder qwen3_32b{
    .layers = 64, .layer = dense_layer(5120, 64, 8, 128, 25600), .vocabulary = 151936, .sequence = 4096};
inline constexpr decoder qwen3_235b_a22b{.layers = 94,
                                         .layer = with_experts(dense_layer(4096, 64, 4, 128, 1536), 128, 8),
                                         .vocabulary = 151936,
                                         .sequence = 4096};

/// Mixtral 8x7B (arXiv 2401.04088, table 1): 46.7 billion parameters, of which 12.9 billion are active.
inline constexpr decoder mixtral_8x7b{.layers = 32,
                                      .layer = with_experts(dense_layer(4096, 32, 8, 128, 14336), 8, 2),
                                      .vocabulary = 32000,
                                      .sequence = 4096};

/// A layer with the attention of DeepSeek-V3 and one feed-forward part.
[[nodiscard]] constexpr decoder_layer deepseek_v3_layer(std::size_t feed_forward) {
    return {.hidden = 7168,
            .heads = 128,
            .key_value_heads = 128,
            .key_width = 192, // 128, plus the width of the rotary part
            .value_width = 128,
            .query_rank = 1536,
            .key_value_rank = 512,
            .rotary_width = 64,
            .feed_forward = feed_forward};
}
/// DeepSeek-V3 (arXiv 2412.19437, section 4.2): 671 billion parameters, of which 37 billion are active. The layer that
/// predicts a second token is left out.
inline constexpr decoder deepseek_v3{.layers = 61,
                                     .layer = with_experts(deepseek_v3_layer(2048), 256, 8, 1),
                                     .first_layers = 3,
                                     .first_layer = deepseek_v3_layer(18432),
                                     .vocabulary = 129280,
                                     .sequence = 4096};

/// A shape, and its name for `optpipe new --model`.
struct named_shape {
    std::string_view name;
    decoder model;
};
inline constexpr std::array all{
    named_shape{"llama2-7b", llama2_7b},       named_shape{"llama2-13b", llama2_13b},
    named_shape{"llama3-8b", llama3_8b},       named_shape{"llama3-70b", llama3_70b},
    named_shape{"qwen3-32b", qwen3_32b},       named_shape{"qwen3-235b-a22b", qwen3_235b_a22b},
    named_shape{"mixtral-8x7b", mixtral_8x7b}, named_shape{"deepseek-v3", deepseek_v3}};

} // namespace optpipe::model_shapes
