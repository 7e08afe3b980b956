#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/pipeline/decoder.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// A decoder's shape from its `config.json`, and the names of unknown fields.
struct model_config {
    decoder model{};
    /// Names of fields that the reader doesn't know, in alphabetical order. Excludes fields that don't change costs
    /// (dropout, token numbers, …).
    std::vector<std::string> unknown{};
};

/// Reads a model's `config.json` in the format of Hugging Face's transformers. Supports dense layers, grouped-query
/// attention (Llama, Qwen), latent attention (DeepSeek-V2 and V3) and mixtures of experts (Mixtral, Qwen, DeepSeek). If
/// the file describes a multimodal model, the language model in `text_config` is read. Sequence length, rates and
/// parallelism have the defaults of `decoder`.
///
/// Throws `input_error` with all fields that are missing, mistyped or unsupported. The only supported mix of dense and
/// routed layers is dense layers followed by routed layers. All experts must have the same width.
[[nodiscard]] model_config parse_model_config(std::string_view text, const std::string& source_name);

/// Reads a file with `parse_model_config`. Throws `file_error` if the file can't be read or is larger than 1 MiB.
[[nodiscard]] model_config read_model_config(const std::string& path);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/json_fields.hpp"
#include "optpipe/io/json_tree.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>

namespace optpipe {
namespace detail {

/// Reads the fields of a config.json. Some fields have different names in different families of models.
class config_reader {
public:
    config_reader(const json& object, violation_list& found)
        : at_{object, "", found}, object_{&object}, found_{&found} {}

    [[nodiscard]] decoder model() const {
        decoder m;
        m.layers = needed({"num_hidden_layers"});
        m.vocabulary = needed({"vocab_size"});
        m.layer = layer();
        if (!m.layer.is_routed()) return m;
        refuse_other_patterns();
        m.first_layers = value_or({"first_k_dense_replace"}, 0);
        if (m.first_layers > 0) m.first_layer = with_width(m.layer, needed({"intermediate_size"}));
        if (m.first_layers > m.layers)
            found_->add("first_k_dense_replace", "must be at most num_hidden_layers, " + std::to_string(m.layers));
        return m;
    }

    [[nodiscard]] std::vector<std::string> unknown() const {
        std::vector<std::string> names;
        for (auto each = object_->begin(); each != object_->end(); ++each) {
            const auto& name = each.key();
            const auto is_it = [&](std::string_view other) { return name == other; };
            const bool is_known = std::any_of(used.begin(), used.end(), is_it) ||
                                  std::any_of(without_cost.begin(), without_cost.end(), is_it);
            if (!is_known && !each->is_null() && !name.starts_with("_")) names.push_back(name);
        }
        return names;
    }

private:
    static constexpr std::size_t most = 1U << 24U;
    static constexpr std::array<std::string_view, 27> used{"num_hidden_layers",     "vocab_size",
                                                           "hidden_size",           "head_dim",
                                                           "num_attention_heads",   "num_key_value_heads",
                                                           "intermediate_size",     "q_lora_rank",
                                                           "kv_lora_rank",          "qk_nope_head_dim",
                                                           "qk_rope_head_dim",      "v_head_dim",
                                                           "num_experts",           "num_local_experts",
                                                           "n_routed_experts",      "n_shared_experts",
                                                           "num_experts_per_tok",   "moe_intermediate_size",
                                                           "moe_layer_freq",        "decoder_sparse_step",
                                                           "mlp_only_layers",       "text_config",
                                                           "first_k_dense_replace", "shared_expert_intermediate_size",
                                                           "num_experts_per_token", "moe_top_k",
                                                           "num_shared_experts"};
    static constexpr std::array<std::string_view, 46> without_cost{"architectures",
                                                                   "attention_bias",
                                                                   "attention_dropout",
                                                                   "attn_dropout",
                                                                   "auto_map",
                                                                   "aux_loss_alpha",
                                                                   "bos_token_id",
                                                                   "eos_token_id",
                                                                   "ep_size",
                                                                   "hidden_act",
                                                                   "hidden_dropout",
                                                                   "initializer_range",
                                                                   "max_position_embeddings",
                                                                   "max_window_layers",
                                                                   "mlp_bias",
                                                                   "model_type",
                                                                   "n_group",
                                                                   "norm_topk_prob",
                                                                   "output_router_logits",
                                                                   "pad_token_id",
                                                                   "pretraining_tp",
                                                                   "qk_layernorm",
                                                                   "quantization_config",
                                                                   "rms_norm_eps",
                                                                   "rope_interleaved",
                                                                   "rope_parameters",
                                                                   "rope_scaling",
                                                                   "rope_theta",
                                                                   "routed_scaling_factor",
                                                                   "router_aux_loss_coef",
                                                                   "router_jitter_noise",
                                                                   "scoring_func",
                                                                   "seq_aux",
                                                                   "tie_word_embeddings",
                                                                   "topk_group",
                                                                   "topk_method",
                                                                   "torch_dtype",
                                                                   "dtype",
                                                                   "transformers_version",
                                                                   "use_cache",
                                                                   "use_qk_norm",
                                                                   "use_sliding_window",
                                                                   "vision_config",
                                                                   "image_token_id",
                                                                   "video_token_id",
                                                                   "layer_types"};

