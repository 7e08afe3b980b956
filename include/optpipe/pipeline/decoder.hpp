#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/pipeline/storage_policy.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/pipeline/usual_storage.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>

namespace optpipe {

/// The shape of one layer of a decoder-only transformer. The attention is grouped-query or latent. The feed-forward
/// part is gated (SwiGLU), and dense or made of experts. Widths are in elements. Parameters are counted for the entire
/// layer. Work and stashed elements are counted per token.
struct decoder_layer {
    std::size_t hidden = 0;
    std::size_t heads = 0;
    /// Number of heads of attention keys and values; equal to `heads` without grouped queries.
    std::size_t key_value_heads = 0;
    /// Width of one head's query and key.
    std::size_t key_width = 0;
    std::size_t value_width = 0;
    /// Widths of latent attention (DeepSeek-V2, section 2.1); all are 0 if attention isn't latent. Queries are
    /// compressed to width `query_rank`, and keys and values to width `key_value_rank`. `rotary_width` is the width of
    /// the part of a key that encodes the position. All heads share this part.
    std::size_t query_rank = 0;
    std::size_t key_value_rank = 0;
    std::size_t rotary_width = 0;
    /// Inner width of one expert, or of the feed-forward part of a dense layer.
    std::size_t feed_forward = 0;
    /// Number of experts that tokens are routed to; 1 for a dense layer.
    std::size_t experts = 1;
    std::size_t active_experts = 1;
    /// Number of additional experts that process every token.
    std::size_t shared_experts = 0;

    [[nodiscard]] constexpr bool is_latent() const { return key_value_rank > 0; }
    [[nodiscard]] constexpr bool is_routed() const { return experts > 1; }

    [[nodiscard]] constexpr double attention_parameters() const {
        return projection_parameters() + real(heads) * real(value_width) * real(hidden);
    }
    /// Parameters of the matrices that compute queries, keys and values.
    [[nodiscard]] constexpr double projection_parameters() const {
        if (!is_latent()) return real(hidden) * projected();
        const double compress = real(hidden) * compressed();
        const double expand = real(query_rank) * real(heads) * real(key_width) +
                              real(key_value_rank) * real(heads) * real(key_width - rotary_width + value_width);
        return compress + expand;
    }
    /// Parameters of one expert: three matrices (gate, up and down).
    [[nodiscard]] constexpr double expert_parameters() const { return 3.0 * real(hidden) * real(feed_forward); }
    /// Parameters of all experts that tokens are routed to.
    [[nodiscard]] constexpr double routed_parameters() const {
        return is_routed() ? real(experts) * expert_parameters() : 0.0;
    }
    /// Parameters of the layer, without norms and biases.
    [[nodiscard]] constexpr double parameters() const { return shared_parameters() + routed_parameters(); }
    /// Parameters that one token uses.
    [[nodiscard]] constexpr double active_parameters() const {
        return shared_parameters() + (is_routed() ? real(active_experts) * expert_parameters() : 0.0);
    }
    /// FLOP per token of the forward through the gate and up matrices: two per parameter.
    [[nodiscard]] constexpr double gate_and_up_work() const {
        return 2.0 * 2.0 / 3.0 * experts_met() * expert_parameters();
    }
    /// FLOP per token of the forward through the matrices that compute queries, keys and values.
    [[nodiscard]] constexpr double projection_work() const { return 2.0 * projection_parameters(); }
    /// FLOP per token of the forward through attention itself, over a sequence of `sequence` tokens. As in the papers'
    /// formulas, the causal mask isn't assumed to save work.
    [[nodiscard]] constexpr double attention_work(std::size_t sequence) const {
        return 2.0 * real(sequence) * real(heads) * real(key_width + value_width);
    }
    /// FLOP per token of the forward.
    [[nodiscard]] constexpr double forward_work(std::size_t sequence) const {
        return 2.0 * active_parameters() + attention_work(sequence);
    }

