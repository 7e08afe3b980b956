#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/layer_divisions.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/planner/partition/division_graph.hpp"
#include "optpipe/planner/partition/least_longest.hpp"
#include "optpipe/planner/partition/piece_sums.hpp"
#include "optpipe/planner/partition/rank_chains.hpp"
#include "optpipe/planner/partition/rank_load.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::detail {

struct bound_of_divisions {
    duration bound{};
    /// A division whose objective may be only slightly above `bound`, by the rules of the bound. Empty if none was
    /// found.
    layer_division division{};
};

/// A lower bound on the objectives of all divisions of a chain of pieces among the stages of a pipeline. Each rank has
/// one stage, or two stages as a loop or as a v.
///
/// A rank runs the operations of its pieces for all microbatches. The pieces before and after a rank's stages are
/// known. The least times before and after the rank's work follow from the pieces (`rank_load`).
///
/// `any_within` decides exactly whether any division leaves each rank enough time. `any_within` goes from rank to rank,
/// and keeps all pairs of ends (of the first and the second stages) that can be reached.
///
/// `any_in_order` decides more. It keeps the stages of ranks that are in any possible division (`division_graph`), and
/// the longest operations that other ranks have in all these divisions. Propagation over the orders of a rank's
/// operations (`rank_chains`) takes a thousand times as long as the loads, so it only tests the stages of a division
/// that seems possible, until a division passes or none is left.
class division_bound {
public:
    /// `work[i]` is a lower bound on the time of a rank of speed 1 for piece i, per microbatch. `in_pairs` says whether
    /// two operations may run at the same time. Contract: each layer feeds the next one, microbatches have no factors,
    /// and `p` and `pipeline` outlive this object.
    division_bound(const partition_problem& p, const problem& pipeline, const layer_cuts& cuts,
                   const std::vector<duration>& work, bool in_pairs)
        : given_{p}, pipeline_{pipeline}, second_{second_stages_of(pipeline.graph)}, in_pairs_{in_pairs},
          has_heads_{pipeline.objective != objective_kind::span},
          has_tails_{has_heads_ && !in_pairs}, before_{p, cuts, work, pipeline.split_backward, in_pairs},
          last_stage_(pipeline.graph.ranks()) {
        const auto sums_of = [&](duration sums::*part) {
            std::vector<duration> all;
            for (const auto& sum : before_.all())
                all.push_back(sum.*part);
            return all;
        };
        longest_forward_ = {sums_of(&sums::forward), pipeline.graph.stages()};
        longest_gradient_ = {sums_of(&sums::gradient), pipeline.graph.stages()};
        for (const rank r : pipeline.graph.all_ranks())
            fastest_ = std::max(fastest_, p.speed_of(r));
        slack_ = largest_slack();
        if (pipeline.split_backward && !in_pairs)
            last_weight_ = (before_[1].work - before_[1].forward - before_[1].gradient) / fastest_;
        for (const stage s : pipeline.graph.all_stages())
            last_stage_[pipeline.rank_of(s)] = s;
        // If layers have no backward, no gradients pass between stages.
        const bool have_gradients = p.layers.front().costs.gradients != gradient_kind::none;
        hops_.resize(pipeline.graph.stages());
        for (std::size_t s = 1; s < hops_.size(); ++s) {
            const stage from{s - 1};
            hops_[s] = {hops_[s - 1].forward + pipeline.hop(from, stage{s}),
                        hops_[s - 1].gradient + (have_gradients ? pipeline.hop(stage{s}, from) : duration{})};
        }
    }

