#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/layer_costs.hpp"
#include "optpipe/pipeline/layer_cuts.hpp"
#include "optpipe/pipeline/layer_divisions.hpp"
#include "optpipe/pipeline/layer_pairs.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/microbatches.hpp"
#include "optpipe/pipeline/overlaps.hpp"
#include "optpipe/pipeline/partition_problem.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/planner/partition/division_bound.hpp"
#include "optpipe/planner/partition/partition_plan.hpp"
#include "optpipe/planner/plan_result.hpp"
#include "optpipe/schedule/bounds/assignment_prices.hpp"
#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/construct/chain_problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace optpipe::detail {

class partition_bound;

/// The partitions of a model's layers among the stages of one pipeline.
class partition_space {
public:
    /// Contract: `p` is valid, `cuts` are the cuts of its layers, and `p` and `cuts` outlive this object.
    partition_space(const partition_problem& p, const layer_cuts& cuts, std::size_t pipeline)
        : given_{p}, index_{pipeline}, pipeline_{p.pipelines[pipeline]},
          divisions_{cuts, p.pins, pipeline_.graph}, pairing_{p.layers, p.contention, p.layer_pairs} {
        const auto mean = pipeline_.microbatches.has_factors() ? mean_factors(pipeline_, stage{0}) : cost_factors{};
        for (std::size_t piece = 0; piece < cuts.pieces(); ++piece) {
            auto& work = work_of_piece_.emplace_back();
            for (const auto layer : cuts.layers_of(piece)) {
                const auto& c = p.layers[layer].costs;
                const auto backward = mean.backward_input * c.backward_input + mean.backward_weight * c.backward_weight;
                work += mean.forward * c.forward + backward;
            }
        }
        forward_factor_ = mean.forward;
        work_.resize(cuts.size());
        for (std::size_t cut = 1; cut < cuts.size(); ++cut) {
            const auto& [within, piece] = cuts.smaller(cut).front();
            work_[cut] = work_[within] + work_of_piece_[piece];
        }
    }

    /// The memory that all ranks together lack for one microbatch at a time, and the refusal of the rank that lacks the
    /// most.
    struct shortage {
        memory_size all{};
        refusal why{};
    };

