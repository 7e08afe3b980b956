#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/microbatches.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace optpipe {

/// The work of a microbatch's tokens, relative to the sequence that the stages' costs describe.
struct token_work {
    double linear = 0.0;    ///< tokens of the microbatch
    double quadratic = 0.0; ///< pairs of a token and an earlier token for which the microbatch computes attention
    friend constexpr bool operator==(const token_work&, const token_work&) = default;
};

/// The factors of a microbatch with linear work l and quadratic work q. `attention_share` (a) is the share of attention
/// in the forward of the costed sequence. The gradient of attention is a part of I, and takes twice as long as in F.
/// All other work takes equally long in F, I and W:
///
///     forward          (1 − a) l + a q
///     backward_input  ((1 − a) l + 2 a q) / (1 + a)
///     all others       l
///
/// The full backward has the same factor as F.
[[nodiscard]] constexpr cost_factors token_factors(const token_work& work, double attention_share) {
    const double others = (1.0 - attention_share) * work.linear;
    const double attention = attention_share * work.quadratic;
    return {others + attention, (others + 2.0 * attention) / (1.0 + attention_share), work.linear, work.linear,
            work.linear};
}

/// Returns the length x of the first part of a sequence whose forward takes `time`. Lengths and times are relative to
/// the sequence for which the stages' costs are given. The result is the positive root of this equation,
///
///     a x² + (1 − a) x = time
///
/// found by Newton's method from above, because std::sqrt isn't constexpr.
[[nodiscard]] constexpr double end_of_time(double time, double attention_share) {
    const double a = attention_share;
    double end = std::max(1.0, time);
    for (;;) {
        const double next = (a * end * end + time) / (2.0 * a * end + 1.0 - a);
        if (!(next < end)) return end;
        end = next;
    }
}