    /// Whether each rank has one stage, or two stages as a loop or as a v.
    [[nodiscard]] bool applies() const { return second_ != second_stages::unknown; }
    /// A number of pieces before all second stages, and the largest objective that is known to be impossible with it.
    struct second_beginning {
        std::size_t middle = 0;
        duration refuted{};
    };
    using second_beginnings = std::vector<second_beginning>;
    /// A bound that is raised step by step.
    struct raising {
        bound_of_divisions found{};
        second_beginnings begin{};
        /// The next step, and whether the last step raised the bound, as all steps before it.
        duration step{};
        bool is_growing = true;
        /// Whether propagation decides, after the loads of ranks alone can't raise the bound further.
        bool in_order = false;
        bool is_done = false;
        /// Steps no longer grow from this bound on. Perhaps no division is possible.
        duration most{};
        /// The work until now.
        std::size_t checks = 0;
    };
    /// The bound ends at about twice `known`. Contract: `known` is a positive lower bound, and `applies()` is true.
    [[nodiscard]] raising begin(duration known) const {
        raising start{{known, {}}, all_second_beginnings(), first_step * known};
        start.most = 2.0 * known;
        return start;
    }
    /// Tries to raise the bound by one step. Does nothing if `stop` returns true, or if all steps together have done a
    /// few seconds of work. Deterministic if `stop` never returns true.
    void raise_once(raising& at, stop_check stop) const {
        const stop_when is_enough{
            [&] { return (at.checks += at.in_order ? checks_in_order : 1) > most_checks || stop(); }};
        const stop_check enough{is_enough};
        auto division = any_of(at.begin, at.found.bound + at.step, [&](duration objective, std::size_t middle) {
            return at.in_order ? any_in_order(objective, middle, enough) : any_within(objective, middle, enough);
        });
        if (stop()) return;
        if (!division) at.found.bound += at.step;
        at.is_growing = at.is_growing && !division && at.found.bound < at.most;
        at.step = (at.is_growing ? 2.0 : 0.5) * at.step;
        if (division && !division->empty()) at.found.division = *std::move(division);
        at.is_done = at.checks > most_checks;
        if (at.is_done || at.step >= last_step * at.found.bound) return;
        at.is_done = at.in_order || !has_tails_;
        at.in_order = true;
        at.is_growing = true;
        at.step = first_step * at.found.bound;
    }

private:
    using sums = piece_sums::sums;
    enum class second_stages : std::uint8_t { none, as_loop, as_v, unknown };
    /// Steps, relative to the bound. The first step is doubled until an objective is possible. Plans are seldom proven
    /// more precisely than by the last step.
    static constexpr double first_step = 0.01;
    static constexpr double last_step = 5e-5;
    /// Limit on the tests of a rank's loads, each of which takes about a microsecond. A step of propagation counts as
    /// `checks_in_order` tests.
    static constexpr std::size_t most_checks = 1'000'000;
    static constexpr std::size_t checks_in_order = 4;
    /// The pieces of a stage, and the sums over them.
    struct pieces_of_stage {
        std::size_t begin = 0;
        std::size_t end = 0;
        sums own{};
    };
    /// The second stage is empty if there is none.
    struct stages_of_rank {
        pieces_of_stage first{};
        pieces_of_stage second{};
    };
    struct hops {
        duration forward{};
        duration gradient{};
    };
    /// Ends that ranks may reach.
    struct reached_ends {
        ends at{};
        /// Index of the previous rank's entry from which this entry was reached.
        std::size_t before = 0;
    };
    /// What a division must meet: the objective, and the number of pieces before all second stages.
    struct limits {
        duration objective{};
        std::size_t middle = 0;
        stop_check stop{};
    };
    /// The data of a rank that don't depend on the rank's pieces, and the objective to meet.
    struct free_rank {
        rank here{};
        duration objective{};
        /// The time before the rank's first forward, and the time after its last gradient.
        duration head{};
        duration tail{};
        /// Factor from the time of one microbatch at speed 1 to the rank's time for all microbatches.
        double factor = 1.0;
    };

    static second_stages second_stages_of(const any_graph& g) {
        const auto is = [&](std::size_t stages, const auto& rank_of) {
            bool are_there = g.stages() == stages;
            for (const stage s : g.all_stages())
                are_there = are_there && g.rank_of(s).position() == rank_of(s.position());
            return are_there;
        };
        const auto n = g.ranks();
        if (is(n, [](std::size_t s) { return s; })) return second_stages::none;
        if (is(2 * n, [n](std::size_t s) { return s % n; })) return second_stages::as_loop;
        if (is(2 * n, [n](std::size_t s) { return std::min(s, 2 * n - 1 - s); })) return second_stages::as_v;
        return second_stages::unknown;
    }
    /// An upper bound on the tolerance of memory (`memory_scale`) in any partition.
    [[nodiscard]] memory_size largest_slack() const {
        memory_size stashes{};
        for (const auto& layer : given_.layers)
            stashes += std::max(layer.costs.activation, layer.costs.weight_stash) + layer.costs.kv;
        memory_size largest = stashes;
        for (const auto limit : pipeline_.memory_limit)
            largest = std::max(largest, std::min(limit, microbatches() * stashes));
        return tolerance{}.at(largest);
    }