    /// Elements per token that the backward needs. Norms, activation functions and softmax are recomputed. Counts the
    /// layer's input, queries, keys, values, the output of attention, the input of the feed-forward part, and the
    /// outputs of the gate and up matrices. Each active expert has its own copy of the input. The sum is 10 h for a
    /// plain layer without a gate (PipeOffload, section 2).
    [[nodiscard]] constexpr double stashed() const {
        return 2.0 * real(hidden) + projections_stashed() + real(heads) * real(value_width) + copies_to_experts() +
               gate_and_up();
    }
    /// Elements per token of queries, keys, values and, for latent attention, their compressed inputs.
    [[nodiscard]] constexpr double projections_stashed() const {
        return projected() + (is_latent() ? compressed() : 0.0);
    }
    /// Elements per token of attention keys and values in uncompressed form.
    [[nodiscard]] constexpr double keys_and_values() const {
        return real(key_value_heads) * real(key_width + value_width);
    }
    /// FLOP per token to compute keys and values in F, or to expand their compressed inputs.
    [[nodiscard]] constexpr double key_value_work() const {
        if (!is_latent()) return 2.0 * real(hidden) * keys_and_values();
        return 2.0 * real(key_value_rank) * real(heads) * real(key_width - rotary_width + value_width);
    }
    [[nodiscard]] constexpr double gate_and_up() const { return 2.0 * experts_met() * real(feed_forward); }
    /// Elements per token that are sent to experts. Experts send back the same number of elements.
    [[nodiscard]] constexpr double copies_to_experts() const {
        return is_routed() ? real(active_experts) * real(hidden) : 0.0;
    }

private:
    [[nodiscard]] static constexpr double real(std::size_t count) { return static_cast<double>(count); }
    [[nodiscard]] constexpr double shared_parameters() const {
        const double always = is_routed() ? real(shared_experts) : 1.0;
        const double router = is_routed() ? real(hidden) * real(experts) : 0.0;
        return attention_parameters() + always * expert_parameters() + router;
    }
    [[nodiscard]] constexpr double experts_met() const {
        return is_routed() ? real(active_experts + shared_experts) : 1.0;
    }
    /// Elements per token of queries, keys and values in uncompressed form.
    [[nodiscard]] constexpr double projected() const { return real(heads) * real(key_width) + keys_and_values(); }
    [[nodiscard]] constexpr double compressed() const { return real(query_rank + key_value_rank + rotary_width); }
};

/// Costs of training a decoder-only transformer, computed from the shapes of its layers. Durations are in milliseconds,
/// and memory sizes in gigabytes (10^9 bytes). Computed costs are a first guess until there is a measured profile.
/// `model_shapes.hpp` has the shapes of published models. `transformer` computes costs by the formulas of the papers. F
/// takes 2 FLOP per parameter and token, plus the work of attention. I takes as many FLOP as F, but twice as many for
/// attention. W takes 2 FLOP per parameter and token. Embeddings take no time.
///
/// An aggregate for designated initializers. `compute_rate` and the shape must be given.
struct decoder {
    static constexpr std::string_view time_unit = "ms";
    static constexpr std::string_view memory_unit = "GB";

    std::size_t layers = 0;
    decoder_layer layer{};
    /// Number of layers at the start of the model that have the shape `first_layer`.
    std::size_t first_layers = 0;
    decoder_layer first_layer{};
    /// Size of the vocabulary. The first stage has the embedding, and the last stage has the output layer. If 0, the
    /// model has no embedding and no output layer.
    std::size_t vocabulary = 0;
    /// Number of ranks that share the vocabulary of the embedding and the output layer (Vocabulary Parallelism, Yeung
    /// et al., 2024). If the number is above 1, no stage of the chain includes the embedding or the output layer.
    /// `vocabulary_shard` gives the costs of one rank's shard.
    std::size_t vocabulary_shards = 1;

