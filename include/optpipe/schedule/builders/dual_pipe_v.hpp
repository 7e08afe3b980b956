#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/pair.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace optpipe {

namespace detail {

/// a free function, because Clang (14 to 22) doesn't evaluate a member template that is defined later in its class
template <class Step> constexpr void repeat(std::size_t times, Step step) {
    for (std::size_t i = 0; i < times; ++i)
        step();
}

} // namespace detail

/// DualPipeV (DeepSeek-AI, 2025), a schedule for v placement. DualPipeV is DualPipe cut in half, and holds parameters
/// once. In the steady state, forwards and full backwards of a rank's two stages alternate. Backwards are split only in
/// the warm-up and the cool-down. A forward and the next backward become a pair if `overlaps` lists this pair. If
/// `overlaps` doesn't list this pair, the forward runs before the backward.
///
/// Supports any number of microbatches. Fewer than 2R microbatches get the order for 2R, without the missing
/// microbatches. No rank holds more than 2R + 1 stashes of a stage.
struct dual_pipe_v_builder {
    static constexpr std::string_view name = "dualpipe-v";

    /// Contract: v placement.
    template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> operator()(const Graph& g) const {
        return build(g, overlap_list<Graph::is_static>{});
    }
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        if (const auto why = detail::why_no_v_schedule(p); !why.empty()) return does_not_apply(why);
        return build(p.graph, p.full_backward ? p.overlaps : overlap_list<Graph::is_static>{}); // a pair needs a full
                                                                                                // backward
    }

private:
    template <pipeline_graph Graph, class Overlaps>
    [[nodiscard]] constexpr basic_order<Graph> build(const Graph& g, const Overlaps& overlaps) const {
        OPTPIPE_EXPECT(is_v_placed(g), "DualPipeV: needs v placement");
        compute_lanes lanes(g.ranks());
        for (const rank r : g.all_ranks())
            lanes[r] = lane<Overlaps>{g, r, overlaps}.make();
        return *interleave(g, lanes);
    }

    /// One rank's lane. Chunk 0 is the rank's first stage, chunk 1 its second.
    template <class Overlaps> class lane {
    public:
        template <pipeline_graph Graph>
        constexpr lane(const Graph& g, rank r, const Overlaps& overlaps)
            : overlaps_{&overlaps}, stages_{stage{r.value()}, stage{2 * g.ranks() - 1 - r.position()}},
              before_{r.position() + 1}, after_{g.ranks() - before_}, real_{g.microbatches()},
              count_{std::max(real_, 2 * g.ranks())}, ranks_{g.ranks()} {}

        OPTPIPE_CONSTEXPR std::vector<operation> make() && {
            detail::repeat(2 * after_, [&] { put_forward(0); });
            detail::repeat(before_, [&] { put_forward(0), put_forward(1); });
            detail::repeat(after_, [&] { put_input(1), put_weight(), put_forward(1); });
            for (std::size_t i = 0; i < count_ - 2 * ranks_ + before_; ++i) {
                if (i == 0 && after_ == 0) // the published schedule has no pair here, for a smaller bubble
                    put_forward(0), put_backward(1);
                else
                    put_pair(0);
                put_pair(1);
            }
            detail::repeat(after_, [&] { put_backward(1), put_pair(1); });
            // The first half of the next 2 · `before_` backwards is full, and the second half is split. The W of the
            // split backwards come at the end of the lane.
            for (std::size_t i = 0; i < 2 * before_; ++i)
                i < before_ ? put_backward(1 - i % 2) : put_input(1 - i % 2);
            detail::repeat(after_, [&] { put_weight(), put_input(0); });
            detail::repeat(before_, [&] { put_weight(); });
            return static_cast<std::vector<operation>&&>(lane_);
        }

    private:
        OPTPIPE_CONSTEXPR void put(const operation& op) {
            if (op.microbatch.position() < real_) lane_.push_back(op);
        }
        OPTPIPE_CONSTEXPR void put_forward(std::size_t chunk) {
            put(forward(stages_[chunk], microbatch{forwards_[chunk]++}));
        }
        OPTPIPE_CONSTEXPR void put_backward(std::size_t chunk) {
            put(backward(stages_[chunk], microbatch{gradients_[chunk]++}));
        }
        /// Appends the next forward of `chunk` and the next backward of chunk 1 − `chunk`, as a pair if possible.
        OPTPIPE_CONSTEXPR void put_pair(std::size_t chunk) {
            const auto at = lane_.size();
            put_forward(chunk);
            put_backward(1 - chunk);
            if (lane_.size() == at + 2) mark_pair(*overlaps_, lane_[at], lane_[at + 1]);
        }
        OPTPIPE_CONSTEXPR void put_input(std::size_t chunk) {
            const microbatch m{gradients_[chunk]++};
            put(backward_input(stages_[chunk], m));
            weights_.push_back(backward_weight(stages_[chunk], m));
        }
        OPTPIPE_CONSTEXPR void put_weight() { put(weights_[weights_done_++]); }

        const Overlaps* overlaps_;
        stage stages_[2];
        /// The number of ranks up to this one, and the number of ranks after it.
        std::size_t before_;
        std::size_t after_;
        std::size_t real_;
        std::size_t count_;
        std::size_t ranks_;
        std::size_t forwards_[2] = {0, 0};
        std::size_t gradients_[2] = {0, 0};
        std::vector<operation> weights_{};
        std::size_t weights_done_ = 0;
        std::vector<operation> lane_{};
    };
};
inline constexpr dual_pipe_v_builder dual_pipe_v{};

} // namespace optpipe
