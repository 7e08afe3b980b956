#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/overlaps.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// The measured duration of a forward and a backward of two layers that run together. `forward` and `backward` are
/// kinds of layers (`layer_costs::kind`).
struct layer_pair {
    std::string forward{};
    std::string backward{};
    /// For layers with frozen weights, the backward is I.
    overlap_kind kind = overlap_kind::backward;
    optpipe::duration duration{};
    friend bool operator==(const layer_pair&, const layer_pair&) = default;
};

/// The time of a forward or a backward, split into computation and communication.
struct work_parts {
    duration computation{};
    duration communication{};

    [[nodiscard]] constexpr duration all() const { return computation + communication; }
    friend constexpr work_parts operator+(work_parts a, work_parts b) {
        return {a.computation + b.computation, a.communication + b.communication};
    }
};

/// The duration of a pair: max(computation, communication) · (1 + `contention`), and at least the longer part.
[[nodiscard]] constexpr duration overlap_duration(work_parts forward, work_parts backward, double contention) {
    const auto both = forward + backward;
    return std::max(
        {(1.0 + contention) * std::max(both.computation, both.communication), forward.all(), backward.all()});
}

[[nodiscard]] constexpr work_parts forward_parts(const layer_costs& layer) {
    return {layer.costs.forward - layer.forward_comm, layer.forward_comm};
}
/// The computation and communication of a backward. For B and for I, the communication takes `backward_comm`.
[[nodiscard]] constexpr work_parts backward_parts(const layer_costs& layer, overlap_kind kind) {
    return {length_of(layer.costs, kind) - layer.backward_comm, layer.backward_comm};
}

/// The kinds of backward that can be paired with a forward, if a stage computes `gradients`.
[[nodiscard]] inline std::vector<overlap_kind> pair_kinds(const problem& p, gradient_kind gradients) {
    std::vector<overlap_kind> kinds;
    if (gradients == gradient_kind::full && p.full_backward) kinds.push_back(overlap_kind::backward);
    if (gradients == gradient_kind::input || (gradients == gradient_kind::full && p.split_backward))
        kinds.push_back(overlap_kind::backward_input);
    return kinds;
}

/// Computes the durations of pairs of stages from the layers of the stages.
class layer_pairing {
public:
    /// Contract: `layers` outlives this object.
    layer_pairing(std::span<const layer_costs> layers, double contention, const std::vector<layer_pair>& measured)
        : layers_{layers}, contention_{contention} {
        for (const auto& each : measured)
            measured_[{each.kind, each.forward, each.backward}] = each.duration;
    }

    /// Whether any pair can be shorter than its parts in succession.
    [[nodiscard]] bool has_pairs() const {
        return has_measured() || std::any_of(layers_.begin(), layers_.end(), [](const layer_costs& each) {
                   return each.forward_comm > duration{} || each.backward_comm > duration{};
               });
    }
    [[nodiscard]] bool has_measured() const { return !measured_.empty(); }
    [[nodiscard]] double contention() const { return contention_; }

    /// The duration of a pair of two stages with these layers, in order. If no pairs were measured, the duration is
    /// `overlap_duration` of the sums over the layers. Measured layers run in pairs: forward layers from the first,
    /// backward layers from the last. If one list is longer, its remaining layers run alone. An unmeasured pair of
    /// layers takes `overlap_duration`, or the time in succession if shorter.
    [[nodiscard]] duration of(std::span<const std::size_t> forward, std::span<const std::size_t> backward,
                              overlap_kind kind) const {
        return has_measured() ? in_succession(forward, backward, kind) : together(forward, backward, kind);
    }
    /// The time that the pair saves over its two parts in succession.
    [[nodiscard]] duration saving(std::span<const std::size_t> forward, std::span<const std::size_t> backward,
                                  overlap_kind kind) const {
        duration alone{};
        for (const auto layer : forward)
            alone += layers_[layer].costs.forward;
        for (const auto layer : backward)
            alone += length_of(layers_[layer].costs, kind);
        return std::max(duration{}, alone - of(forward, backward, kind));
    }

private:
    [[nodiscard]] duration together(std::span<const std::size_t> forward, std::span<const std::size_t> backward,
                                    overlap_kind kind) const {
        work_parts f;
        work_parts b;
        for (const auto layer : forward)
            f = f + forward_parts(layers_[layer]);
        for (const auto layer : backward)
            b = b + backward_parts(layers_[layer], kind);
        return overlap_duration(f, b, contention_);
    }
    [[nodiscard]] duration in_succession(std::span<const std::size_t> forward, std::span<const std::size_t> backward,
                                         overlap_kind kind) const {
        duration sum{};
        auto next = forward.begin();
        for (auto at = backward.rbegin(); at != backward.rend(); ++at) {
            const auto& b = layers_[*at];
            if (b.costs.gradients == gradient_kind::none) continue;
            sum += next == forward.end() ? length_of(b.costs, kind) : of_layers(layers_[*next++], b, kind);
        }
        for (; next != forward.end(); ++next)
            sum += layers_[*next].costs.forward;
        return sum;
    }
    [[nodiscard]] duration of_layers(const layer_costs& f, const layer_costs& b, overlap_kind kind) const {
        const auto own = b.costs.gradients == gradient_kind::input ? overlap_kind::backward_input : kind;
        if (const auto found = measured_.find({own, f.kind, b.kind}); found != measured_.end()) return found->second;
        const auto parts = std::pair{forward_parts(f), backward_parts(b, kind)};
        return std::min(overlap_duration(parts.first, parts.second, contention_),
                        parts.first.all() + parts.second.all());
    }

    struct pair_name {
        overlap_kind kind{};
        std::string forward{};
        std::string backward{};
        friend auto operator<=>(const pair_name&, const pair_name&) = default;
    };

    std::span<const layer_costs> layers_;
    double contention_;
    std::map<pair_name, duration> measured_;
};

} // namespace optpipe