    /// Whether any partition meets the pins.
    [[nodiscard]] bool exists() const { return divisions_.exist(); }
    /// Whether no partition exists at all, not even one that doesn't cut the layers in their order.
    [[nodiscard]] bool is_empty() const { return !exists() && divisions_.cuts().are_all(); }
    [[nodiscard]] std::vector<stage> stages_of(const layer_division& each) const { return divisions_.stages_of(each); }
    [[nodiscard]] problem with(const layer_division& each) const {
        return with_layers(given_, index_, stages_of(each));
    }
    /// The plan of a partition, without a bound on all partitions.
    [[nodiscard]] partition_plan plan_of(const layer_division& each, plan_result planned) const {
        partition_plan made;
        made.chosen = index_;
        made.stage_of = stages_of(each);
        made.pipeline = with(each);
        made.layers.assign(pipeline_.graph.stages(), 0);
        for (const stage s : made.stage_of)
            ++made.layers[s.position()];
        made.planned = std::move(planned);
        return made;
    }
    /// Converts a time to an integer number of tolerances. Sums of the same layers in different orders are then equal.
    [[nodiscard]] std::int64_t rounded(duration load) const {
        const auto units = load / tolerance{}.at(work_.back());
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        return units < static_cast<double>(most) ? std::llround(units) : most;
    }
    /// The partition that is closest to `counts[s]` layers on each stage s. Contract: a partition exists.
    [[nodiscard]] layer_division close_to(std::span<const std::size_t> counts) const {
        return divisions_.close_to(counts);
    }
    [[nodiscard]] layer_division even() const {
        std::vector<std::size_t> each;
        const even_layers split{.total = given_.layers.size()};
        for (const stage s : pipeline_.graph.all_stages())
            each.push_back(split.layers_of(s, pipeline_.graph.stages()));
        return close_to(each);
    }
    /// The unevenness of a partition lists the loads of its ranks, then the loads of its stages, each the largest
    /// first. Two lists are compared lexicographically, and the partition with the lesser list is more even. If ranks
    /// can run pairs, their loads are reduced by the largest possible saving.
    [[nodiscard]] std::vector<std::int64_t> unevenness_of(const layer_division& each) const {
        return unevenness_of(each, pairing_.has_pairs());
    }
    /// The unevenness of a partition, with or without the savings by pairs.
    [[nodiscard]] std::vector<std::int64_t> unevenness_of(const layer_division& each, bool in_pairs) const {
        std::vector<duration> ranks(pipeline_.graph.ranks());
        std::vector<duration> stages;
        std::size_t end = 0;
        for (const stage s : pipeline_.graph.all_stages()) {
            const auto begin = std::exchange(end, each[s.position()]);
            stages.push_back((work_[end] - work_[begin]) / given_.speed_of(pipeline_.rank_of(s)));
            ranks[pipeline_.rank_of(s).position()] += stages.back();
        }
        if (in_pairs) subtract_savings(each, ranks);
        std::vector<std::int64_t> loads;
        for (auto* some : {&ranks, &stages}) {
            std::sort(some->rbegin(), some->rend());
            for (const auto load : *some)
                loads.push_back(rounded(load));
        }
        return loads;
    }
    [[nodiscard]] shortage shortage_of(const problem& p) const {
        const auto slack = tolerance{}.at(p.memory_scale());
        shortage result;
        memory_size most{};
        for (const rank r : p.graph.all_ranks()) {
            const auto needed = is_plain(p) ? least_memory(p, r).needed : least_memory_of_any(p, r);
            const bool is_enough = needed <= p.memory_limit[r] + slack && !needed.is_unlimited();
            if (is_enough && p.memory_limit[r] >= memory_size{}) continue;
            const auto lacks = needed.is_unlimited() ? p.memory_scale() : needed - p.memory_limit[r];
            result.all += lacks;
            if (lacks <= most) continue;
            most = lacks;
            result.why.rank = r;
            result.why.sentence = "no partition that was tried fits";
            if (needed.is_unlimited()) {
                result.why.reason = refusal_reason::over_host_memory;
                result.why.limit = p.host_memory_limit[r];
                result.why.needed = least_host_memory(p, r);
                continue;
            }
            result.why.reason = refusal_reason::over_memory;
            result.why.limit = pipeline_.memory_limit[r];
            result.why.needed = result.why.limit + lacks;
        }
        return result;
    }
    /// A lower bound on the objective of the partition. Unlimited if one microbatch at a time doesn't fit in memory.
    [[nodiscard]] duration bound_of(const layer_division& each, stop_check stop) const {
        const auto p = with(each);
        return shortage_of(p).all > memory_size{} ? duration::unlimited() : bounds_of(p, stop).best();
    }
    /// A lower bound on the objective of a partition that isn't planned. Unlimited if no schedule fits in memory. With
    /// a limit on host memory, schedules may fit although `shortage_of` isn't 0.
    [[nodiscard]] duration bound_of_unplanned(const layer_division& each, stop_check stop) const {
        const auto p = with(each);
        const auto slack = tolerance{}.at(p.memory_scale());
        for (const rank r : p.graph.all_ranks()) {
            const auto needed = is_plain(p) ? least_memory(p, r).lower_bound : least_memory_of_any(p, r);
            if (needed > p.memory_limit[r] + slack) return duration::unlimited();
        }
        return bounds_of(p, stop).best();
    }
    /// The neighbours with the most even work. Returns at most `most` neighbours. Neighbours in `without` are left out.
    [[nodiscard]] std::vector<layer_division> most_even_neighbours(const layer_division& of,
                                                                   const std::set<layer_division>& without,
                                                                   std::size_t most, stop_check stop) const {
        std::set<std::pair<std::vector<std::int64_t>, layer_division>> some;
        divisions_.for_each_neighbour(of, stop, [&](const layer_division& each) {
            if (without.contains(each)) return;
            some.emplace(unevenness_of(each), each);
            if (some.size() > most) some.erase(std::prev(some.end()));
        });
        std::vector<layer_division> neighbours;
        for (const auto& [unevenness, each] : some)
            neighbours.push_back(each);
        return neighbours;
    }
    /// The number of partitions. If there are more than `most`, the result may be any number above `most`.
    [[nodiscard]] std::size_t count(std::size_t most) const { return divisions_.count(most); }
    /// Calls `look` for every partition. Ends early if `stop()` returns true.
    template <class Look> void for_each(stop_check stop, const Look& look) const { divisions_.for_each(stop, look); }
    /// Up to four initial partitions. The first partition has the same number of layers on each stage. In the second
    /// partition, the work is most even. In the third partition, the loads are most even if operations run in pairs.
    /// The fourth partition has a low bound, and is found by descent from the third partition. Partitions that don't
    /// fit in memory are left out. If no partition fits, returns the one that lacks the least memory. Computes the
    /// bounds of at most `neighbours` neighbours per partition. To find each of the even partitions, compares the work
    /// of at most `most` partitions. Tests for at most `most_fitted` partitions whether they fit in memory. Ends early
    /// if `stop()` returns true.
    [[nodiscard]] std::vector<layer_division> beginnings(std::size_t neighbours, std::size_t most,
                                                         std::size_t most_fitted, stop_check stop) const {
        const auto lacks = [this](const layer_division& of) { return shortage_of(with(of)).all; };
        std::size_t looked_at = 0;
        const stop_when enough{[&] { return looked_at++ >= most || stop(); }};
        const auto all = [&](const layer_division& of, const auto& look) {
            divisions_.for_each_neighbour(of, enough, look);
        };
        const auto near = [&](const layer_division& of, const auto& look) {
            for (const auto& each : most_even_neighbours(of, {}, neighbours, enough))
                if (!stop()) look(each);
        };
        const auto most_even = [&](const layer_division& from, bool in_pairs) {
            looked_at = 0;
            return descend(from, all, [&](const layer_division& of) { return unevenness_of(of, in_pairs); });
        };
        const auto one_by_one = most_even(even(), false);
        const auto balanced = pairing_.has_pairs() ? most_even(one_by_one, true) : one_by_one;
        const auto bounded = descend(balanced, near, [&](const layer_division& of) {
            return std::pair{rounded(bound_of(of, stop)), unevenness_of(of)};
        });
        std::vector<layer_division> some;
        for (const auto& each : {even(), one_by_one, balanced, bounded})
            if (std::find(some.begin(), some.end(), each) == some.end() && lacks(each) <= memory_size{})
                some.push_back(each);
        if (some.empty()) some.push_back(least_shortage({even(), balanced}, most_fitted, lacks, stop));
        return some;
    }

private:
    friend partition_bound;