namespace detail {

/// Factors of all microbatches, computed from their `works`. `attention_share` is one number, or a list with one number
/// per stage.
template <std::size_t Stages, std::size_t Microbatches, class Works, class Share>
[[nodiscard]] constexpr microbatch_list<Stages, Microbatches> with_token_factors(const Works& works,
                                                                                 const Share& attention_share) {
    microbatch_list<Stages, Microbatches> result;
    bounded_vector<cost_factors, extent_product(Stages, Microbatches)> factors;
    const auto add_stage = [&](double share) {
        OPTPIPE_EXPECT(share >= 0.0 && share <= 1.0, "slices: a share of attention must be from 0 to 1");
        for (const token_work& each : works) {
            OPTPIPE_EXPECT(each.linear > 0.0, "slices: a length must be above 0");
            factors.push_back(token_factors(each, share));
        }
    };
    if constexpr (std::convertible_to<Share, double>) {
        add_stage(attention_share);
        result.set_factors(factors);
    } else {
        for (const double share : attention_share)
            add_stage(share);
        result.set_factors_by_stage(factors, works.size());
    }
    return result;
}

/// The largest of the shares.
template <class Share> [[nodiscard]] constexpr double most_attention(const Share& attention_share) {
    if constexpr (std::convertible_to<Share, double>) {
        return attention_share;
    } else {
        double most = 0.0;
        for (const double each : attention_share)
            most = std::max(most, each);
        return most;
    }
}

/// Returns `length`, or the mean of `all` if `length` is 0.
template <class Lengths> [[nodiscard]] constexpr double length_or_mean(double length, const Lengths& all) {
    OPTPIPE_EXPECT(length >= 0.0 && length <= std::numeric_limits<double>::max(),
                   "slices: the costed length must be finite and not negative");
    if (length > 0.0) return length;
    double sum = 0.0;
    std::size_t count = 0;
    for (const auto each : all) {
        sum += static_cast<double>(each);
        ++count;
    }
    OPTPIPE_EXPECT(sum > 0.0, "slices: lengths must be above 0");
    return sum / static_cast<double>(count);
}

/// Collects the slices of sequences. The ends of slices are relative to the sequence for which the stages' costs are
/// given.
template <std::size_t Stages, std::size_t Microbatches> class slice_collector {
public:
    constexpr void begin_sequence() {
        ++sequences_;
        end_ = 0.0;
    }
    /// Adds the slice from the end of the previous slice to `end`.
    constexpr void add_until(double end) {
        works_.push_back({end - end_, end * end - end_ * end_});
        sequence_.push_back(sequences_);
        end_ = end;
    }
    template <class Share>
    [[nodiscard]] constexpr microbatch_list<Stages, Microbatches> microbatches(const Share& attention_share) const {
        auto result = with_token_factors<Stages, Microbatches>(works_, attention_share);
        result.set_sequences(sequence_);
        return result;
    }

private:
    bounded_vector<token_work, Microbatches> works_{};
    bounded_vector<std::uint32_t, Microbatches> sequence_{};
    std::uint32_t sequences_ = 0;
    double end_ = 0.0;
};

/// Cuts each sequence into `k` slices. `end_of(length, i)` is the end of slice i of a sequence of length `length`.
/// Lengths and ends are relative to the sequence for which the stages' costs are given.
template <std::size_t Stages, std::size_t Microbatches, class Lengths, class Share, class EndOf>
[[nodiscard]] constexpr microbatch_list<Stages, Microbatches> cut_sequences(const Lengths& tokens,
                                                                            const Share& attention_share, std::size_t k,
                                                                            double costed_length, const EndOf& end_of) {
    OPTPIPE_EXPECT(k > 0, "slices: a sequence has at least one slice");
    slice_collector<Stages, Microbatches> slices;
    for (const auto each : tokens) {
        slices.begin_sequence();
        for (std::size_t i = 0; i < k; ++i)
            slices.add_until(end_of(static_cast<double>(each) / costed_length, i));
    }
    return slices.microbatches(attention_share);
}

/// The sum of each list.
template <std::size_t Count, class Lists>
[[nodiscard]] constexpr bounded_vector<double, Count> sums_of(const Lists& lists) {
    bounded_vector<double, Count> sums;
    for (const auto& list : lists) {
        double sum = 0.0;
        for (const auto each : list)
            sum += static_cast<double>(each);
        sums.push_back(sum);
    }
    return sums;
}

/// The end of slice i of `k` slices that take the same time.
[[nodiscard]] constexpr double equal_time_end(double length, double attention_share, std::size_t i, std::size_t k) {
    const double all = (1.0 - attention_share) * length + attention_share * length * length;
    const double part = static_cast<double>(i + 1) / static_cast<double>(k);
    return i + 1 == k ? length : end_of_time(all * part, attention_share);
}

} // namespace detail

/// The microbatches of a step in which every sequence is cut into `k` slices of equal length. `tokens` lists the
/// lengths of the sequences. With k = 1, sequences aren't cut.
///
/// `attention_share` is the share of attention in the forward of the costed sequence. `attention_share` is one number,
/// or a list with one number per stage. The costs are given for a sequence of `costed_length` tokens. If
/// `costed_length` is 0, they are given for the mean of `tokens`. Contract: `costed_length` is finite and not negative.
///
///     p.microbatches = slices(std::vector{4096, 8192}, 0.3, 4); // 8 microbatches
template <std::size_t Stages = dynamic, std::size_t Microbatches = dynamic, class Lengths, class Share>
[[nodiscard]] constexpr microbatch_list<Stages, Microbatches>
slices(const Lengths& tokens, const Share& attention_share, std::size_t k, double costed_length = 0.0) {
    const auto end_of = [&](double length, std::size_t i) {
        return length * static_cast<double>(i + 1) / static_cast<double>(k);
    };
    return detail::cut_sequences<Stages, Microbatches>(tokens, attention_share, k,
                                                       detail::length_or_mean(costed_length, tokens), end_of);
}

/// Like `slices`, but all slices of a sequence take the same time. Earlier slices have more tokens than later slices.
/// Slice i of k ends at (i + 1) / k of the sequence's forward time (`end_of_time`). If the shares of attention differ,
/// the slices take the same time on the stage with the largest share.
template <std::size_t Stages = dynamic, std::size_t Microbatches = dynamic, class Lengths, class Share>
[[nodiscard]] constexpr microbatch_list<Stages, Microbatches>
equal_time_slices(const Lengths& tokens, const Share& attention_share, std::size_t k, double costed_length = 0.0) {
    const double most = detail::most_attention(attention_share);
    const auto end_of = [&](double length, std::size_t i) { return detail::equal_time_end(length, most, i, k); };
    return detail::cut_sequences<Stages, Microbatches>(tokens, attention_share, k,
                                                       detail::length_or_mean(costed_length, tokens), end_of);
}

