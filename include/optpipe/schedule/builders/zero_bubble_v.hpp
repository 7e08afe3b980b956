#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/v_block.hpp"
#include "optpipe/schedule/dispatch/dispatch_search.hpp"
#include "optpipe/schedule/dispatch/lane_builder.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {
namespace detail {

/// Switches of ZB-V's heuristic. `fill_before_forward` lets a weight gradient longer than the gap run before a forward.
/// `fill_before_gradient` lets a weight gradient longer than the gap run before a gradient of the rank's second stage.
/// A weight gradient longer than the gap runs only on the rank that has idled longest.
struct zero_bubble_v_switches {
    bool fill_before_forward = false;
    bool fill_before_gradient = false;
};

/// One run of the heuristic: builds and simulates the schedule together.
template <pipeline_graph Graph> class zero_bubble_v_run {
public:
    /// `allowed` is empty, or has one idle time per rank. A rank may idle for its time in `allowed`, even if other
    /// ranks have idled less.
    constexpr zero_bubble_v_run(const basic_problem<Graph>& p, zero_bubble_v_switches switches,
                                const std::vector<duration>& allowed, stop_check stop)
        : p_{p}, switches_{switches}, allowed_{allowed}, stop_{stop}, ranks_{p.graph.ranks()},
          count_{p.graph.microbatches()}, lanes_{p, p.memory_limit} {}

    /// Empty if the memory is too small, or if `stop` returned true.
    constexpr std::optional<basic_schedule<Graph>> run() {
        first_microbatch();
        warm_up();
        while (!failed_ && left() > 0) {
            const auto before = left();
            gradients();
            forwards();
            if (left() == before || stop_()) failed_ = true;
        }
        if (failed_) return std::nullopt;
        for (const rank r : p_.graph.all_ranks())
            lanes_.put_all_weights(r);
        return std::move(lanes_).take();
    }
    [[nodiscard]] constexpr std::vector<duration> idle() const {
        std::vector<duration> all;
        for (const auto& lane : lanes_)
            all.push_back(lane.idle);
        return all;
    }

private:
    struct state : lane_builder {
        /// Numbers of forwards and gradients done, for the rank's first and second stages.
        std::size_t forwards[2] = {0, 0};
        std::size_t gradients[2] = {0, 0};
        [[nodiscard]] constexpr std::size_t begun_forwards() const { return forwards[0] + forwards[1]; }
    };

    constexpr stage stage_of(std::size_t r, std::size_t chunk) const {
        return stage{chunk == 0 ? r : 2 * ranks_ - 1 - r};
    }
    constexpr state& own(std::size_t r) { return lanes_[rank{r}]; }
    constexpr const state& own(std::size_t r) const { return lanes_[rank{r}]; }
    constexpr memory_size limit(std::size_t r) const { return lanes_.limit(rank{r}); }
    constexpr std::size_t left() const {
        std::size_t sum = 0;
        for (const auto& lane : lanes_)
            sum += 4 * count_ - lane.begun_forwards() - lane.gradients[0] - lane.gradients[1];
        return sum;
    }
    /// The arrival of the input of a stage's next forward or gradient; unlimited if not yet known.
    constexpr duration forward_arrival(std::size_t r, std::size_t chunk) const {
        const auto m = own(r).forwards[chunk];
        return m < count_ ? lanes_.arrival(forward(stage_of(r, chunk), microbatch{m})) : duration::unlimited();
    }
    constexpr duration gradient_arrival(std::size_t r, std::size_t chunk) const {
        const auto m = own(r).gradients[chunk];
        return m < count_ ? lanes_.arrival(backward_input(stage_of(r, chunk), microbatch{m})) : duration::unlimited();
    }

    /// Places the weight gradients that fit while the rank waits until `ready`. With `beyond`, places one more weight
    /// gradient if the rank would otherwise idle longest.
    constexpr void fill_wait(std::size_t r, duration ready, bool beyond) {
        const auto& lane = own(r);
        while (lane.has_weight() && lane.clock + next_weight(lane) <= ready + time_slack())
            lanes_.put_weight(rank{r});
        const auto gap = ready - lane.clock;
        if (beyond && lane.has_weight() && gap > std::max(duration{}, allowance(r)) + time_slack())
            lanes_.put_weight(rank{r});
    }
    constexpr duration next_weight(const state& own) const { return duration_of(p_, own.first_weight()); }
    constexpr duration allowance(std::size_t r) const {
        auto most = lanes_.longest_idle();
        if (!allowed_.empty()) most = std::max(most, allowed_[r]);
        return most - own(r).idle;
    }
    constexpr void put_forward(std::size_t r, std::size_t chunk) {
        const auto op = forward(stage_of(r, chunk), microbatch{own(r).forwards[chunk]++});
        lanes_.put(op, lanes_.arrival(op));
    }
    constexpr void put_gradient(std::size_t r, std::size_t chunk, duration ready) {
        lanes_.put(backward_input(stage_of(r, chunk), microbatch{own(r).gradients[chunk]++}), ready);
    }

    /// Places the forwards of the first microbatch, down the ranks and back. Until the first microbatch returns, the
    /// first stages run forwards of further microbatches. Memory stays free for the forwards that must come before the
    /// first gradient.
    constexpr void first_microbatch() {
        for (std::size_t r = 0; r < ranks_; ++r)
            put_forward(r, 0);
        for (auto r = ranks_; r-- > 0;) {
            const auto f = std::max(p_.costs[stage_of(r, 0)].activation, p_.costs[stage_of(r, 1)].activation);
            while (own(r).forwards[0] < count_ && own(r).held + static_cast<double>(2 + 2 * r) * f <= limit(r) &&
                   own(r).clock + p_.costs[stage_of(r, 0)].forward <= forward_arrival(r, 1) + time_slack())
                for (std::size_t before = 0; before <= r; ++before)
                    put_forward(before, 0);
            put_forward(r, 1);
        }
    }
    constexpr duration time_slack() const { return tolerance{}.at(p_.costs[stage{0}].work()); }
    /// While there is room, each rank runs forwards to catch up with the previous rank. A rank catches up when it has
    /// as many forwards in all and more forwards of its second stage.
    constexpr void warm_up() {
        std::size_t chunk = 0;
        for (std::size_t r = 1; r < ranks_; ++r) {
            const auto behind = [&] {
                const auto& lane = own(r);
                const auto& before = own(r - 1);
                return lane.begun_forwards() < before.begun_forwards() ||
                       (lane.forwards[1] <= before.forwards[1] && before.forwards[1] < count_);
            };
            for (std::size_t refused = 0; refused < 2 && behind(); chunk = 1 - chunk) {
                const bool any = chunk == 0 ? put_down(r) : put_back(r);
                refused = any ? 0 : refused + 1;
            }
        }
    }
    constexpr bool put_down(std::size_t from) {
        bool any = false;
        for (auto r = from; r < ranks_; ++r)
            any |= put_if_possible(r, 0);
        return any;
    }
    constexpr bool put_back(std::size_t from) {
        bool any = false;
        for (auto r = ranks_; r-- > from;)
            any |= put_if_possible(r, 1);
        return any;
    }
    constexpr bool put_if_possible(std::size_t r, std::size_t chunk) {
        if (forward_arrival(r, chunk).is_unlimited()) return false;
        if (own(r).held + p_.costs[stage_of(r, chunk)].activation > limit(r)) return false;
        put_forward(r, chunk);
        return true;
    }

    /// Places one gradient on each rank. The gradients of first stages are placed first, from the last rank back to the
    /// first. The gradients of second stages follow.
    constexpr void gradients() {
        std::vector<std::size_t> chunk;
        for (std::size_t r = 0; r < ranks_; ++r)
            chunk.push_back(next_gradient(r));
        for (auto r = ranks_; r-- > 0;)
            if (chunk[r] == 0) do_gradient(r, 0);
        for (std::size_t r = 0; r < ranks_; ++r)
            if (chunk[r] == 1) do_gradient(r, 1);
    }
    constexpr std::size_t next_gradient(std::size_t r) const {
        const auto& done = own(r).gradients;
        if (done[1] >= count_) return 0;
        if (done[0] >= done[1]) return 1;
        if (r + 1 == ranks_ || own(r + 1).gradients[0] > done[0]) return 0;
        return 1;
    }
    constexpr void do_gradient(std::size_t r, std::size_t chunk) {
        const auto ready = gradient_arrival(r, chunk);
        if (ready.is_unlimited()) return;
        const auto& c = p_.costs[stage_of(r, chunk)];
        fill_wait(r, ready, chunk == 0 || switches_.fill_before_gradient);
        if (!lanes_.make_room(rank{r}, std::max(memory_size{}, c.weight_stash - c.activation))) failed_ = true;
        if (own(r).gradients[chunk] < count_) put_gradient(r, chunk, ready);
    }
    constexpr void forwards() {
        for (std::size_t r = 0; r < ranks_; ++r) {
            const auto& lane = own(r);
            if (lane.forwards[1] >= count_) continue;
            const bool second_there = !forward_arrival(r, 1).is_unlimited();
            const bool first_there = !forward_arrival(r, 0).is_unlimited();
            std::size_t chunk = 1;
            if (lane.forwards[1] >= lane.forwards[0] || (!second_there && first_there)) chunk = 0;
            if (chunk == 0 ? !first_there : !second_there) continue;
            if (!lanes_.make_room(rank{r}, p_.costs[stage_of(r, chunk)].activation)) continue;
            fill_wait(r, forward_arrival(r, chunk), switches_.fill_before_forward);
            put_forward(r, chunk);
        }
    }

    const basic_problem<Graph>& p_;
    zero_bubble_v_switches switches_;
    const std::vector<duration>& allowed_;
    stop_check stop_;
    std::size_t ranks_;
    std::size_t count_;
    lane_builders<Graph, state> lanes_;
    bool failed_ = false;
};

} // namespace detail