    /// Computes `partition_bound` from lower bounds on the time for which a rank works on each piece for one
    /// microbatch.
    [[nodiscard]] duration bound_by_work(const std::vector<duration>& work_of_piece) const {
        const auto all = std::accumulate(work_of_piece.begin(), work_of_piece.end(), duration{});
        const auto& g = pipeline_.graph;
        double speeds = 0.0;
        double fastest = 0.0;
        for (const rank r : g.all_ranks()) {
            speeds += given_.speed_of(r);
            fastest = std::max(fastest, given_.speed_of(r));
        }
        auto largest = all / speeds;
        per_rank<duration> pinned(g.ranks());
        for (std::size_t piece = 0; piece < work_of_piece.size(); ++piece) {
            const auto at = pinned_rank(piece);
            if (at) pinned[*at] += work_of_piece[piece] / given_.speed_of(*at);
            largest = std::max(largest, at ? pinned[*at] : work_of_piece[piece] / fastest);
        }
        return static_cast<double>(g.microbatches()) * largest;
    }
    /// Lower bounds on the time for which a rank works on each piece. The result may have several lists, each with one
    /// bound per piece. The bounds hold even if all operations are in pairs. A pair lasts at least half as long as its
    /// parts in succession. Without measured pairs and factors, a pair lasts at least (1 + contention) · max(sum of its
    /// computations, sum of its communications). An operation in no pair lasts as long as its computation plus its
    /// communication. The bound for an operation is the lesser of its times in a pair and in no pair.
    [[nodiscard]] std::vector<std::vector<duration>> least_work_in_pairs() const {
        std::vector<std::vector<duration>> all{work_of_piece_};
        for (auto& work : all.front())
            work = 0.5 * work;
        if (pairing_.has_measured() || pipeline_.microbatches.has_factors()) return all;
        for (const auto part : {&work_parts::computation, &work_parts::communication}) {
            auto& least = all.emplace_back();
            for (std::size_t piece = 0; piece < work_of_piece_.size(); ++piece)
                least.push_back(least_work_of(piece, part));
        }
        return all;
    }
    [[nodiscard]] duration least_work_of(std::size_t piece, duration work_parts::*part) const {
        duration sum{};
        const auto least = [&](work_parts of) { return std::min(of.all(), (1.0 + pairing_.contention()) * of.*part); };
        const bool has_computation = part == &work_parts::computation;
        for (const auto layer : divisions_.cuts().layers_of(piece)) {
            const auto& each = given_.layers[layer];
            sum += least(forward_parts(each)) + least(backward_parts(each, overlap_kind::backward_input));
            if (has_computation) sum += each.costs.backward_weight;
        }
        return sum;
    }
    /// Subtracts the largest possible saving by pairs, per microbatch, from each rank's load.
    void subtract_savings(const layer_division& each, std::vector<duration>& ranks) const {
        std::vector<std::vector<std::size_t>> layers(pipeline_.graph.stages());
        const auto stage_of = stages_of(each);
        for (std::size_t layer = 0; layer < stage_of.size(); ++layer)
            layers[stage_of[layer].position()].push_back(layer);
        for (const rank r : pipeline_.graph.all_ranks())
            ranks[r.position()] = ranks[r.position()] - (forward_factor_ / given_.speed_of(r)) * saving_of(r, layers);
    }
    [[nodiscard]] duration saving_of(rank r, const std::vector<std::vector<std::size_t>>& layers) const {
        gain_table gains;
        for (const stage f : pipeline_.graph.all_stages()) {
            if (pipeline_.rank_of(f) != r) continue;
            ++gains.rows;
            for (const stage b : pipeline_.graph.all_stages())
                if (pipeline_.rank_of(b) == r)
                    gains.gain.push_back(saving_of(layers[f.position()], layers[b.position()]).value());
        }
        gains.columns = gains.rows;
        const auto prices = least_prices(gains);
        return duration{std::accumulate(prices.of_row.begin(), prices.of_row.end(), 0.0) +
                        std::accumulate(prices.of_column.begin(), prices.of_column.end(), 0.0)};
    }
    [[nodiscard]] duration saving_of(const std::vector<std::size_t>& forward,
                                     const std::vector<std::size_t>& backward) const {
        auto gradients = gradient_kind::none;
        for (const auto layer : backward)
            gradients = both(gradients, given_.layers[layer].costs.gradients);
        duration most{};
        for (const auto kind : pair_kinds(pipeline_, gradients))
            most = std::max(most, pairing_.saving(forward, backward, kind));
        return most;
    }
    /// The rank that a pin of the piece names.
    [[nodiscard]] std::optional<rank> pinned_rank(std::size_t piece) const {
        for (const auto& pin : given_.pins) {
            if (divisions_.cuts().piece_of(pin.layer) != piece) continue;
            const auto* const s = std::get_if<stage>(&pin.where);
            return s ? pipeline_.rank_of(*s) : std::get<rank>(pin.where);
        }
        return std::nullopt;
    }
    /// Moves to the neighbour with the least value while the value decreases. `for_each(x, look)` calls `look` for each
    /// neighbour of `x`.
    template <class ForEach, class Value>
    [[nodiscard]] static layer_division descend(layer_division each, const ForEach& for_each, const Value& value_of) {
        for (auto best = value_of(each);;) {
            const auto before = each;
            for_each(before, [&](const layer_division& moved) {
                if (auto found = value_of(moved); found < best) {
                    best = std::move(found);
                    each = moved;
                }
            });
            if (each == before) return each;
        }
    }
    /// The partition that lacks the least memory. Descends from each partition in `from`, and then considers all
    /// partitions. Considers at most `most` partitions in total.
    template <class Lacks>
    [[nodiscard]] layer_division least_shortage(const std::vector<layer_division>& from, std::size_t most,
                                                const Lacks& lacks, stop_check stop) const {
        auto least = memory_size::unlimited();
        auto found = from.front();
        std::size_t looked_at = 0;
        const stop_when is_enough{[&] { return least <= memory_size{} || looked_at >= most || stop(); }};
        const stop_check enough{is_enough};
        const auto look = [&](const layer_division& each) {
            ++looked_at;
            const auto lack = lacks(each);
            if (lack < least) found = each;
            least = std::min(least, lack);
            return lack;
        };
        const auto near = [&](const layer_division& of, const auto& look_at) {
            divisions_.for_each_neighbour(of, enough, look_at);
        };
        for (const auto& each : from)
            if (!enough()) static_cast<void>(descend(each, near, look));
        for_each(enough, look);
        return found;
    }
    const partition_problem& given_;
    std::size_t index_;
    const problem& pipeline_;
    layer_divisions divisions_;
    /// The work of each piece at speed 1, for a microbatch with mean factors.
    std::vector<duration> work_of_piece_;
    /// For each cut, the sum of the work of the pieces before it.
    std::vector<duration> work_;
    layer_pairing pairing_;
    /// Mean factor of the microbatches on the lengths of forwards.
    double forward_factor_ = 1.0;
};

