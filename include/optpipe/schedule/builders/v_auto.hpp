#pragma once

#include "optpipe/core/contract.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/builders/v_fixed.hpp"
#include "optpipe/schedule/builders/v_half.hpp"
#include "optpipe/schedule/builders/v_lanes.hpp"
#include "optpipe/schedule/builders/v_min.hpp"
#include "optpipe/schedule/builders/zero_bubble_v.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/gap_filling.hpp"
#include "optpipe/schedule/dispatch/lane_search.hpp"
#include "optpipe/schedule/dispatch/lane_timing.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// How `v_search` divides its effort. A member `…_part` with the value n stands for effort / n. Not tuned.
struct v_search_parameters {
    /// Blocks are tried with one setting until effort / `screening_part` is used up. At least `least_screened` blocks
    /// are tried, even if they need more effort.
    std::size_t screening_part = 4;
    std::size_t least_screened = 8;
    /// The `tried_further` best blocks are tried with every setting, and with 0 to `more_forwards` − 1 additional
    /// forwards in the warm-up.
    std::size_t tried_further = 8;
    std::size_t more_forwards = 4;
    /// Pulling operations into gaps may use effort / `squeezing_part`. The search from the pulled orders may use the
    /// same effort. One pull takes as long as `fillings_per_squeeze` fillings with weight gradients.
    std::size_t squeezing_part = 4;
    std::size_t fillings_per_squeeze = 10;
    /// The search from each of the best orders may use 1 / `improving_part` of the remaining effort.
    std::size_t improving_part = 3;
    /// The local search starts from `kept` orders. After operations are pulled into gaps, `kept_squeezed` orders are
    /// used.
    std::size_t kept = 6;
    std::size_t kept_squeezed = 3;
    /// The longest period of a block, in cells per microbatch. A block with the longest period needs about half of the
    /// memory of V-Min.
    std::size_t longest_period = 2 * v_period;
    /// The ways to fill the best order with weight gradients.
    std::array<weight_filling, 4> fillings{{{0.5, false}, {0.0, false}, {1.0, true}, {0.5, true}}};
};