    std::size_t sequence = 4096;
    /// Whether sequences are cut into slices. With slices, attention keys and values count in `kv`, because later
    /// slices use them. `slices` computes the factors of slices from `attention_share`.
    bool is_sliced = false;
    std::size_t microbatch_size = 1;
    /// Number of ranks that share every layer. All work, all memory, and the messages between ranks are divided by this
    /// number.
    std::size_t tensor_parallel = 1;
    /// Number of data-parallel groups of ranks among which the experts are distributed. The parameters of experts are
    /// divided by this number. Tokens are assumed to spread evenly over all experts.
    std::size_t expert_parallel = 1;
    /// Number of ranks that share the optimizer state (ZeRO, stage 1).
    std::size_t optimizer_shards = 1;
    double bytes_per_element = 2.0;
    /// Bytes per parameter for weight and gradient (`bytes_per_parameter`), and for the optimizer state
    /// (`optimizer_bytes_per_parameter`). The defaults are for Adam with mixed precision.
    double bytes_per_parameter = 6.0;
    double optimizer_bytes_per_parameter = 12.0;
    /// TFLOP/s that a rank reaches; must be above 0.
    double compute_rate = 0.0;
    /// GB/s between a rank and its host. If the rate is 0, no stage can be offloaded.
    double host_link_rate = 0.0;
    /// GB/s between two ranks of the pipeline.
    double rank_link_rate = std::numeric_limits<double>::infinity();
    /// GB/s between ranks that share experts. Sending tokens to experts and back adds to the time of F and I.
    double expert_link_rate = std::numeric_limits<double>::infinity();

    /// Parameters of the whole model, embedding and output layer included.
    [[nodiscard]] constexpr double parameters() const {
        return each_layer(&decoder_layer::parameters) + 2.0 * embedding_parameters();
    }
    /// Parameters that one token uses, embedding and output layer included.
    [[nodiscard]] constexpr double active_parameters() const {
        return each_layer(&decoder_layer::active_parameters) + 2.0 * embedding_parameters();
    }

    [[nodiscard]] constexpr stage_costs costs(stage s, std::size_t stages) const {
        const auto here = layers_of(s, stages);
        const bool has_output = vocabulary > 0 && !is_split() && is_last(s, stages);
        const double output = has_output ? 2.0 * embedding_parameters() : 0.0;
        const double weights = here.sum([](const decoder_layer& l) { return 2.0 * l.active_parameters(); }) + output;
        const double attention = here.sum([&](const decoder_layer& l) { return l.attention_work(sequence); });
        const auto dispatch = here.sum([](const decoder_layer& l) { return 2.0 * l.copies_to_experts(); }) *
                              element_time(expert_link_rate);

        stage_costs result;
        result.forward = compute_time(weights + attention) + dispatch;
        result.backward_input = compute_time(weights + 2.0 * attention) + dispatch;
        result.backward_weight = compute_time(weights);
        const auto stash = elements(here.sum([](const decoder_layer& l) { return l.stashed(); }));
        result.kv = elements(here.sum([&](const decoder_layer& l) { return kept_for_slices(l); }));
        result.activation =
            stash - result.kv + (has_output ? elements(static_cast<double>(layer.hidden)) : memory_size{});
        result.weight_stash = std::min(weight_share * stash, result.activation);
        result.transfer = transfers_over(result.activation, host_link_rate);
        return result;
    }
    /// Attention's share of the duration of a stage's F, from 0 to 1.
    [[nodiscard]] constexpr double attention_share(stage s, std::size_t stages) const {
        const auto here = layers_of(s, stages);
        const auto attention =
            compute_time(here.sum([&](const decoder_layer& l) { return l.attention_work(sequence); }));
        return attention / costs(s, stages).forward;
    }
    /// `attention_share` of every stage, as an argument for `slices`.
    [[nodiscard]] OPTPIPE_CONSTEXPR per_stage<double> attention_shares(std::size_t stages) const {
        per_stage<double> shares(stages);
        for (const stage s : shares.indices())
            shares[s] = attention_share(s, stages);
        return shares;
    }
    /// The costs of one of the `vocabulary_shards` shards of the output layer. F computes the logits of the shard, and
    /// is called pass S in Vocabulary Parallelism. I and W together are pass T, which starts when pass S of all shards
    /// has ended. The stash consists of the layer's input and the softmax; W needs both.
    [[nodiscard]] constexpr stage_costs vocabulary_shard() const {
        const auto time = compute_time(2.0 * embedding_parameters() / static_cast<double>(vocabulary_shards));
        const auto stash = elements(static_cast<double>(layer.hidden) +
                                    static_cast<double>(vocabulary) / static_cast<double>(vocabulary_shards));
        return {time, time, time, stash, stash, transfers_over(stash, host_link_rate)};
    }