    [[nodiscard]] decoder_layer layer() const {
        decoder_layer l;
        l.hidden = needed({"hidden_size"});
        l.heads = needed({"num_attention_heads"});
        l.key_value_heads = value_or({"num_key_value_heads"}, l.heads);
        l.key_value_rank = value_or({"kv_lora_rank"}, 0);
        if (l.is_latent()) {
            l.query_rank = value_or({"q_lora_rank"}, 0);
            l.rotary_width = needed({"qk_rope_head_dim"});
            l.key_width = needed({"qk_nope_head_dim"}) + l.rotary_width;
            l.value_width = needed({"v_head_dim"});
            l.key_value_heads = l.heads;
        } else {
            l.key_width = value_or({"head_dim"}, l.heads > 0 ? l.hidden / l.heads : 0);
            l.value_width = l.key_width;
        }
        l.experts = value_or({"num_experts", "num_local_experts", "n_routed_experts"}, 1);
        if (!l.is_routed()) return with_width(l, needed({"intermediate_size"}));
        l.active_experts = needed({"num_experts_per_tok", "num_experts_per_token", "moe_top_k"});
        l.feed_forward = needed({"moe_intermediate_size", "intermediate_size"});
        l.shared_experts = shared_experts(l);
        if (l.active_experts > l.experts)
            found_->add("num_experts_per_tok", "must be at most the number of experts, " + std::to_string(l.experts));
        return l;
    }

    /// The number of shared experts. The file states the number or the total width of shared experts.
    [[nodiscard]] std::size_t shared_experts(const decoder_layer& l) const {
        const auto width = value_or({"shared_expert_intermediate_size"}, 0);
        if (width > 0 && l.feed_forward > 0 && width % l.feed_forward != 0)
            found_->add("shared_expert_intermediate_size",
                        "must be a multiple of moe_intermediate_size, " + std::to_string(l.feed_forward));
        return value_or({"n_shared_experts", "num_shared_experts"}, l.feed_forward > 0 ? width / l.feed_forward : 0);
    }

    static decoder_layer with_width(decoder_layer l, std::size_t feed_forward) {
        l.experts = l.active_experts = 1;
        l.shared_experts = 0;
        l.feed_forward = feed_forward;
        return l;
    }

    void refuse_other_patterns() const {
        for (const auto* every : {"moe_layer_freq", "decoder_sparse_step"})
            if (value_or({every}, 1) != 1) found_->add(every, "other than 1: layers that alternate aren't understood");
        const auto* dense = at_.find("mlp_only_layers");
        if (dense && !dense->empty()) found_->add("mlp_only_layers", "layers that alternate aren't understood");
    }

    /// The value of the first field among `names` that exists and isn't null.
    [[nodiscard]] std::optional<std::size_t> value(std::initializer_list<const char*> names) const {
        for (const auto* name : names)
            if (const auto* there = at_.find(name); there && !there->is_null())
                return read_count(*there, at_.place(name), most, *found_).value_or(0);
        return std::nullopt;
    }
    [[nodiscard]] std::size_t value_or(std::initializer_list<const char*> names, std::size_t other) const {
        return value(names).value_or(other);
    }
    [[nodiscard]] std::size_t needed(std::initializer_list<const char*> names) const {
        const auto there = value(names);
        if (!there) found_->add(*names.begin(), "is missing");
        if (there && *there == 0) found_->add(*names.begin(), "must be at least 1");
        return std::max<std::size_t>(1, there.value_or(1));
    }

    fields at_;
    const json* object_;
    violation_list* found_;
};

} // namespace detail

OPTPIPE_INLINE model_config parse_model_config(std::string_view text, const std::string& source_name) {
    const auto tree = detail::parse_json(text, source_name);
    detail::violation_list found;
    if (!tree.is_object()) throw input_error{source_name, {{"", "must be an object"}}};
    const auto nested = tree.find("text_config");
    const auto& object = nested != tree.end() && nested->is_object() ? *nested : tree;
    const detail::config_reader config{object, found};
    model_config result{config.model(), config.unknown()};
    if (!found.empty()) throw input_error{source_name, found.found()};
    return result;
}

OPTPIPE_INLINE model_config read_model_config(const std::string& path) {
    constexpr std::size_t most_bytes = std::size_t{1} << 20U;
    return parse_model_config(read_file(path, most_bytes), path);
}

} // namespace optpipe
#endif