/// ZB-V (Zero Bubble, Qi et al., 2024, section 6), a schedule for v placement. If T_F = T_I = T_W, the schedule has no
/// bubble, and takes the memory of 1F1B. The heuristic supports any costs. Before the first gradient, as many forwards
/// run as fit; then a gradient and a forward alternate. Weight gradients run in the gaps, or when memory must be freed.
/// The result is the best of several runs of the heuristic. A rank whose stashes all fit in memory holds at most 2R
/// stashes of its largest stage, as published.
struct zero_bubble_v_builder {
    static constexpr std::string_view name = "zb-v";

    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p,
                                                                   stop_check stop = {}) const {
        if (const auto why = detail::why_no_v_schedule(p); !why.empty()) return does_not_apply(why);
        const auto published = 2.0 * static_cast<double>(p.graph.ranks());
        auto best = best_run(without_excess(p, published), stop);
        if (best.found() && !stop.is_requested()) return std::move(best).take();
        if (stop()) return was_stopped();
        const auto all = 2.0 * static_cast<double>(p.graph.microbatches());
        // The memory is too small for the heuristic. The result is an order for more memory; `simulate` reports the
        // memory that it needs.
        for (auto stashes = published;; stashes *= 2.0) {
            best = best_run(with_room_for(p, stashes), stop);
            if (stop()) return was_stopped();
            if (best.found()) return std::move(best).take();
            if (stashes > all) return does_not_apply("ZB-V has no recomputation, and the problem's stages need it");
        }
    }