/// A lower bound on the objectives of all partitions of a space. The bound assumes that ranks share all work in
/// proportion to their speeds, except that an indivisible piece is on a single rank, and on its pinned rank if there is
/// a pin. For a chain of layers and microbatches without factors, `division_bound` raises this bound step by step.
class partition_bound {
public:
    /// Contract: `of` has a partition, and outlives this object.
    explicit partition_bound(const partition_space& of) : space_{of} {
        std::vector<std::vector<duration>> lists{of.work_of_piece_};
        const bool in_pairs = of.pairing_.has_pairs();
        if (in_pairs) lists = of.least_work_in_pairs();
        for (const auto& each : lists)
            found_.bound = std::max(found_.bound, of.bound_by_work(each));
        if (of.given_.edges || of.pipeline_.microbatches.has_factors()) return;
        for (const auto& each : lists) {
            division_bound divisions{of.given_, of.pipeline_, of.divisions_.cuts(), each, in_pairs};
            if (!divisions.applies()) return;
            auto start = divisions.begin(found_.bound);
            parts_.push_back({std::move(divisions), std::move(start)});
        }
    }

    [[nodiscard]] bool is_done() const { return parts_.empty(); }
    /// Whether the loads of ranks alone can't raise the bound further.
    [[nodiscard]] bool has_loads() const { return is_done() || parts_.back().at.in_order; }
    /// Tries to raise the bound by one step. Does nothing if `stop` returns true. Contract: `is_done()` is false.
    void raise_once(stop_check stop) {
        auto& [divisions, at] = parts_.back();
        at.found.bound = std::max(at.found.bound, found_.bound);
        divisions.raise_once(at, stop);
        const bool is_better = at.found.bound > found_.bound || found_.division.empty();
        const auto& near = at.found.division;
        if (is_better && !near.empty() && space_.divisions_.allow(near)) found_.division = near;
        found_.bound = std::max(found_.bound, at.found.bound);
        if (at.is_done) parts_.pop_back();
    }
    /// The bound, and a partition whose objective may be near the bound, unless none was found that meets all pins.
    [[nodiscard]] const bound_of_divisions& found() const { return found_; }

private:
    struct part {
        division_bound divisions;
        division_bound::raising at;
    };

    const partition_space& space_;
    bound_of_divisions found_{};
    /// For each list of work that bounds the work in pairs.
    std::vector<part> parts_{};
};

} // namespace optpipe::detail