/// The token lengths of `k` slices of one sequence that take about the same time. The lengths are those of
/// `equal_time_slices`, with ends rounded to multiples of `multiple`. If `tokens` isn't a multiple of `multiple`, the
/// last slices may end between two multiples. Contract: `k * multiple` ≤ `tokens`.
[[nodiscard]] inline std::vector<std::size_t> equal_time_lengths(std::size_t tokens, double attention_share,
                                                                 std::size_t k, std::size_t multiple = 1,
                                                                 double costed_length = 0.0) {
    OPTPIPE_EXPECT(k > 0 && multiple > 0 && k * multiple <= tokens, "slices: more slices than tokens for them");
    const double unit = detail::length_or_mean(costed_length, std::array{tokens});
    std::vector<std::size_t> lengths;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < k; ++i) {
        const double at = unit * detail::equal_time_end(static_cast<double>(tokens) / unit, attention_share, i, k);
        const auto rounded = static_cast<std::size_t>(at / static_cast<double>(multiple) + 0.5) * multiple;
        const auto latest = tokens - (k - 1 - i) * multiple;
        const auto end = i + 1 == k ? tokens : std::min(std::max(rounded, begin + multiple), latest);
        lengths.push_back(end - begin);
        begin = end;
    }
    return lengths;
}

/// The microbatches of a step whose sequences are cut into slices of arbitrary lengths. `lengths[i]` lists the lengths
/// of the slices of sequence i, in tokens. `attention_share` and `costed_length` are as for `slices`. By default, the
/// stages' costs are for a sequence of the mean length.
///
///     p.microbatches = slices_of(std::vector(16, equal_time_lengths(4096, 0.5, 8, 64)), 0.5);
template <std::size_t Stages = dynamic, std::size_t Microbatches = dynamic, class Lists, class Share>
[[nodiscard]] constexpr microbatch_list<Stages, Microbatches>
slices_of(const Lists& lengths, const Share& attention_share, double costed_length = 0.0) {
    const double unit = detail::length_or_mean(costed_length, detail::sums_of<Microbatches>(lengths));
    detail::slice_collector<Stages, Microbatches> slices;
    for (const auto& sequence : lengths) {
        slices.begin_sequence();
        double end = 0.0;
        for (const auto each : sequence) {
            end += static_cast<double>(each);
            slices.add_until(end / unit);
        }
    }
    return slices.microbatches(attention_share);
}

/// The microbatches of a step into which documents are packed. A token attends only to its own document. `documents[m]`
/// lists the lengths of the documents of microbatch m. The linear work of a microbatch is the sum of its documents'
/// lengths. The quadratic work of a microbatch is the sum of the squares of these lengths.
///
/// `attention_share` and `costed_length` are as for `slices`. By default, the stages' costs are for one document of the
/// microbatches' mean length.
///
///     p.microbatches = packed_documents(std::vector<std::vector<int>>{{4096}, {1024, 3072}}, 0.3);
template <std::size_t Stages = dynamic, std::size_t Microbatches = dynamic, class Documents, class Share>
[[nodiscard]] constexpr microbatch_list<Stages, Microbatches>
packed_documents(const Documents& documents, const Share& attention_share, double costed_length = 0.0) {
    const double unit = detail::length_or_mean(costed_length, detail::sums_of<Microbatches>(documents));
    bounded_vector<token_work, Microbatches> works;
    for (const auto& list : documents) {
        token_work work;
        for (const auto each : list) {
            const double length = static_cast<double>(each) / unit;
            work.linear += length;
            work.quadratic += length * length;
        }
        works.push_back(work);
    }
    return detail::with_token_factors<Stages, Microbatches>(works, attention_share);
}

} // namespace optpipe
