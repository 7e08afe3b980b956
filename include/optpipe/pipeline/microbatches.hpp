#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace optpipe {

/// Factors on the costs of one microbatch on one stage, all above 0.
struct cost_factors {
    double forward = 1.0;         ///< factor on the durations F, `recompute` and `backward_extra`
    double backward_input = 1.0;  ///< factor on the duration of I
    double backward_weight = 1.0; ///< factor on the duration of W
    double memory = 1.0;          ///< factor on all held memory, and on the size and duration of transfers
    double message = 1.0;         ///< factor on the time to send the stage's output, and to return its gradient
    friend constexpr bool operator==(const cost_factors&, const cost_factors&) = default;
};

/// A factor of 1 on everything.
inline constexpr cost_factors usual_factors{};

/// The factor `f` on everything.
[[nodiscard]] constexpr cost_factors equal_factors(double f) { return {f, f, f, f, f}; }

/// The costs of a stage for a microbatch with these factors. Transfer times don't change, as they only describe storage
/// options.
[[nodiscard]] constexpr stage_costs scaled(stage_costs c, const cost_factors& f) {
    c.forward = f.forward * c.forward;
    c.backward_input = f.backward_input * c.backward_input;
    c.backward_weight = f.backward_weight * c.backward_weight;
    c.activation = f.memory * c.activation;
    c.weight_stash = f.memory * c.weight_stash;
    c.kv = f.memory * c.kv;
    return c;
}
/// The storage option `o`, scaled for a microbatch with these factors.
[[nodiscard]] constexpr storage_option scaled(storage_option o, const cost_factors& f) {
    o.held = f.memory * o.held;
    o.recompute = f.forward * o.recompute;
    o.backward_extra = f.forward * o.backward_extra;
    o.transfer_size = f.memory * o.transfer_size;
    if (o.transfer) o.transfer = transfer_times{f.memory * o.transfer->offload, f.memory * o.transfer->reload};
    return o;
}

