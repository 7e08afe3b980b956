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
/// Options that hold less memory take more of the rank's work. Let memory have any price. Work + price of held memory ≤
/// time + price of all memory (weak duality of the linear program that mixes options). At the best price, two options
/// of a layer cost the same, or the price is unlimited. All other prices only weaken the bound.
///
/// `any_within` decides exactly whether any division leaves each rank enough time. `any_within` goes from rank to rank,
/// and keeps all reachable pairs of ends (of the first and the second stages).
class division_bound {
public:
    /// `work[i]` is a lower bound on the time of a rank of speed 1 for piece i, per microbatch. `in_pairs` says whether
    /// two operations may run at the same time. Contract: each layer feeds the next one, microbatches have no factors,
    /// and `p` and `pipeline` outlive this object.
    division_bound(const partition_problem& p, const problem& pipeline, const layer_cuts& cuts,
                   const std::vector<duration>& work, bool in_pairs)
        : given_{p}, pipeline_{pipeline}, second_{second_stages_of(pipeline.graph)}, in_pairs_{in_pairs},
          has_heads_{pipeline.objective != objective_kind::span},
          has_tails_{has_heads_ && !in_pairs}, prices_{in_pairs ? std::vector<double>{} : prices_of(p)}, before_(1),
          last_stage_(pipeline.graph.ranks()) {
        for (std::size_t piece = 0; piece < cuts.pieces(); ++piece) {
            auto sum = before_.back();
            sum.work += work[piece];
            for (const auto layer : cuts.layers_of(piece))
                add(sum, p.layers[layer]);
            before_.push_back(sum);
        }
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
    /// The largest lower bound found until `stop` returns true, in at most a few seconds. The bound is at most about
    /// twice `known`. Deterministic if `stop` never returns true. Contract: `known` is a positive lower bound, and
    /// `applies()` is true.
    [[nodiscard]] bound_of_divisions raise(duration known, stop_check stop) const {
        constexpr double first_step = 0.01; // relative to the bound; doubled until an objective is possible
        constexpr double last_step = 1e-4;  // relative to the bound; plans are seldom proven more precisely
        // Calls of `is_possible`. Took 1.2 to 2.8 s on a busy machine for 128 layers on 8 ranks and 320 layers on 32.
        constexpr std::size_t most_checks = 1'000'000;
        std::size_t checks = 0;
        const stop_when is_enough{[&] { return ++checks > most_checks || stop(); }};
        const stop_check enough{is_enough};
        bound_of_divisions found{known, {}};
        second_beginnings begin = all_second_beginnings();
        const auto raises_by = [&](duration step) {
            auto division = any_within(found.bound + step, begin, enough);
            if (!division) found.bound += step;
            if (division && !division->empty()) found.division = *std::move(division);
            return !division;
        };
        auto step = first_step * known;
        while (found.bound < 2.0 * known && raises_by(step))
            step = 2.0 * step;
        while (step > last_step * found.bound && !enough()) {
            step = 0.5 * step;
            raises_by(step);
        }
        return found;
    }

private:
    enum class second_stages : std::uint8_t { none, as_loop, as_v, unknown };
    /// Limit on the number of prices. Layers seldom have more than four options. Four options change places at six
    /// prices.
    static constexpr std::size_t most_prices = 8;
    /// Sums over pieces, for one microbatch at speed 1.
    struct sums {
        duration work{};
        duration forward{};
        duration gradient{};
        memory_size fixed{};
        memory_size weight_stash{};
        /// `kept` is the least memory of a stash from its forward to its gradient. `kept_by_default` is the least
        /// memory without additional work.
        memory_size kept{};
        memory_size kept_by_default{};
        /// For each price, the least additional work plus price of kept memory.
        std::array<duration, most_prices> priced{};

        friend sums operator-(sums a, const sums& b) {
            a.work -= b.work;
            a.forward -= b.forward;
            a.gradient -= b.gradient;
            a.fixed -= b.fixed;
            a.weight_stash -= b.weight_stash;
            a.kept -= b.kept;
            a.kept_by_default -= b.kept_by_default;
            for (std::size_t k = 0; k < a.priced.size(); ++k)
                a.priced[k] -= b.priced[k];
            return a;
        }
    };
    /// The pieces of a stage, and the sums over them.
    struct pieces_of_stage {
        std::size_t begin = 0;
        std::size_t end = 0;
        sums own{};
    };
    struct hops {
        duration forward{};
        duration gradient{};
    };
    /// A number of pieces before all second stages, and the largest objective known to be impossible with it.
    struct second_beginning {
        std::size_t middle = 0;
        duration refuted{};
    };
    using second_beginnings = std::vector<second_beginning>;
    /// Numbers of pieces. The first stages of the ranks considered until now end at `first`. The second stages end at
    /// `second` (in a loop), or begin at `second` (in a v).
    struct ends {
        std::size_t first = 0;
        std::size_t second = 0;
        /// Index of the previous rank's entry from which this entry was reached.
        std::size_t before = 0;
    };
    /// A rank's data that don't depend on its pieces, and the objective to meet.
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
    void add(sums& sum, const layer_costs& layer) {
        const auto& c = layer.costs;
        sum.forward += c.forward;
        sum.gradient += pipeline_.split_backward ? c.backward_input : c.backward();
        sum.fixed += layer.static_memory;
        sum.weight_stash += c.weight_stash;
        if (c.gradients != gradient_kind::none) add_kept(sum, listed_storage(layer));
    }
    void add_kept(sums& sum, const storage_list<false>& options) const {
        const auto least = [&](const auto& value_of) {
            auto best = value_of(options.front());
            for (const auto& option : options)
                best = std::min(best, value_of(option));
            return best;
        };
        sum.kept += least([](const storage_option& o) { return o.left_on_device(); });
        sum.kept_by_default += least([](const storage_option& o) {
                                   return std::pair{o.extra_work(), o.left_on_device()};
                               }).second;
        for (std::size_t k = 0; k < prices_.size(); ++k)
            sum.priced[k] += least([&](const storage_option& o) {
                return o.extra_work() + duration{prices_[k] * o.left_on_device().value()};
            });
    }
    /// The prices at which two options of a layer cost the same, in ascending order. A price is the time for a unit of
    /// memory. If there are too many prices, only every n-th price is kept.
    static std::vector<double> prices_of(const partition_problem& p) {
        std::vector<double> all;
        for (const auto& layer : p.layers) {
            const auto options = listed_storage(layer);
            for (const auto& a : options)
                for (const auto& b : options)
                    if (a.extra_work() < b.extra_work() && a.left_on_device() > b.left_on_device())
                        all.push_back((b.extra_work() - a.extra_work()).value() /
                                      (a.left_on_device() - b.left_on_device()).value());
        }
        std::sort(all.begin(), all.end());
        all.erase(std::unique(all.begin(), all.end()), all.end());
        std::vector<double> some;
        const auto step = (all.size() + most_prices - 1) / most_prices;
        for (std::size_t i = 0; i < all.size(); i += step)
            some.push_back(all[i]);
        return some;
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

    [[nodiscard]] std::size_t pieces() const { return before_.size() - 1; }
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
    /// A division that is possible with this objective, or nothing. If `stop` ended the test, an empty division. Tests
    /// the beginnings that aren't refuted yet. A possible beginning becomes the first, because it often remains
    /// possible.
    [[nodiscard]] std::optional<layer_division> any_within(duration objective, second_beginnings& from,
                                                           stop_check stop) const {
        for (std::size_t i = 0; i < from.size(); ++i) {
            if (from[i].refuted >= objective) continue;
            if (auto found = any_within(objective, from[i].middle, stop)) {
                std::swap(from.front(), from[i]);
                return found;
            }
            from[i].refuted = objective;
        }
        return std::nullopt;
    }
    /// Considers only the divisions in which the second stages of a loop begin at piece `middle`. Without a loop,
    /// `middle` is the number of pieces.
    [[nodiscard]] std::optional<layer_division> any_within(duration objective, std::size_t middle,
                                                           stop_check stop) const {
        std::vector<std::vector<ends>> reached{{{0, middle, 0}}}; // indexed by the number of ranks that have stages
        for (const rank r : pipeline_.graph.all_ranks()) {
            const auto later = speeds_after(r);
            std::vector<bool> is_reached((pieces() + 1) * (pieces() + 1), false);
            std::vector<ends> next;
            bool is_stopped = stop();
            for (std::size_t i = 0; i < reached.back().size() && !is_stopped; ++i) {
                const auto& at = reached.back()[i];
                for_each_end(at, middle, at_work(r, at.first, objective), [&](ends to, const auto& is_possible) {
                    const auto index = to.first * (pieces() + 1) + to.second;
                    if (is_stopped || is_reached[index] || !may_hold_rest(r, later, to, middle, objective)) return;
                    is_stopped = stop();
                    if (is_stopped || !is_possible()) return;
                    is_reached[index] = true;
                    to.before = i;
                    next.push_back(to);
                });
            }
            if (is_stopped) return layer_division{};
            if (next.empty()) return std::nullopt;
            reached.push_back(std::move(next));
        }
        return division_of(reached);
    }
    /// The division that led to the first ends of the last rank.
    [[nodiscard]] layer_division division_of(const std::vector<std::vector<ends>>& reached) const {
        const auto n = ranks();
        layer_division division(pipeline_.graph.stages(), pieces());
        std::size_t at = 0;
        for (auto r = n; r-- > 0;) {
            const auto& here = reached[r + 1][at];
            division[r] = here.first;
            if (second_ == second_stages::as_loop) division[n + r] = here.second;
            at = here.before;
            if (second_ == second_stages::as_v) division[2 * n - 1 - r] = reached[r][at].second;
        }
        return division;
    }
    /// Calls `look(ends, is_possible)` for all ends of rank `r`'s stages that leave an uninterrupted rank enough time.
    /// `is_possible()` returns whether the rank may do the work of these stages. `from` has the ends of the stages of
    /// the previous rank.
    template <class Look>
    void for_each_end(const ends& from, std::size_t middle, const free_rank& r, const Look& look) const {
        const auto most = second_ == second_stages::as_v ? from.second : middle;
        for (auto to = from.first + 1; to <= most; ++to) {
            const pieces_of_stage first{from.first, to, before_[to] - before_[from.first]};
            if (!has_time(r, first.own, {})) return;
            const auto look_at = [&](const pieces_of_stage& second, std::size_t end) {
                look(ends{to, end, 0}, [&] { return is_possible(r, first, second, middle); });
            };
            if (second_ == second_stages::none) look_at({}, middle);
            if (second_ == second_stages::as_loop)
                for (auto end = from.second + 1; end <= pieces(); ++end) {
                    const pieces_of_stage second{from.second, end, before_[end] - before_[from.second]};
                    if (!has_time(r, first.own, second.own)) break;
                    look_at(second, end);
                }
            if (second_ == second_stages::as_v)
                for (auto begin = from.second; begin-- > to;) {
                    const pieces_of_stage second{begin, from.second, before_[from.second] - before_[begin]};
                    if (!has_time(r, first.own, second.own)) break;
                    look_at(second, begin);
                }
        }
    }
    /// Whether the ranks after `r`, of total speed `speeds`, may have enough time for the remaining pieces. If `r` is
    /// the last rank, returns whether no piece is left.
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
    /// Lower bounds on the longest forward and on the longest gradient of some stages.
    struct pace {
        duration forward{};
        duration gradient{};
        [[nodiscard]] duration any() const { return std::max(forward, gradient); }
        friend pace max(const pace& a, const pace& b) {
            return {std::max(a.forward, b.forward), std::max(a.gradient, b.gradient)};
        }
    };
    /// The mean times of `stages` stages that share the pieces from `begin` to `end`. The longest forward and the
    /// longest gradient take at least the mean times.
    [[nodiscard]] pace pace_of(std::size_t begin, std::size_t end, std::size_t stages) const {
        if (stages == 0) return {};
        const auto all = fastest_ * static_cast<double>(stages);
        return {(before_[end].forward - before_[begin].forward) / all,
                (before_[end].gradient - before_[begin].gradient) / all};
    }
    /// The stages of rank `r`, with the paces of the stages before, between and after them.
    [[nodiscard]] std::array<stage_load, 2> loads_of(const free_rank& r, const pieces_of_stage& first,
                                                     const pieces_of_stage& second, std::size_t middle) const {
        const auto earlier = r.here.position();
        const auto later = ranks() - 1 - earlier;
        const auto before = has_heads_ ? pace_of(0, first.begin, earlier) : pace{};
        std::array loads{load_of(r, first, stage{earlier}), stage_load{}};
        loads[0].pace_before = before.forward;
        loads[0].pace_after = before.gradient;
        if (second_ == second_stages::none) {
            loads[0].pace_later = pace_of(first.end, pieces(), later).any();
            return loads;
        }
        loads[1] = load_of(r, second, last_stage_[r.here]);
        const bool is_loop = second_ == second_stages::as_loop;
        const auto between = is_loop ? max(pace_of(first.end, middle, later), pace_of(middle, second.begin, earlier))
                                     : pace_of(first.end, second.begin, 2 * later);
        const auto after = pace_of(second.end, pieces(), is_loop ? later : earlier);
        loads[0].pace_later = std::max({between.any(), loads[1].forward, loads[1].gradient, after.any()});
        loads[1].pace_before = std::max({before.forward, loads[0].forward, between.forward});
        loads[1].pace_later = after.any();
        // For span, a rank with a frozen first stage is done after the gradients of its second stage.
        const bool is_last = !has_heads_ && first.own.gradient <= duration{};
        if (!is_last) loads[1].pace_after = std::max({before.gradient, loads[0].gradient, between.gradient});
        return loads;
    }
    /// Whether the rank may do the work of a first stage and of a second stage, if any.
    [[nodiscard]] bool is_possible(const free_rank& r, const pieces_of_stage& first, const pieces_of_stage& second,
                                   std::size_t middle) const {
        auto loads = loads_of(r, first, second, middle);
        const auto start = loads[0];
        for (auto& each : loads) {
            if (!has_heads_) each.before -= start.before;
            each.after = has_tails_ ? std::max(each.after + last_weight_, each.weight) : duration{};
        }
        const auto room = room_of(r, first.own, second.own);
        const rank_load load{loads, second_ == second_stages::none ? 1U : 2U, pipeline_.graph.microbatches(), room};
        if (!in_pairs_ && (!load.has_time(r.objective) || !load.has_time_for_rounds(r.objective))) return false;
        const auto time = r.objective - loads[0].before - loads[0].after;
        return room.is_unlimited() || (time > duration{} && load.has_memory(time) &&
                                       has_storage(r, first.own, second.own, loads, room.value() * time.value()));
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
        for (const auto price : prices_)
            for (const auto life : lives) {
                if (!(life > 0.0)) continue;
                const auto of_time = price / life; // price per unit of memory and unit of time, at the rank's speed
                const auto stored = priced(first, of_time * lives[0]) + priced(second, of_time * lives[1]);
                if (r.factor * (work + stored) >
                    r.objective - r.head + duration{of_time / given_.speed_of(r.here) * all})
                    return false;
            }
        return true;
    }
    /// A lower bound on the least additional work plus price of kept memory. The least sum is a concave function of the
    /// price, and lies above its chords. The slope of the function is at least the least kept memory.
    [[nodiscard]] duration priced(const sums& of, double price) const {
        const auto above =
            static_cast<std::size_t>(std::upper_bound(prices_.begin(), prices_.end(), price) - prices_.begin());
        const auto from = above == 0 ? 0.0 : prices_[above - 1];
        const auto at_from = above == 0 ? duration{} : of.priced[above - 1];
        if (above == prices_.size()) return at_from + duration{(price - from) * of.kept.value()};
        return at_from + (price - from) / (prices_[above] - from) * (of.priced[above] - at_from);
    }

    const partition_problem& given_;
    const problem& pipeline_;
    second_stages second_;
    bool in_pairs_;
    bool has_heads_;
    bool has_tails_;
    std::vector<double> prices_;
    /// `before_` has, for each number of pieces, the sums over the first pieces. `hops_` has the hops before each
    /// stage.
    std::vector<sums> before_;
    std::vector<hops> hops_;
    per_rank<stage> last_stage_;
    double fastest_ = 0.0;
    /// The least time of the first stage's weight gradient, if it may follow the last gradient.
    duration last_weight_{};
    memory_size slack_{};
};

} // namespace optpipe::detail