    [[nodiscard]] std::size_t pieces() const { return before_.pieces(); }
    [[nodiscard]] std::size_t ranks() const { return pipeline_.graph.ranks(); }
    [[nodiscard]] double microbatches() const { return static_cast<double>(pipeline_.graph.microbatches()); }

    /// Every possible number of pieces before the second stages of a loop. Without a loop, the number of all pieces.
    [[nodiscard]] second_beginnings all_second_beginnings() const {
        if (second_ != second_stages::as_loop) return {{pieces(), {}}};
        second_beginnings all;
        for (auto middle = ranks(); middle + ranks() <= pieces(); ++middle)
            all.push_back({middle, {}});
        return all;
    }
    /// A division that is possible with this objective, or nothing. Calls `any(objective, middle)` for the beginnings
    /// that aren't refuted yet. A possible one becomes the first, because it often remains possible.
    template <class Any>
    [[nodiscard]] static std::optional<layer_division> any_of(second_beginnings& from, duration objective,
                                                              const Any& any) {
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (from[i].refuted >= objective) continue;
            if (auto found = any(objective, from[i].middle)) {
                std::swap(from.front(), from[i]);
                return found;
            }
            from[i].refuted = objective;
        }
        return std::nullopt;
    }
    /// A division that is possible with this objective, or nothing. If `stop` ended the test, an empty division.
    /// Considers only the divisions in which the second stages of a loop begin at piece `middle`. Without a loop,
    /// `middle` is the number of pieces.
    [[nodiscard]] std::optional<layer_division> any_within(duration objective, std::size_t middle,
                                                           stop_check stop) const {
        std::vector<std::vector<reached_ends>> reached{
            {{{0, middle}, 0}}}; // indexed by the number of ranks that have stages
        for (const rank r : pipeline_.graph.all_ranks()) {
            const auto later = speeds_after(r);
            std::vector<bool> is_reached((pieces() + 1) * (pieces() + 1), false);
            std::vector<reached_ends> next;
            bool is_stopped = stop();
            for (std::size_t i = 0; i < reached.back().size() && !is_stopped; ++i) {
                const auto at = reached.back()[i].at;
                const auto here = at_work(r, at.first, objective);
                for_each_end(at, middle, here, [&](const ends& to, const stages_of_rank& stages) {
                    const auto index = to.first * (pieces() + 1) + to.second;
                    if (is_stopped || is_reached[index] || !may_hold_rest(r, later, to, middle, objective)) return;
                    is_stopped = stop();
                    if (is_stopped || !is_possible(here, stages, others_of(here, stages, middle))) return;
                    is_reached[index] = true;
                    next.push_back({to, i});
                });
            }
            if (is_stopped) return layer_division{};
            if (next.empty()) return std::nullopt;
            reached.push_back(std::move(next));
        }
        return division_of(reached);
    }
    /// The division that led to the first ends of the last rank.
    [[nodiscard]] layer_division division_of(const std::vector<std::vector<reached_ends>>& reached) const {
        std::vector<ends> path(ranks() + 1);
        std::size_t at = 0;
        for (auto r = path.size(); r-- > 0;) {
            path[r] = reached[r][at].at;
            at = reached[r][at].before;
        }
        return division_of(path);
    }
    /// The division in which the first r ranks have the ends `path[r]`.
    [[nodiscard]] layer_division division_of(const std::vector<ends>& path) const {
        const auto n = ranks();
        layer_division division(pipeline_.graph.stages(), pieces());
        for (std::size_t r = 0; r < n; ++r) {
            division[r] = path[r + 1].first;
            if (second_ == second_stages::as_loop) division[n + r] = path[r + 1].second;
            if (second_ == second_stages::as_v) division[2 * n - 1 - r] = path[r].second;
        }
        return division;
    }
    /// Calls `look(ends, stages)` for all stages of rank `r` for which an uninterrupted rank has enough time. `from`
    /// has the ends of the stages of the previous rank.
    template <class Look>
    void for_each_end(const ends& from, std::size_t middle, const free_rank& r, const Look& look) const {
        const auto most = second_ == second_stages::as_v ? from.second : middle;
        for (auto to = from.first + 1; to <= most; ++to) {
            const auto has_time_with = [&](std::size_t second) {
                const auto stages = stages_between(from, {to, second});
                return has_time(r, stages.first.own, stages.second.own);
            };
            const auto look_at = [&](std::size_t second) {
                look(ends{to, second}, stages_between(from, {to, second}));
            };
            if (!has_time_with(from.second)) return;
            if (second_ == second_stages::none) look_at(middle);
            if (second_ == second_stages::as_loop)
                for (auto end = from.second + 1; end <= pieces() && has_time_with(end); ++end)
                    look_at(end);
            if (second_ == second_stages::as_v)
                for (auto begin = from.second; begin-- > to && has_time_with(begin);)
                    look_at(begin);
        }
    }
    /// The stages of a rank with the ends `to`, after a rank with the ends `from`.
    [[nodiscard]] stages_of_rank stages_between(const ends& from, const ends& to) const {
        const auto stage_of = [&](std::size_t begin, std::size_t end) {
            return pieces_of_stage{begin, end, before_[end] - before_[begin]};
        };
        const bool is_v = second_ == second_stages::as_v;
        return {stage_of(from.first, to.first),
                is_v ? stage_of(to.second, from.second) : stage_of(from.second, to.second)};
    }
    /// Whether the ranks after `r`, whose speeds sum to `speeds`, may have enough time for the remaining pieces. If `r`
    /// is the last rank, returns whether no piece is left.
    [[nodiscard]] bool may_hold_rest(rank r, double speeds, const ends& at, std::size_t middle,
                                     duration objective) const {
        const auto later = ranks() - 1 - r.position();
        auto count = (second_ == second_stages::as_v ? at.second : middle) - at.first;
        auto work = before_[at.first + count].work - before_[at.first].work;
        if (second_ == second_stages::as_loop) {
            count += pieces() - at.second;
            work += before_.back().work - before_[at.second].work;
        }
        if (later == 0) return count == 0;
        const auto next = at_work(rank{r.value() + 1}, at.first, objective);
        return count >= later && microbatches() * work <= speeds * (next.objective - next.head);
    }
    [[nodiscard]] double speeds_after(rank r) const {
        double sum = 0.0;
        for (const rank later : pipeline_.graph.all_ranks())
            if (later > r) sum += given_.speed_of(later);
        return sum;
    }
    /// The data of rank `r` with `begin` pieces before its first stage.
    [[nodiscard]] free_rank at_work(rank r, std::size_t begin, duration objective) const {
        constexpr double rounding = 1e-9;
        free_rank found{r, (1.0 + rounding) * objective, {}, {}, microbatches() / given_.speed_of(r)};
        const stage first{r.position()};
        if (has_heads_) found.head = time_before(begin, first);
        if (has_tails_) found.tail = time_after(begin, first);
        return found;
    }
    /// The least time in which a microbatch passes the `begin` pieces before a stage.
    [[nodiscard]] duration time_before(std::size_t begin, stage s) const {
        return before_[begin].forward / fastest_ + hops_[s.position()].forward;
    }
    /// The least time in which a gradient passes back through the `begin` pieces before a stage.
    [[nodiscard]] duration time_after(std::size_t begin, stage s) const {
        return before_[begin].gradient / fastest_ + hops_[s.position()].gradient;
    }
    /// Whether the rank has enough time and memory for a first stage and a second stage.
    [[nodiscard]] bool has_time(const free_rank& r, const sums& first, const sums& second) const {
        const auto limit = pipeline_.memory_limit[r.here];
        if (first.fixed + second.fixed > limit + tolerance{}.at(limit)) return false; // as in `with_layers`
        if (r.head + r.factor * (first.work + second.work) > r.objective) return false;
        const auto without_weights = first.forward + first.gradient + second.forward + second.gradient;
        return !has_tails_ || r.head + r.factor * without_weights + r.tail <= r.objective;
    }
    /// The memory of a rank minus the static memory of its pieces.
    [[nodiscard]] memory_size room_of(const free_rank& r, const sums& first, const sums& second) const {
        return std::max(pipeline_.memory_limit[r.here] - first.fixed - second.fixed, memory_size{}) + slack_;
    }
    /// The times of a stage's work on rank `r`, and the least times before and after the work.
    [[nodiscard]] stage_load load_of(const free_rank& r, const pieces_of_stage& here, stage s) const {
        const auto speed = given_.speed_of(r.here);
        const auto later = before_.back() - before_[here.end];
        const auto& passed = hops_[s.position()];
        stage_load load;
        load.forward = here.own.forward / speed;
        load.gradient = here.own.gradient / speed;
        if (pipeline_.split_backward)
            load.weight = std::max((here.own.work - here.own.forward - here.own.gradient) / speed, duration{});
        load.before = time_before(here.begin, s);
        load.lifetime = load.forward + load.gradient + (later.forward + later.gradient) / fastest_ +
                        (hops_.back().forward - passed.forward) + (hops_.back().gradient - passed.gradient);
        // For `span`, the rank's time ends with its own last operation, without a wait for gradients of later stages.
        if (!has_heads_ && here.own.gradient <= duration{}) load.lifetime = load.forward;
        load.after = time_after(here.begin, s);
        load.stash = here.own.kept;
        load.weight_stash = here.own.weight_stash;
        return load;
    }
    /// Lower bounds for `stages` stages that share the pieces from `begin` to `end`.
    [[nodiscard]] pace pace_of(std::size_t begin, std::size_t end, std::size_t stages) const {
        if (stages == 0) return {};
        return {longest_forward_(begin, end, stages) / fastest_, longest_gradient_(begin, end, stages) / fastest_};
    }
    /// Lower bounds on the longest operations of other ranks, in all divisions of the pieces that are left.
    [[nodiscard]] paces_of_others others_of(const free_rank& r, const stages_of_rank& stages,
                                            std::size_t middle) const {
        const auto earlier = r.here.position();
        const auto later = ranks() - 1 - earlier;
        const auto& [first, second] = stages;
        const auto before = pace_of(0, first.begin, earlier);
        switch (second_) {
        case second_stages::as_loop:
            return {{before, pace_of(middle, second.begin, earlier)},
                    {pace_of(first.end, middle, later), pace_of(second.end, pieces(), later)}};
        case second_stages::as_v:
            return {{before, pace_of(second.end, pieces(), earlier)},
                    {pace_of(first.end, second.begin, 2 * later), pace{}}};
        case second_stages::none:
        case second_stages::unknown: break;
        }
        return {{before, pace{}}, {pace_of(first.end, pieces(), later), pace{}}};
    }
    [[nodiscard]] surroundings surroundings_of(const free_rank& r, const stages_of_rank& stages,
                                               const paces_of_others& others) const {
        const auto& [earlier, later] = others;
        const auto before = has_heads_ ? earlier[0] : pace{};
        if (second_ == second_stages::none) return {before, {}, later[0]};
        const auto passed = before_[stages.second.begin] - before_[stages.first.end];
        const auto& from = hops_[r.here.position()];
        const auto& to = hops_[last_stage_[r.here].position()];
        const auto there = passed.forward / fastest_ + (to.forward - from.forward);
        const auto back = passed.gradient / fastest_ + (to.gradient - from.gradient);
        if (second_ == second_stages::as_loop) return {before, max(later[0], earlier[1]), later[1], there, back};
        return {before, max(later[0], later[1]), earlier[1], there, back};
    }
    /// The stages of rank `r`, with the paces of the stages before, between and after them.
    [[nodiscard]] std::array<stage_load, 2> loads_of(const free_rank& r, const stages_of_rank& stages,
                                                     const surroundings& around) const {
        const auto& before = around.before;
        const auto& between = around.between;
        const auto& after = around.after;
        std::array loads{load_of(r, stages.first, stage{r.here.position()}), stage_load{}};
        loads[0].pace_before = before.forward;
        loads[0].pace_after = before.gradient;
        loads[0].pace_later = after.any();
        if (second_ == second_stages::none) return loads;
        loads[1] = load_of(r, stages.second, last_stage_[r.here]);
        loads[0].pace_later = std::max({between.any(), loads[1].forward, loads[1].gradient, after.any()});
        loads[1].pace_before = std::max({before.forward, loads[0].forward, between.forward});
        loads[1].pace_later = after.any();
        // For span, the rank is done after the gradients of its second stage if its first stage is frozen.
        const bool is_last = !has_heads_ && stages.first.own.gradient <= duration{};
        if (!is_last) loads[1].pace_after = std::max({before.gradient, loads[0].gradient, between.gradient});
        return loads;
    }
    /// Whether the rank may do the work of its stages.
    [[nodiscard]] bool is_possible(const free_rank& r, const stages_of_rank& stages,
                                   const paces_of_others& others) const {
        auto loads = loads_of(r, stages, surroundings_of(r, stages, others));
        const auto start = loads[0];
        for (auto& each : loads) {
            if (!has_heads_) each.before -= start.before;
            each.after = has_tails_ ? std::max(each.after + last_weight_, each.weight) : duration{};
        }
        const auto room = room_of(r, stages.first.own, stages.second.own);
        const rank_load load{loads, stages_per_rank(), pipeline_.graph.microbatches(), room};
        if (!in_pairs_ && (!load.has_time(r.objective) || !load.has_time_for_rounds(r.objective))) return false;
        const auto time = r.objective - loads[0].before - loads[0].after;
        return room.is_unlimited() ||
               (time > duration{} && load.has_memory(time) &&
                has_storage(r, stages.first.own, stages.second.own, loads, room.value() * time.value()));
    }
    [[nodiscard]] std::size_t stages_per_rank() const { return second_ == second_stages::none ? 1 : 2; }

    // Propagation over the orders of a rank's operations.

    /// Whether propagation finds no reason why the rank can't do the work of its stages.
    [[nodiscard]] bool has_order(const free_rank& r, const stages_of_rank& stages, const paces_of_others& others,
                                 stop_check stop) const {
        if (!has_tails_) return true;
        const auto around = surroundings_of(r, stages, others);
        auto loads = loads_of(r, stages, around);
        loads[0].after += last_weight_;
        rank_chains::transfers moved;
        const std::array own{&stages.first.own, &stages.second.own};
        for (std::size_t s = 0; s < stages_per_rank(); ++s) {
            if (loads[s].gradient <= duration{}) return true;
            if (own[s]->offloading == 0) continue;
            loads[s].stash = own[s]->held;
            moved[s] = {own[s]->offload, own[s]->reload};
        }
        const auto room = room_of(r, stages.first.own, stages.second.own);
        return rank_chains{loads, stages_per_rank(), around, moved, pipeline_.graph.microbatches(), room}.has_time(
            r.objective, stop);
    }
    /// As `any_within`, but the paces follow from the divisions that are left, and `has_order` is true for each rank of
    /// the result.
    [[nodiscard]] std::optional<layer_division> any_in_order(duration objective, std::size_t middle,
                                                             stop_check stop) const {
        const limits within{objective, middle, stop};
        auto graph = graph_within(within);
        tighten(graph, within);
        std::vector<std::size_t> refuted(ranks(), 0);
        while (!graph.empty() && !stop()) {
            const auto path = graph.path();
            if (!remove_impossible(graph, path, refuted, within) && !tighten(graph, within))
                return division_of(graph.ends_of(path));
            graph.update();
        }
        if (stop()) return layer_division{};
        return std::nullopt;
    }
    /// The divisions that `is_possible` leaves.
    [[nodiscard]] division_graph graph_within(const limits& within) const {
        division_graph graph{{0, within.middle}};
        for (const rank r : pipeline_.graph.all_ranks()) {
            const auto later = speeds_after(r);
            graph.add_rank();
            for (std::size_t i = 0; i < graph.nodes(r.position()); ++i) {
                const auto from = graph.at(r.position(), i);
                const auto here = at_work(r, from.first, within.objective);
                for_each_end(from, within.middle, here, [&](const ends& to, const stages_of_rank& stages) {
                    if (within.stop() || !may_hold_rest(r, later, to, within.middle, within.objective)) return;
                    if (is_possible(here, stages, others_of(here, stages, within.middle)))
                        graph.add(i, to, paces_of(here, stages));
                });
            }
        }
        return graph;
    }
    /// Removes the edges that aren't possible with the paces of the divisions that are left, until nothing changes.
    /// Returns whether any edge was removed.
    bool tighten(division_graph& graph, const limits& within) const {
        bool was_changed = false;
        for (bool is_changed = true; is_changed && !within.stop();) {
            graph.update();
            is_changed = false;
            for (const rank r : pipeline_.graph.all_ranks())
                is_changed = std::erase_if(graph.edges(r.position()),
                                           [&](const division_graph::edge& e) {
                                               return !within.stop() &&
                                                      !look_at(graph, r, e, within,
                                                               [&](const auto&... all) { return is_possible(all...); });
                                           }) > 0 ||
                             is_changed;
            was_changed = was_changed || is_changed;
        }
        return was_changed;
    }
    /// Removes an edge of the path for which `has_order` is false. First tests the ranks on which most edges were
    /// removed before (`refuted`). Returns whether an edge was removed.
    bool remove_impossible(division_graph& graph, const std::vector<std::size_t>& path,
                           std::vector<std::size_t>& refuted, const limits& within) const {
        std::vector<rank> sorted;
        for (const rank r : pipeline_.graph.all_ranks())
            sorted.push_back(r);
        std::stable_sort(sorted.begin(), sorted.end(),
                         [&](rank a, rank b) { return refuted[a.position()] > refuted[b.position()]; });
        for (const rank r : sorted) {
            auto& edges = graph.edges(r.position());
            auto& e = edges[path[r.position()]];
            e.is_tested = e.is_tested || look_at(graph, r, e, within,
                                                 [&](const auto&... all) { return has_order(all..., within.stop); });
            if (e.is_tested) continue;
            edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(path[r.position()]));
            ++refuted[r.position()];
            return true;
        }
        return false;
    }
    /// The result of `look(rank, stages, others)` for an edge of the graph.
    template <class Look>
    [[nodiscard]] bool look_at(const division_graph& graph, rank r, const division_graph::edge& e, const limits& within,
                               const Look& look) const {
        const auto& from = graph.at(r.position(), e.from);
        const auto here = at_work(r, from.first, within.objective);
        const auto stages = stages_between(from, graph.at(r.position() + 1, e.to));
        const auto least = others_of(here, stages, within.middle);
        const auto left = graph.around(r.position(), e);
        return look(here, stages, paces_of_others{max(least.earlier, left.earlier), max(least.later, left.later)});
    }
    [[nodiscard]] paces_of_stages paces_of(const free_rank& r, const stages_of_rank& stages) const {
        const auto speed = given_.speed_of(r.here);
        return {pace{stages.first.own.forward / speed, stages.first.own.gradient / speed},
                pace{stages.second.own.forward / speed, stages.second.own.gradient / speed}};
    }
    /// Whether options with less memory leave the rank enough time for its work. `all` is the memory for stashes times
    /// the time for which the rank holds stashes.
    [[nodiscard]] bool has_storage(const free_rank& r, const sums& first, const sums& second,
                                   const std::array<stage_load, 2>& loads, double all) const {
        const std::array lives{loads[0].lifetime.value(), loads[1].lifetime.value()};
        if (microbatches() * (lives[0] * first.kept_by_default.value() + lives[1] * second.kept_by_default.value()) <=
            all)
            return true;
        const auto work = first.work + second.work;
        for (const auto price : before_.prices())
            for (const auto life : lives) {
                if (!(life > 0.0)) continue;
                const auto of_time = price / life; // price per unit of memory and unit of time, at the rank's speed
                const auto stored =
                    before_.priced(first, of_time * lives[0]) + before_.priced(second, of_time * lives[1]);
                if (r.factor * (work + stored) >
                    r.objective - r.head + duration{of_time / given_.speed_of(r.here) * all})
                    return false;
            }
        return true;
    }
    const partition_problem& given_;
    const problem& pipeline_;
    second_stages second_;
    bool in_pairs_;
    bool has_heads_;
    bool has_tails_;
    piece_sums before_;
    /// The hops before each stage.
    std::vector<hops> hops_;
    least_longest longest_forward_;
    least_longest longest_gradient_;
    per_rank<stage> last_stage_;
    double fastest_ = 0.0;
    /// The least time of a weight gradient of the first stage. 0 if no weight gradient may follow the last gradient.
    duration last_weight_{};
    memory_size slack_{};
};

} // namespace optpipe::detail
