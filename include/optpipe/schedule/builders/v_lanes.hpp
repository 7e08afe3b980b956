#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/construct/building_block.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace optpipe {

/// How to rebuild the warm-up and the cool-down of a repeated block. If warm-up and cool-down weren't rebuilt, ranks
/// would wait for microbatches that don't exist.
struct v_phases {
    /// Number of forwards allowed before the first gradient of the rank's first stage.
    std::size_t stashes = 0;
    bool rebuild_warm_up = true;
    bool rebuild_cool_down = true;
    /// Whether weight gradients outside the rebuilt phases stay where the block has them.
    bool keep_weights = false;
};

namespace detail {

/// The passes of a rank in v placement.
enum class v_pass : std::uint8_t { first_forward, second_forward, first_gradient, second_gradient, weight };

/// Makes the lane of one rank: forwards and input gradients, each in the order of microbatches.
template <pipeline_graph Graph> class v_lane {
public:
    constexpr v_lane(const Graph& g, const building_block<Graph>& block, rank r, v_phases ends)
        : down_{r.value()}, back_{2 * g.ranks() - 1 - r.position()}, ranks_{g.ranks()}, count_{g.microbatches()},
          ends_{ends} {
        const auto& down = block.cells[down_];
        const auto& back = block.cells[back_];
        repeat_passes({down.forward, back.forward, back.backward_input, down.backward_input, down.backward_weight,
                       back.backward_weight},
                      block, std::max(count_, 2 * ranks_));
    }

    constexpr std::vector<operation> make() && {
        const auto first = std::find(sequence_.begin(), sequence_.end(), v_pass::second_gradient);
        warm_up(sequence_.begin(), first);
        steady_state(first);
        cool_down();
        return static_cast<std::vector<operation>&&>(lane_);
    }

private:
    using passes = std::vector<v_pass>;
    using place = passes::const_iterator;

    /// Repeats the block for `count` microbatches, and lists all passes in the order of their cells.
    constexpr void repeat_passes(const std::array<std::size_t, v_period>& cells, const building_block<Graph>& block,
                                 std::size_t count) {
        struct repeated_pass {
            std::size_t cell = 0;
            std::size_t number = 0;
            std::size_t repetitions = 0;
        };
        std::vector<repeated_pass> by_cell;
        for (std::size_t m = 0; m < block.group; ++m)
            for (std::size_t k = 0; k < cells.size(); ++k)
                by_cell.push_back({cells[k] + block.shift(m), k, (count + block.group - 1 - m) / block.group});
        std::sort(by_cell.begin(), by_cell.end(), [&](const repeated_pass& x, const repeated_pass& y) {
            return std::pair{x.cell % block.period, x.number} < std::pair{y.cell % block.period, y.number};
        });
        constexpr auto weight = static_cast<std::size_t>(v_pass::weight); // the weight gradient of either stage
        sequence_.reserve(v_period * count);
        for (std::size_t period = 0; sequence_.size() < v_period * count; ++period)
            for (const auto& pass : by_cell)
                if (const auto first = pass.cell / block.period; first <= period && period < first + pass.repetitions)
                    sequence_.push_back(static_cast<v_pass>(std::min(pass.number, weight)));
    }
    constexpr std::size_t& done(v_pass pass) { return done_[static_cast<std::size_t>(pass)]; }
    constexpr void put(v_pass pass) {
        const auto m = done(pass)++;
        if (pass == v_pass::weight) {
            if (ends_.keep_weights) lane_.push_back(backward_weight(down_, microbatch{m / 2}));
            return;
        }
        if (m >= count_) return;
        switch (pass) {
        case v_pass::first_forward: lane_.push_back(forward(down_, microbatch{m})); break;
        case v_pass::second_forward: lane_.push_back(forward(back_, microbatch{m})); break;
        case v_pass::first_gradient: lane_.push_back(backward_input(back_, microbatch{m})); break;
        case v_pass::second_gradient: lane_.push_back(backward_input(down_, microbatch{m})); break;
        case v_pass::weight: break;
        }
    }
    constexpr bool put_up_to(v_pass pass, std::size_t most) {
        if (done(pass) >= most) return false;
        put(pass);
        return true;
    }

    /// Appends the passes before the first gradient of the first stage. As many forwards run as the stashes permit,
    /// with few waits. All further forwards alternate with gradients.
    constexpr void warm_up(place begin, place end) {
        if (!ends_.rebuild_warm_up) {
            std::for_each(begin, end, [&](v_pass pass) { put(pass); });
            return;
        }
        const auto number = [&](v_pass pass) { return static_cast<std::size_t>(std::count(begin, end, pass)); };
        const auto all_first = number(v_pass::first_forward);
        const auto all_second = number(v_pass::second_forward);
        const auto all_gradients = number(v_pass::first_gradient);
        const auto quota = std::min(down_.position() + 1, ends_.stashes / 2);
        const auto second = std::min(quota, all_second);
        const auto first = std::min(ends_.stashes - quota, all_first);
        for (auto i = 2 * (ranks_ - 1 - down_.position()); i > 0 && put_up_to(v_pass::first_forward, first); --i) {
        }
        for (bool more = true; more;) {
            more = put_up_to(v_pass::first_forward, first);
            more |= put_up_to(v_pass::second_forward, second);
        }
        while (done(v_pass::second_forward) < all_second) {
            put_up_to(v_pass::first_gradient, all_gradients);
            put(v_pass::second_forward);
        }
        while (done(v_pass::first_forward) < all_first) {
            put_up_to(v_pass::first_gradient, all_gradients);
            put(v_pass::first_forward);
        }
        while (put_up_to(v_pass::first_gradient, all_gradients)) {
        }
    }
    /// Appends the block's passes from `from` to the last forward, without the cool-down's gradients.
    constexpr void steady_state(place from) {
        const auto half = (ends_.stashes + 1) / 2;
        const auto late_second = ends_.rebuild_cool_down ? half : 0;
        const auto late_first =
            ends_.rebuild_cool_down ? std::min(down_.position() + 1, ends_.stashes - half) : std::size_t{0};
        const auto forwards_left = [&] {
            return done(v_pass::first_forward) < count_ || done(v_pass::second_forward) < count_;
        };
        for (auto at = from; at != sequence_.end() && forwards_left(); ++at) {
            if (*at == v_pass::first_gradient && done(*at) + late_first >= count_) continue;
            if (*at == v_pass::second_gradient && done(*at) + late_second >= count_) continue;
            put(*at);
        }
    }
    /// Appends the last gradients. The gradients of the last microbatch pass down the ranks and back without waiting.
    /// The gradients of consecutive microbatches are two cells apart.
    constexpr void cool_down() {
        auto& first = done(v_pass::first_gradient);
        auto& second = done(v_pass::second_gradient);
        while (first < count_ || second < count_) {
            const auto first_cell = 2 * first + down_.position() + 1;
            const auto second_cell = 2 * second + 2 * ranks_ - down_.position();
            const bool is_first = second >= count_ || (first < count_ && first_cell < second_cell);
            put(is_first ? v_pass::first_gradient : v_pass::second_gradient);
        }
    }

    stage down_;
    stage back_;
    std::size_t ranks_;
    std::size_t count_;
    v_phases ends_;
    passes sequence_{};
    std::array<std::size_t, 5> done_{};
    std::vector<operation> lane_{};
};

} // namespace detail

/// Repeats a block for v placement, and rebuilds the warm-up and the cool-down (Controllable Memory, appendix A). The
/// lanes have forwards and input gradients. `fill_with_weights` adds the weight gradients. Contract: v placement.
template <pipeline_graph Graph>
[[nodiscard]] constexpr compute_lanes v_lanes(const Graph& g, const building_block<Graph>& block, v_phases ends) {
    OPTPIPE_EXPECT(is_v_placed(g), "v_lanes: needs v placement");
    compute_lanes lanes(g.ranks());
    for (const rank r : g.all_ranks())
        lanes[r] = detail::v_lane<Graph>{g, block, r, ends}.make();
    return lanes;
}

} // namespace optpipe
