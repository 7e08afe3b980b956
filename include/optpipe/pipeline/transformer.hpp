#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/pipeline/storage_policy.hpp"
#include "optpipe/pipeline/usual_storage.hpp"

#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

namespace optpipe {

template <class S> concept has_layers_of = requires(const S& split, stage s, std::size_t stages) {
    { split.layers_of(s, stages) } -> std::same_as<std::size_t>;
};

/// Defines how many layers of a model each stage holds.
///
/// Semantics: `layers_of(s, S)` is at least 1 for every stage s of S stages. The sum over all stages is the number of
/// layers of the model.
template <class S> concept layer_split = std::copyable<S> && has_layers_of<S>;

/// Fails to compile, naming the requirement that the type doesn't meet.
template <class S> consteval bool check_layer_split() {
    static_assert(std::copyable<S>, "layer split: must be copyable");
    static_assert(has_layers_of<S>, "layer split: needs `std::size_t layers_of(stage, std::size_t stages) const`");
    return layer_split<S>;
}

/// Puts the same number of layers on each stage. The remaining layers go to the first stages, one to each.
struct even_layers {
    std::size_t total = 0;
    /// The first and the last stage have this many layers fewer than the stages between them. The papers use 1, which
    /// makes up for the embedding and the output layer.
    std::size_t fewer_at_ends = 0;

