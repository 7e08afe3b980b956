#pragma once

#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/injection.hpp"

#include <string_view>

namespace optpipe {

/// Runs the slices of sequences in the order of 1F1B (Seq1F1B, Sun et al., 2024). With k slices, a stage does k − 1
/// more forwards than in 1F1B before it alternates.
///
/// Needs one stage per rank. With M sequences of k equal slices and no communication, the step takes M(F + B) + (S −
/// 1)(F + B) / k. F and B are the times of a sequence. Rank 0 holds (S + k − 1) / k stashes of a sequence.
struct sequence_1f1b_builder {
    static constexpr std::string_view name = "seq1f1b";
    static constexpr bool any_graph = true;

    template <pipeline_graph Graph>
    [[nodiscard]] outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (!p.microbatches.has_slices()) return does_not_apply("Seq1F1B is for sequences that are cut into slices");
        if (!one_stage_per_rank(p.graph)) return does_not_apply("Seq1F1B is for one stage per rank");
        const injection entering{sequences_of(p)};
        return inject(p, entering, detail::one_forward_one_backward_order(p.graph, entering.most_slices - 1));
    }
};
inline constexpr sequence_1f1b_builder sequence_1f1b{};

} // namespace optpipe