private:
    template <pipeline_graph Graph> static constexpr memory_size largest_stash(const basic_problem<Graph>& p) {
        memory_size largest{};
        for (const auto& c : p.costs)
            largest = std::max({largest, c.activation, c.weight_stash});
        return largest;
    }
    template <pipeline_graph Graph>
    static constexpr basic_problem<Graph> without_excess(basic_problem<Graph> p, double stashes) {
        per_rank<memory_size, Graph::rank_extent> all(p.graph.ranks());
        for (const stage s : p.graph.all_stages())
            all[p.rank_of(s)] +=
                static_cast<double>(p.graph.microbatches()) * std::max(p.costs[s].activation, p.costs[s].weight_stash);
        for (const rank r : p.graph.all_ranks())
            if (p.memory_limit[r] > all[r]) p.memory_limit[r] = stashes * largest_stash(p);
        return p;
    }
    template <pipeline_graph Graph>
    static constexpr basic_problem<Graph> with_room_for(basic_problem<Graph> p, double stashes) {
        for (auto& limit : p.memory_limit)
            limit = std::max(limit, stashes * largest_stash(p));
        return p;
    }
    template <pipeline_graph Graph>
    static constexpr best_order<Graph> best_run(const basic_problem<Graph>& p, stop_check stop) {
        best_order<Graph> best{p};
        for (const bool before_forward : {false, true})
            for (const bool before_gradient : {false, true})
                repeat_run(p, {before_forward, before_gradient}, best, stop);
        return best;
    }
    /// Repeats runs as long as the longest idle time falls. A rank may idle for (longest idle time of any rank) − (its
    /// own idle time), both in the previous run.
    template <pipeline_graph Graph>
    static constexpr void repeat_run(const basic_problem<Graph>& p, detail::zero_bubble_v_switches switches,
                                     best_order<Graph>& best, stop_check stop) {
        std::vector<duration> allowed;
        auto least = duration::unlimited();
        constexpr std::size_t most_runs = 64; // usually, a few runs are enough
        for (std::size_t runs = 0; runs < most_runs && !stop(); ++runs) {
            detail::zero_bubble_v_run<Graph> run{p, switches, allowed, stop};
            auto made = run.run();
            if (!made) return;
            best.offer_earliest(*made);
            const auto idle = run.idle();
            const auto most = *std::max_element(idle.begin(), idle.end());
            if (most >= least) return;
            least = most;
            allowed.clear();
            for (const auto one : idle)
                allowed.push_back(most - one);
        }
    }
};
inline constexpr zero_bubble_v_builder zero_bubble_v{};

} // namespace optpipe