    [[nodiscard]] constexpr std::size_t layers_of(stage s, std::size_t stages) const {
        const std::size_t dealt = total + 2 * fewer_at_ends;
        const std::size_t here = dealt / stages + (s.position() < dealt % stages ? 1u : 0u);
        const std::size_t ends = (s.position() == 0 ? 1u : 0u) + (s.position() + 1 == stages ? 1u : 0u);
        OPTPIPE_EXPECT(here >= ends * fewer_at_ends,
                       "even_layers: the first or the last stage has no layers to leave out");
        return here - ends * fewer_at_ends;
    }
};

/// Layers listed stage by stage.
template <auto Stages> struct basic_listed_layers {
    per_stage<std::size_t, Stages> each{};

    [[nodiscard]] constexpr std::size_t layers_of(stage s, std::size_t stages) const {
        OPTPIPE_EXPECT(each.size() == stages, "listed_layers: one entry per stage");
        return each[s];
    }
};
template <std::size_t Stages = dynamic> using listed_layers = basic_listed_layers<named_extent<Stages>()>;

static_assert(layer_split<even_layers> && layer_split<listed_layers<>> && layer_split<listed_layers<4>>);

/// Computed costs of a transformer, in milliseconds and gigabytes (10^9 bytes). Computed costs are a first guess until
/// there is a measured profile. Symbols: b microbatch size, s sequence, h hidden, a heads, V vocabulary. Each layer
/// takes sbh(24h + 4s) FLOP for F, sbh(24h + 8s) for I, and 24sbh·h for W (Zero Bubble, table 1). Embeddings cost
/// nothing.
///
/// An aggregate for designated initializers. `hidden`, `sequence`, `layers` and `compute_rate` must be given.
template <class Split = even_layers> struct transformer {
    static_assert(check_layer_split<Split>());

    static constexpr std::string_view time_unit = "ms";
    static constexpr std::string_view memory_unit = "GB";

    Split layers{};
    std::size_t hidden = 0;
    /// Number of attention heads. The number is used only if `recompute_cheap_layers` is false.
    std::size_t heads = 0;
    std::size_t sequence = 0;
    std::size_t microbatch_size = 1;
    /// Number of ranks that share every layer. All work, all memory, and the messages between ranks are divided by this
    /// number.
    std::size_t tensor_parallel = 1;
    /// Size of the vocabulary, for the output layer on the last stage. If 0, there is no output layer.
    std::size_t vocabulary = 0;
    double bytes_per_element = 2.0;
    /// Number of bytes per parameter for weight, gradient and optimizer state. The default is for Adam with mixed
    /// precision.
    double bytes_per_parameter = 18.0;
    /// Number of parameters of a layer, divided by `hidden`². The default of 12 is for a feed-forward part of width 4 ·
    /// `hidden`. A wider feed-forward part has more parameters.
    double parameters_per_layer = 12.0;
    /// Whether LayerNorm, GeLU and the dropout mask are recomputed instead of stashed.
    bool recompute_cheap_layers = true;
    /// Duration of recomputing the norms, as a share of a layer's forward. The duration depends on memory bandwidth,
    /// not on arithmetic.
    double norm_share = 0.03;
    /// TFLOP/s that a rank reaches; must be above 0.
    double compute_rate = 0.0;
    /// GB/s between a rank and its host. If the rate is 0, no stage can be offloaded.
    double host_link_rate = 0.0;
    /// GB/s between two ranks.
    double rank_link_rate = std::numeric_limits<double>::infinity();

    [[nodiscard]] constexpr stage_costs costs(stage s, std::size_t stages) const {
        const auto count = static_cast<double>(layers.layers_of(s, stages));
        const bool has_output = s.position() + 1 == stages;
        const double output_work = has_output ? 2.0 * elements() * static_cast<double>(vocabulary) : 0.0;
        const double output_stash = has_output && vocabulary > 0 ? bytes_per_element * elements() : 0.0;

        stage_costs result;
        result.forward = compute_time(count * forward_work() + output_work);
        result.backward_input = compute_time(count * backward_input_work() + output_work);
        result.backward_weight = compute_time(count * backward_weight_work() + output_work);
        result.activation = device_memory(count * stash_bytes() + output_stash);
        result.weight_stash = device_memory(count * weight_stash_bytes());
        result.transfer = transfers_over(result.activation, host_link_rate);
        return result;
    }

    /// The usual ways to store a stash (Korthikanti et al., 2022; Megatron's selective recomputation). Either the whole
    /// stash is kept, or one part of the stash is recomputed:
    ///
    /// | name | not kept, per layer | recomputed |
    /// | --- | --- | --- |
    /// | `norms` | 2 tensors of sbh elements, at the norms | `norm_share` of the forward |
    /// | `mlp` | the input of GeLU, 4 tensors, and its output unless that is cheap | sbh² · (parameters − 4) FLOP |
    /// | `attention` | softmax, its dropout and their mask; only if they are stashed | 4s·sbh FLOP |
    /// | `full` | all but the layer's input | the forward |
    ///
    /// Each row gives options that recompute inside or ahead of the backward, with and without transfers
    /// (`usual_storage`). The stash of the output layer is always kept.
    [[nodiscard]] constexpr storage_list<false> storage(stage s, std::size_t stages) const {
        const auto count = static_cast<double>(layers.layers_of(s, stages));
        const double tensor = bytes_per_element * elements();
        const double rest_of_mlp = (parameters_per_layer - 4.0) * elements() * static_cast<double>(hidden);
        usual_storage usual{costs(s, stages), host_link_rate};
        const auto add = [&](std::string_view name, double saved_bytes, double work) {
            usual.add(name, device_memory(count * saved_bytes), compute_time(count * work));
        };
        add("norms", 2.0 * tensor, norm_share * forward_work());
        add("mlp", (recompute_cheap_layers ? 4.0 : 8.0) * tensor, rest_of_mlp);
        if (!recompute_cheap_layers && heads > 0)
            add("attention", attention_bytes(), 4.0 * elements() * static_cast<double>(sequence));
        add("full", stash_bytes() - tensor, forward_work());
        return usual.options();
    }

    /// Device memory of the layers' weights, gradients and optimizer state, not available for activations. Embedding
    /// and output layer aren't counted.
    [[nodiscard]] constexpr memory_size static_memory(stage s, std::size_t stages) const {
        const auto h = static_cast<double>(hidden);
        const auto count = static_cast<double>(layers.layers_of(s, stages));
        return device_memory(bytes_per_parameter * count * parameters_per_layer * h * h);
    }

    /// Time to send one activation tensor of sbh elements from one rank to another.
    [[nodiscard]] constexpr duration p2p() const {
        return time_over(device_memory(bytes_per_element * elements()), rank_link_rate);
    }

    /// PipeOffload's ratio k = (round trip of a layer's stash to the host) / (F + I + W of the layer). If the ratio is
    /// above 1, offloading all stashes takes additional time. With the defaults, k = 10 / (3(6h + s)) · compute rate /
    /// host link rate (formula 1). Needs a host link.
    [[nodiscard]] constexpr double round_trip_ratio() const {
        const duration layer = compute_time(forward_work() + backward_input_work() + backward_weight_work());
        return 2.0 * time_over(device_memory(stash_bytes()), host_link_rate) / layer;
    }

private:
    [[nodiscard]] constexpr double elements() const {
        return static_cast<double>(sequence) * static_cast<double>(microbatch_size) * static_cast<double>(hidden);
    }
    /// The work is 2 FLOP per parameter and token: 24sbh·h with 12h² parameters.
    [[nodiscard]] constexpr double backward_weight_work() const {
        return 2.0 * parameters_per_layer * elements() * static_cast<double>(hidden);
    }
    [[nodiscard]] constexpr double forward_work() const {
        return backward_weight_work() + 4.0 * elements() * static_cast<double>(sequence);
    }
    [[nodiscard]] constexpr double backward_input_work() const {
        return backward_weight_work() + 8.0 * elements() * static_cast<double>(sequence);
    }
    /// At 2 bytes per element, a layer's stash takes 20sbh (PipeOffload, section 2). Without recomputation, the stash
    /// takes sb(34h + 5as) (Zero Bubble, table 1). Masks of dropout always take one byte per element.
    [[nodiscard]] constexpr double stash_bytes() const {
        if (recompute_cheap_layers) return 10.0 * bytes_per_element * elements();
        return elements() * (16.0 * bytes_per_element + 2.0) + attention_bytes();
    }
    /// The term 5as of `stash_bytes()`.
    [[nodiscard]] constexpr double attention_bytes() const {
        const double attention =
            static_cast<double>(heads) * static_cast<double>(sequence) / static_cast<double>(hidden);
        return elements() * attention * (2.0 * bytes_per_element + 1.0);
    }
    /// At 2 bytes per element, the weight stash takes 16sbh, or 32sbh without recomputation.
    [[nodiscard]] constexpr double weight_stash_bytes() const {
        return (recompute_cheap_layers ? 8.0 : 16.0) * bytes_per_element * elements();
    }

    [[nodiscard]] constexpr duration compute_time(double work) const {
        OPTPIPE_EXPECT(compute_rate > 0.0, "transformer: compute_rate must be given");
        return duration{work / static_cast<double>(tensor_parallel) / compute_rate * 1e-9};
    }
    [[nodiscard]] constexpr memory_size device_memory(double bytes) const {
        return memory_size{bytes / static_cast<double>(tensor_parallel) * 1e-9};
    }
};

static_assert(memory_model<transformer<>> && memory_model<transformer<listed_layers<>>> &&
              memory_model<transformer<listed_layers<4>>> && has_storage<transformer<>>);

} // namespace optpipe