    /// The usual ways to store a stash:
    ///
    /// | name | not kept, per layer | recomputed |
    /// | --- | --- | --- |
    /// | `mlp` | gate and up, and the copies of their input for experts | gate and up; tokens go to the experts again |
    /// | `attention` | queries, keys and values | their matrices (latent attention: all of them) |
    /// | `full` | all but the layer's input | the forward |
    ///
    /// Each row gives options that recompute inside or ahead of the backward, with and without transfers
    /// (`usual_storage`). With slices, attention keys and values stay on the device, and aren't recomputed.
    [[nodiscard]] OPTPIPE_CONSTEXPR storage_list<false> storage(stage s, std::size_t stages) const {
        const auto here = layers_of(s, stages);
        usual_storage usual{costs(s, stages), host_link_rate};
        const auto add = [&](std::string_view name, auto&& saved, auto&& work, auto&& sent) {
            usual.add(name, elements(here.sum(saved)),
                      compute_time(here.sum(work)) + here.sum(sent) * element_time(expert_link_rate));
        };
        add(
            "mlp", [](const decoder_layer& l) { return l.gate_and_up() + l.copies_to_experts(); },
            [](const decoder_layer& l) { return l.gate_and_up_work(); },
            [](const decoder_layer& l) { return l.copies_to_experts(); });
        add(
            "attention", [&](const decoder_layer& l) { return l.projections_stashed() - kept_for_slices(l); },
            [&](const decoder_layer& l) { return l.projection_work() - work_kept_for_slices(l); },
            [](const decoder_layer&) { return 0.0; });
        add(
            "full",
            [&](const decoder_layer& l) { return l.stashed() - kept_for_slices(l) - static_cast<double>(l.hidden); },
            [&](const decoder_layer& l) { return l.forward_work(sequence) - work_kept_for_slices(l); },
            [](const decoder_layer& l) { return 2.0 * l.copies_to_experts(); });
        return usual.options();
    }

    /// Device memory of a stage's weights, gradients and optimizer state, not available for activations.
    [[nodiscard]] constexpr memory_size static_memory(stage s, std::size_t stages) const {
        const auto here = layers_of(s, stages);
        const double everywhere =
            here.sum([](const decoder_layer& l) { return l.parameters() - l.routed_parameters(); });
        const double routed = here.sum([](const decoder_layer& l) { return l.routed_parameters(); });
        const double ends = is_split() ? 0.0
                                       : (s.position() == 0 ? embedding_parameters() : 0.0) +
                                             (is_last(s, stages) ? embedding_parameters() : 0.0);
        const double held = everywhere + ends + routed / static_cast<double>(expert_parallel);
        // Ranks that share experts hold different experts, so fewer ranks share one expert's optimizer state.
        const auto shards_of_experts = std::max<std::size_t>(1, optimizer_shards / expert_parallel);
        const double state = (everywhere + ends) / static_cast<double>(optimizer_shards) +
                             routed / static_cast<double>(expert_parallel * shards_of_experts);
        return device_memory(bytes_per_parameter * held + optimizer_bytes_per_parameter * state);
    }