/// Searches for the block of v placement with the shortest step that fits in memory.
template <pipeline_graph Graph> class v_search {
public:
    using budget_type = per_rank<memory_size, Graph::rank_extent>;

    constexpr v_search(const basic_problem<Graph>& p, std::size_t effort, std::uint64_t seed, stop_check stop)
        : p_{with_published_memory(p)}, even_{with_even_costs(p)}, effort_{effort}, seed_{seed}, stop_{stop},
          stashes_{most_stashes(p)}, best_{p_}, squeezed_{p_} {
        slack_ = tolerance{}.at(p_.memory_scale());
        for (const rank r : p.graph.all_ranks())
            if (const auto largest = largest_stash(p, r); largest > memory_size{})
                stashes_ = std::min(stashes_, static_cast<std::size_t>((p_.memory_limit[r] + slack_) / largest));
    }

    constexpr outcome<basic_order<Graph>> run() {
        collect();
        try_all();
        offer_published();
        if (stop_.is_requested() || (stop_() && !best_.found())) return was_stopped();
        const auto bound = bounds_of(p_).best() + tolerance{}.at(best_.value());
        if (best_.value() > bound) improve();
        if (best_.value() > bound) begin_from_squeezed(bound);
        if (stop_.is_requested()) return was_stopped();
        if (best_.found()) return std::move(best_).take();
        return least_;
    }

private:
    struct candidate {
        v_pattern pattern{};
        bool fits = true;
        /// The largest memory that any rank needs.
        memory_size needed{};
        /// Number of cells from the start of a microbatch to its last input gradient.
        std::size_t latency = 0;
        std::size_t number = 0;
    };
    struct tried {
        compute_lanes lanes{};
        duration value{};
    };

    static constexpr v_search_parameters with_{};
    static_assert(2 * v_search_parameters{}.longest_period <= std::numeric_limits<std::uint64_t>::digits,
                  "passes_collide has a bit for each cell");

    /// Number of F, I and W of all microbatches and stages.
    constexpr std::size_t operations() const { return 3 * p_.graph.cells(); }
    static constexpr std::size_t most_stashes(const basic_problem<Graph>& p) { return 2 * p.graph.ranks(); }
    /// The problem with memory for at most `most_stashes` of the largest stashes on each rank.
    static constexpr basic_problem<Graph> with_published_memory(basic_problem<Graph> p) {
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = std::min(p.memory_limit[r], static_cast<double>(most_stashes(p)) * largest_stash(p, r));
        return p;
    }
    static constexpr memory_size largest_stash(const basic_problem<Graph>& p, rank r) {
        const auto& down = p.costs[stage{r.value()}];
        const auto& back = p.costs[stage{2 * p.graph.ranks() - 1 - r.position()}];
        return std::max({down.activation, back.activation, down.weight_stash, back.weight_stash});
    }

    /// Memory of all microbatches' stashes at once: the most that a rank can need.
    constexpr memory_size memory_of_all(rank r) const {
        return static_cast<double>(2 * p_.graph.microbatches()) * largest_stash(p_, r);
    }

    /// Collects patterns of ever longer periods, up to the first period for which a pattern fits. A period has one
    /// microbatch, or two microbatches that are unevenly spaced.
    constexpr void collect() {
        for (auto cells = 2 * v_period; cells <= 2 * with_.longest_period && !stop_(); ++cells) {
            if (cells % 2 == 0) collect({.period = cells / 2});
            for (auto stride = v_period; 2 * stride < cells; ++stride)
                collect({.period = cells, .group = 2, .stride = stride});
            if (std::any_of(candidates_.begin(), candidates_.end(), [](const candidate& one) { return one.fits; }))
                break;
        }
        std::sort(candidates_.begin(), candidates_.end(), [](const candidate& x, const candidate& y) {
            if (x.fits != y.fits) return x.fits;
            if (x.needed != y.needed) return x.needed > y.needed;
            return x.latency != y.latency ? x.latency < y.latency : x.number < y.number;
        });
    }
    /// Collects all patterns without colliding passes that exceed each limit by at most one stash. An excess of one
    /// stash may vanish: warm-up and cool-down are rebuilt, and weight gradients can run earlier. With the shortest
    /// period, all slopes on the way down the V are tried. Longer periods suit little memory, and are tried only with
    /// the least slope.
    constexpr void collect(v_pattern pattern) {
        const auto ranks = p_.graph.ranks();
        const std::size_t steepest = pattern.period == v_period ? v_period - 1 : 1;
        for (pattern.slope = 1; pattern.slope <= steepest; ++pattern.slope)
            for (pattern.slope_after_bend = 1; pattern.slope_after_bend <= pattern.slope; ++pattern.slope_after_bend) {
                const auto bends = pattern.slope == pattern.slope_after_bend ? 2 : std::max(ranks, std::size_t{2});
                for (pattern.bend = 1; pattern.bend < bends; ++pattern.bend)
                    consider_waits(pattern);
            }
    }
    constexpr void consider_waits(v_pattern pattern) {
        for (pattern.forward_wait = 0; pattern.forward_wait < v_period; ++pattern.forward_wait)
            for (pattern.gradient_wait = 0; pattern.gradient_wait < v_period; ++pattern.gradient_wait)
                for (pattern.turn_wait = 0; pattern.turn_wait < v_period && !stop_(); ++pattern.turn_wait)
                    consider(pattern);
    }
    constexpr void consider(const v_pattern& pattern) {
        auto block = make_v_block(p_.graph, pattern);
        if (passes_collide(block) || !place_weight_gradients(p_.graph, block)) return;
        auto needed = memory_of_repetition(p_, block);
        for (const rank r : p_.graph.all_ranks())
            needed[r] = std::min(needed[r], memory_of_all(r));
        candidate one{pattern, true, {}, block.cells[stage{0}].backward_input, candidates_.size()};
        bool over_limit = false;
        for (const rank r : p_.graph.all_ranks()) {
            one.needed = std::max(one.needed, needed[r]);
            one.fits = one.fits && needed[r] <= p_.memory_limit[r] + slack_;
            over_limit = over_limit || needed[r] > p_.memory_limit[r] + largest_stash(p_, r) + slack_;
        }
        if (!one.fits) remember_least(needed);
        if (!over_limit) candidates_.push_back(one);
    }
    constexpr bool passes_collide(const building_block<Graph>& block) const {
        const auto ranks = p_.graph.ranks();
        for (std::size_t r = 0; r < ranks; ++r) {
            std::uint64_t taken = 0;
            for (const stage s : {stage{r}, stage{2 * ranks - 1 - r}}) {
                const std::size_t cells[] = {block.cells[s].forward, block.cells[s].backward_input};
                for (const auto cell : cells)
                    for (std::size_t m = 0; m < block.group; ++m) {
                        const auto bit = std::uint64_t{1} << (cell + block.shift(m)) % block.period;
                        if ((taken & bit) != 0) return true;
                        taken |= bit;
                    }
            }
        }
        return false;
    }
    /// For the refusal, remembers the block that exceeds the limits least, and the rank with the largest excess.
    constexpr void remember_least(const budget_type& needed) {
        refusal why;
        why.reason = refusal_reason::over_memory;
        why.sentence = "no building block for v placement needs as little memory";
        for (const rank r : p_.graph.all_ranks())
            if (needed[r] - p_.memory_limit[r] > why.needed - why.limit) {
                why.rank = r;
                why.needed = needed[r];
                why.limit = p_.memory_limit[r];
            }
        if (least_.sentence.empty() || why.needed - why.limit < least_.needed - least_.limit) least_ = why;
    }

    constexpr building_block<Graph> block_of(const candidate& one) const {
        auto block = make_v_block(p_.graph, one.pattern);
        OPTPIPE_EXPECT(place_weight_gradients(p_.graph, block), "v_search: a candidate's weight gradients have cells");
        return block;
    }
    /// Screens the candidates with one setting and a share of the effort. Then tries every setting for the best.
    constexpr void try_all() {
        struct screened {
            duration value{};
            std::size_t which = 0;
            constexpr bool operator<(const screened& other) const {
                return value != other.value ? value < other.value : which < other.which;
            }
        };
        std::vector<screened> order;
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
            if ((i >= with_.least_screened && spent_ > effort_ / with_.screening_part) || stop_()) break;
            const auto block = block_of(candidates_[i]);
            if (candidates_[i].fits && !best_.found())
                best_.offer(*interleave(p_.graph, lanes_of(repeat(p_.graph, block))));
            const auto value = offer_filled(v_lanes(p_.graph, block, {stashes_, true, true, true}));
            order.push_back({value, i});
        }
        std::sort(order.begin(), order.end());
        // Smaller stashes may leave room for more forwards in the warm-up than the largest stash permits.
        for (std::size_t more = 0; more < with_.more_forwards; ++more)
            for (std::size_t i = 0; i < std::min(with_.tried_further, order.size()); ++i) {
                if ((i + more > 0 && spent_ > effort_ / 2) || stop_()) break;
                try_ends(block_of(candidates_[order[i].which]), stashes_ + more);
            }
        std::sort(tried_.begin(), tried_.end(), [](const tried& x, const tried& y) { return x.value < y.value; });
    }
    /// Offers the published schedules, too, which may give better orders from the same blocks.
    constexpr void offer_published() {
        if (!best_.found()) return;
        const auto offer = [this](const auto& build) {
            if (stop_()) return;
            if (auto made = build(p_, stop_)) best_.offer(*std::move(made));
        };
        offer(zero_bubble_v);
        offer(v_half);
        offer(v_min);
    }
    constexpr void try_ends(const building_block<Graph>& block, std::size_t stashes) {
        for (const bool rebuild : {true, false})
            for (const bool keep_weights : {true, false})
                attempt(v_lanes(p_.graph, block, {stashes, true, rebuild, keep_weights}));
    }
    /// Fills weight gradients into the lanes in two ways: with the real costs, and with equal costs for all passes.
    constexpr void attempt(compute_lanes lanes) {
        if (stop_()) return;
        const auto value = std::min(offer_filled(lanes), offer_evenly_filled(lanes));
        squeeze(lanes);
        if (!value.is_unlimited()) keep_best(tried_, {std::move(lanes), value}, with_.kept);
    }
    static constexpr void keep_best(std::vector<tried>& some, tried one, std::size_t most) {
        if (some.size() < most) {
            some.push_back(std::move(one));
            return;
        }
        const auto worst = std::max_element(some.begin(), some.end(),
                                            [](const tried& x, const tried& y) { return x.value < y.value; });
        if (one.value < worst->value) *worst = std::move(one);
    }
    /// Pulls ready operations into the remaining gaps, as in the paper's cool-down.
    constexpr void squeeze(const compute_lanes& lanes) {
        if (squeezing_ > effort_ / with_.squeezing_part || stop_()) return;
        squeezing_ += with_.fillings_per_squeeze * operations();
        const auto filled = timer_.fill(lanes);
        if (!filled) return;
        const auto value = squeezed_.offer_earliest(fill_gaps(p_, **filled, p_.memory_limit, stop_));
        keep_best(squeezed_lanes_, {lanes, value}, with_.kept_squeezed);
    }
    constexpr void begin_from_squeezed(duration bound) {
        if (squeezed_.value() < best_.value()) best_.offer(*squeezed_);
        const auto fill = [this](const compute_lanes& lanes) { return timer_.fill(lanes); };
        const auto effort = effort_ / with_.squeezing_part;
        std::size_t spent = 0;
        for (const auto& one : squeezed_lanes_)
            if (best_.value() > bound && spent < effort && !stop_())
                spent += lane_search{p_, fill, best_, seed_, stop_}.run(one.lanes, effort - spent);
    }
    constexpr duration offer_filled(const compute_lanes& lanes, weight_filling how = {}) {
        spent_ += operations();
        if (stop_()) return duration::unlimited();
        const auto filled = timer_.fill(lanes, how);
        return filled ? best_.offer_earliest(**filled) : duration::unlimited();
    }
    /// Fills in weight gradients as if all passes took the same time.
    constexpr duration offer_evenly_filled(const compute_lanes& lanes) {
        spent_ += operations();
        if (stop_()) return duration::unlimited();
        const auto filled = even_timer_.fill(lanes);
        if (!filled) return duration::unlimited();
        const auto timed = timer_.run(lanes_of(p_, **filled));
        return timed ? best_.offer_earliest(**timed) : duration::unlimited();
    }
    constexpr void improve() {
        for (const auto& how : with_.fillings)
            if (!tried_.empty()) offer_filled(tried_.front().lanes, how);
        const auto fill = [this](const compute_lanes& lanes) { return timer_.fill(lanes); };
        const auto keep = [this](const compute_lanes& lanes) { return timer_.run(lanes); };
        for (const auto& one : tried_)
            if (spent_ < effort_ && !stop_())
                spent_ += lane_search{p_, fill, best_, seed_, stop_}.run(one.lanes,
                                                                         (effort_ - spent_) / with_.improving_part);
        if (best_.found() && spent_ < effort_ && !stop_())
            spent_ += lane_search{p_, keep, best_, seed_, stop_}.run(lanes_of(p_, *best_), effort_ - spent_);
    }

    basic_problem<Graph> p_;
    basic_problem<Graph> even_;
    std::size_t effort_;
    std::uint64_t seed_;
    stop_check stop_;
    lane_timer<Graph> timer_{p_, p_.memory_limit};
    lane_timer<Graph> even_timer_{even_, p_.memory_limit};
    memory_size slack_{};
    std::size_t stashes_;
    std::vector<candidate> candidates_{};
    std::vector<tried> tried_{};
    std::size_t spent_ = 0;
    std::size_t squeezing_ = 0;
    best_order<Graph> best_;
    best_order<Graph> squeezed_;
    std::vector<tried> squeezed_lanes_{};
    refusal least_{};
};

} // namespace detail

/// The adaptive v schedule (Controllable Memory, Qi et al., 2024, appendix A). The schedule repeats the building block
/// for v placement with the shortest step that fits in memory. No rank holds more than 2R stashes. If none of the
/// paper's blocks fits, microbatches start more than six cells apart. Warm-up and cool-down are rebuilt, weight
/// gradients fill the remaining gaps, and a local search improves the best orders.
struct v_auto_builder {
    static constexpr std::string_view name = "v-auto";

    /// Limit on the number of operations that the search places. Some trials are made even if the limit is reached. Not
    /// tuned.
    std::size_t effort = 8'000'000;
    std::uint64_t seed = 1;
    [[nodiscard]] static constexpr std::array<builder_parameter<v_auto_builder>, 1> parameters() {
        return {{{"effort", &v_auto_builder::effort}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (const auto why = detail::why_no_v_schedule(p); !why.empty()) return does_not_apply(why);
        return detail::v_search<Graph>{p, effort, seed, stop}.run();
    }
};
inline constexpr v_auto_builder v_auto{};

} // namespace optpipe