/// How the microbatches of a step differ. Microbatches may have factors on their costs. A sequence may have several
/// microbatches as its slices. By default, the lists are empty: all microbatches are equal, and none is a slice.
template <auto Stages, auto Microbatches> class basic_microbatch_list {
public:
    constexpr basic_microbatch_list() = default;

    /// Whether all microbatches have the same costs, and none is a slice.
    [[nodiscard]] constexpr bool are_equal() const { return are_equal_; }

    [[nodiscard]] constexpr const cost_factors& factors(stage s, microbatch m) const {
        if (are_equal_ || factors_.empty()) return usual_factors;
        return factors_[is_by_stage_ ? s.position() * count_ + m.position() : m.position()];
    }
    /// Sets the factors of each microbatch m, for all stages, to `list[m]`.
    template <class List> constexpr void set_factors(const List& list) {
        is_by_stage_ = false;
        take_factors(list, list.size());
    }
    /// Sets the factors of each stage s and microbatch m to `list[s * microbatches + m]`.
    template <class List> constexpr void set_factors_by_stage(const List& list, std::size_t microbatches) {
        is_by_stage_ = true;
        take_factors(list, microbatches);
    }

    /// Whether the lists have the right sizes for a step of `microbatches` microbatches on `stages` stages.
    [[nodiscard]] constexpr bool fits(std::size_t stages, std::size_t microbatches) const {
        const auto entries = is_by_stage_ ? stages * microbatches : microbatches;
        return (factors_.empty() || (factors_.size() == entries && count_ == microbatches)) &&
               (sequence_.empty() || sequence_.size() == microbatches);
    }

    /// Sets the sequence of each microbatch m to number `list[m]`. Microbatches with the same number are the slices of
    /// one sequence, in order. Contract: the slices of a sequence are consecutive microbatches.
    template <class List> constexpr void set_sequences(const List& list) {
        OPTPIPE_EXPECT(are_together(list), "microbatches: slices don't follow one another");
        sequence_.clear();
        bool any = false;
        for (std::size_t m = 0; m < list.size(); ++m) {
            const bool continues = m > 0 && list[m] == list[m - 1];
            any = any || continues;
            const auto number = m == 0 ? std::uint32_t{0} : sequence_[m - 1] + (continues ? 0U : 1U);
            sequence_.push_back(number);
        }
        if (!any) sequence_.clear();
        are_equal_ = factors_.empty() && sequence_.empty();
    }
    /// The slice before `m` in its sequence.
    [[nodiscard]] constexpr std::optional<microbatch> slice_before(microbatch m) const {
        return has_slices() ? slice_in_sequence(m, -1) : std::nullopt;
    }
    /// The slice after `m` in its sequence.
    [[nodiscard]] constexpr std::optional<microbatch> slice_after(microbatch m) const {
        return has_slices() ? slice_in_sequence(m, 1) : std::nullopt;
    }
    /// Whether `m` is one of several slices of a sequence.
    [[nodiscard]] constexpr bool is_slice(microbatch m) const { return slice_before(m) || slice_after(m); }
    [[nodiscard]] constexpr bool has_slices() const { return !sequence_.empty(); }
    [[nodiscard]] constexpr bool has_factors() const { return !factors_.empty(); }
    [[nodiscard]] constexpr bool is_by_stage() const { return is_by_stage_; }

    friend bool operator==(const basic_microbatch_list&, const basic_microbatch_list&) = default;

private:
    /// The microbatch before or after `m` (`step` −1 or 1), if it belongs to the same sequence. Contract: there are
    /// slices.
    [[nodiscard]] constexpr std::optional<microbatch> slice_in_sequence(microbatch m, int step) const {
        const auto other = m.position() + static_cast<std::size_t>(step); // wraps around before the first microbatch
        if (other >= sequence_.size() || sequence_[other] != sequence_[m.position()]) return std::nullopt;
        return microbatch{other};
    }
    /// Whether equal numbers follow one another.
    template <class List> static constexpr bool are_together(const List& list) {
        bounded_vector<std::remove_cvref_t<decltype(list[0])>, std::size_t{Microbatches}> starts;
        for (std::size_t m = 0; m < list.size(); ++m)
            if (m == 0 || list[m] != list[m - 1]) starts.push_back(list[m]);
        std::sort(starts.begin(), starts.end());
        return std::adjacent_find(starts.begin(), starts.end()) == starts.end();
    }
    template <class List> constexpr void take_factors(const List& list, std::size_t microbatches) {
        count_ = microbatches;
        factors_.clear();
        bool usual = true;
        for (const cost_factors& each : list) {
            factors_.push_back(each);
            usual = usual && each == usual_factors;
        }
        if (usual) { // factors of 1 are the same as no factors
            factors_.clear();
            is_by_stage_ = false;
            count_ = 0;
        }
        are_equal_ = factors_.empty() && sequence_.empty();
    }

    bool are_equal_ = true;
    bool is_by_stage_ = false;
    std::size_t count_ = 0;
    /// Factors of microbatches. One entry per microbatch, or per pair of a stage and a microbatch; empty without
    /// factors.
    bounded_vector<cost_factors, extent_product(std::size_t{Stages}, std::size_t{Microbatches})> factors_{};
    /// The index of each microbatch's sequence, from 0; empty if no sequence has several slices.
    bounded_vector<std::uint32_t, std::size_t{Microbatches}> sequence_{};
};
template <std::size_t Stages = dynamic, std::size_t Microbatches = dynamic>
using microbatch_list = basic_microbatch_list<named_extent<Stages>(), named_extent<Microbatches>()>;

/// Microbatches that only differ on the stages in `which`, such as an image encoder. The pipeline has `stages` stages.
/// All costs of microbatch m on the stages in `which` have the factor `scale[m]`. Contract: these stages are among the
/// `stages`.
template <class Which, class Scale>
[[nodiscard]] microbatch_list<> scaled_stages(const Which& which, const Scale& scale, std::size_t stages) {
    const auto count = scale.size();
    std::vector<cost_factors> factors(stages * count);
    for (const stage s : which) {
        OPTPIPE_EXPECT(s.position() < stages, "scaled_stages: no such stage");
        for (std::size_t m = 0; m < count; ++m)
            factors[s.position() * count + m] = equal_factors(static_cast<double>(scale[m]));
    }
    microbatch_list<> result;
    result.set_factors_by_stage(factors, count);
    return result;
}

} // namespace optpipe