    /// Weights, gradients and optimizer state of a rank's shard of the embedding and the output layer.
    [[nodiscard]] constexpr memory_size static_memory_of_shard() const {
        const double held = 2.0 * embedding_parameters() / static_cast<double>(vocabulary_shards);
        return device_memory(bytes_per_parameter * held +
                             optimizer_bytes_per_parameter * held / static_cast<double>(optimizer_shards));
    }

    /// Time to send one activation tensor from one rank to another.
    [[nodiscard]] constexpr duration p2p() const {
        return time_over(elements(static_cast<double>(layer.hidden)), rank_link_rate);
    }

private:
    /// Share of a stash that W still needs. As in `transformer`, W needs 8 of 10 tensors.
    static constexpr double weight_share = 0.8;

    /// The number of layers of each shape that a stage holds.
    struct layer_counts {
        const decoder& of;
        std::size_t first;
        std::size_t others;

        template <class F> [[nodiscard]] constexpr double sum(const F& each) const {
            const double of_first = first > 0 ? static_cast<double>(first) * each(of.first_layer) : 0.0;
            return of_first + static_cast<double>(others) * each(of.layer);
        }
    };
    [[nodiscard]] constexpr layer_counts layers_of(stage s, std::size_t stages) const {
        OPTPIPE_EXPECT(first_layers <= layers, "decoder: more first layers than layers");
        const even_layers split{.total = layers};
        std::size_t before = 0;
        for (std::size_t i = 0; i < s.position(); ++i)
            before += split.layers_of(stage{i}, stages);
        const auto here = split.layers_of(s, stages);
        const auto first = before < first_layers ? std::min(here, first_layers - before) : 0;
        return {*this, first, here - first};
    }
    template <class Member> [[nodiscard]] constexpr double each_layer(Member member) const {
        return layer_counts{*this, first_layers, layers - first_layers}.sum(
            [&](const decoder_layer& l) { return (l.*member)(); });
    }
    [[nodiscard]] constexpr bool is_split() const { return vocabulary_shards > 1; }
    /// `kept_for_slices` is the number of elements per token of a layer's attention keys and values.
    /// `work_kept_for_slices` is the work of computing a layer's attention keys and values. Without slices, both
    /// functions return 0.
    [[nodiscard]] constexpr double kept_for_slices(const decoder_layer& l) const {
        return is_sliced ? l.keys_and_values() : 0.0;
    }
    [[nodiscard]] constexpr double work_kept_for_slices(const decoder_layer& l) const {
        return is_sliced ? l.key_value_work() : 0.0;
    }
    [[nodiscard]] static constexpr bool is_last(stage s, std::size_t stages) { return s.position() + 1 == stages; }
    [[nodiscard]] constexpr double embedding_parameters() const {
        return static_cast<double>(vocabulary) * static_cast<double>(layer.hidden);
    }

    [[nodiscard]] constexpr double tokens() const {
        return static_cast<double>(sequence) * static_cast<double>(microbatch_size);
    }
    /// Time for `work` FLOP per token.
    [[nodiscard]] constexpr duration compute_time(double work) const {
        OPTPIPE_EXPECT(compute_rate > 0.0, "decoder: compute_rate must be given");
        return duration{tokens() * work / static_cast<double>(tensor_parallel) / compute_rate * 1e-9};
    }
    /// Device memory of `count` elements per token.
    [[nodiscard]] constexpr memory_size elements(double count) const {
        return device_memory(bytes_per_element * tokens() * count);
    }
    [[nodiscard]] constexpr duration element_time(double rate) const { return time_over(elements(1.0), rate); }
    [[nodiscard]] constexpr memory_size device_memory(double bytes) const {
        return memory_size{bytes / static_cast<double>(tensor_parallel) * 1e-9};
    }
};

static_assert(memory_model<decoder> && has_storage<decoder>);

} // namespace optpipe
