#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/milp/lp/rows.hpp"
#include "optpipe/milp/lp/simplex.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/bounds/chain_maker.hpp"
#include "optpipe/schedule/bounds/chain_paths.hpp"
#include "optpipe/schedule/bounds/chains.hpp"
#include "optpipe/schedule/bounds/memory_area.hpp"
#include "optpipe/schedule/bounds/memory_ramp.hpp"
#include "optpipe/schedule/bounds/pair_bound.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A linear program about the work and the memory of all ranks. The program decides how many microbatches each pair of
/// two stages runs. The optimum is at most the objective of any valid schedule. All microbatches are equal.
///
/// *Work.* A rank's operations run one after the other, and a pair takes less time than its parts. The program
/// minimizes T. T ≥ time before the rank's first operation + time of all its operations + time after its last
/// operation. Before the first backward, the rank idles, or runs forwards that are in no pair and fit in memory. After
/// the last forward, the rank idles, or runs backwards that are in no pair.
///
/// *Memory.* A stash is held at least for the path from its forward, through the later stages, to its backward. The
/// operations on the path run one after the other, and no two of them form a pair. If an operation on the path is part
/// of a pair, the path takes the pair's duration in its place. A pair makes the paths of both of its microbatches
/// longer. From the first forward to the last backward, the areas (memory × time) of a rank's stashes fit below a
/// level. The level is the largest sum of sizes that fits in memory. Areas are counted twice: until the end of I or B,
/// and with the memory for W. A full backward outside pairs counts as an I followed by its W, and holds at most the
/// whole stash. A full backward in a pair holds the whole stash until the pair ends. No W follows a pair with a full
/// backward.
///
/// *Ramps.* Near both ends, memory can't be full (`memory_ramp`). A pair has one forward and one backward. The
/// operations that take memory run one after the other if all of them are forwards. The operations that release memory
/// run one after the other if none is a forward. The backward of a pair releases at once what I and W would release in
/// succession.
///
/// The memory of running pairs isn't counted.
class pair_area_program {
public:
    /// Contract: `known` is a lower bound on the objective. The problem has pairs, and equal microbatches.
    pair_area_program(const problem& p, double known)
        : p_{&p}, known_{known}, maker_{p}, c_{&maker_.made()}, paths_{*c_}, is_forward_(c_->length.size(), false),
          gradient_of_(is_forward_.size()) {
        std::iota(gradient_of_.begin(), gradient_of_.end(), std::size_t{0});
        for (const stage s : p.graph.all_stages()) {
            is_forward_[maker_.chain_of(forward(s, first))] = true;
            if (const auto weight = maker_.weight_chain(s, first); weight != chain_system::none)
                gradient_of_[weight] = maker_.chain_of(backward_input(s, first));
        }
        for (const auto& each : p.overlaps)
            add_pair(each);
    }
    /// About the number of entries of the linear program, plus the number of steps to find all paths.
    [[nodiscard]] std::size_t size() const {
        return pairs_.size() * 2 * c_->devices.size() + p_->graph.stages() * c_->length.size();
    }

    /// A lower bound on the objective, at least `known`.
    [[nodiscard]] double solve() {
        constexpr double infinite = std::numeric_limits<double>::infinity();
        // If any schedule is valid, the serial schedule is valid, too, up to rounding.
        add_column(1.0, 1.0, std::max(1.0, 2.0 * p_->serial_time().value() / known_));
        first_idle_ = program_.columns();
        for (std::size_t r = 0; r < c_->devices.size(); ++r)
            for (const double idle : {idle_at_begin(r), idle_at_end(r)})
                add_column(0.0, 0.0, std::max(0.0, idle) / known_);
        first_pair_ = program_.columns();
        const auto count = static_cast<double>(p_->graph.microbatches());
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            add_column(0.0, 0.0, count);
        for (std::size_t r = 0; r < c_->devices.size(); ++r) {
            limit_pairs(r);
            add_work(r);
            for (const bool until_gradient : {true, false})
                if (c_->devices[r].limited) add_area(demand_of(r, until_gradient));
        }
        program_.matrix.resize(0, static_cast<Eigen::Index>(program_.columns()));
        milp::lp::append_rows(program_, rows_);
        milp::simplex solved{std::move(program_)};
        const auto status = solved.solve();
        if (status != milp::lp_status::optimal) return known_;
        const double bound = solved.dual_bound();
        return bound > 1.0 && bound < infinite ? bound * known_ : known_;
    }

private:
    static constexpr microbatch first{0};

    /// A time-saving pair of two stages, as chains of its operations. `weight` is the chain of the W that a full
    /// backward in a pair replaces, or `none`. `length` is the pair's least duration.
    struct stage_pair {
        std::size_t rank = 0;
        std::size_t forward = 0;
        std::size_t gradient = 0;
        std::size_t weight = chain_system::none;
        double length = 0.0;
        double saved = 0.0;
    };
    /// Memory of one microbatch, from the start of its operation of chain `from` to the end of chain `to`.
    struct held_memory {
        std::size_t from = 0;
        std::size_t to = 0;
        double size = 0.0;
    };
    /// `area` is the memory × time below `level`, without pairs. The area grows by `growth` for each unit of time by
    /// which an operation of a chain becomes longer. The area lies at least `head` after the start, and at least `tail`
    /// before the end. `unused` is the area that stays unused near both ends.
    struct area_demand {
        double area = 0.0;
        std::vector<double> growth{};
        double level = 0.0;
        double head = std::numeric_limits<double>::infinity();
        double tail = std::numeric_limits<double>::infinity();
        double unused = 0.0;
    };

    [[nodiscard]] double time_of(std::size_t chain) const {
        return c_->length[chain] * static_cast<double>(c_->count[chain]);
    }
    [[nodiscard]] double length_of_weight(std::size_t weight) const {
        return weight == chain_system::none ? 0.0 : c_->length[weight];
    }

    void add_pair(const overlap& each) {
        const auto& costs = p_->costs[each.backward];
        const bool splits = may_split(*p_, each.backward);
        const bool is_whole = each.kind == overlap_kind::backward;
        if (!is_whole && !splits && costs.gradients == gradient_kind::full) return; // only pairs of B are used
        stage_pair pair{p_->rank_of(each.forward).position(), maker_.chain_of(forward(each.forward, first)),
                        maker_.chain_of(backward_input(each.backward, first))};
        if (is_whole) pair.weight = maker_.weight_chain(each.backward, first);
        const double alone = (splits ? costs.backward_input : costs.backward()).value();
        const double extra = std::max(0.0, c_->length[pair.gradient] - alone);
        pair.length = each.duration.value() + extra;
        pair.saved = c_->length[pair.forward] + c_->length[pair.gradient] + length_of_weight(pair.weight) - pair.length;
        if (pair.saved > 0.0) pairs_.push_back(pair);
    }

    void add_column(double cost, double lower, double upper) {
        program_.cost.push_back(cost);
        program_.column_lower.push_back(lower);
        program_.column_upper.push_back(upper);
    }
    [[nodiscard]] bool is_makespan() const { return !c_->span; }

    /// The least `of(chain)` of the rank's chains with `counts(chain)`.
    template <class Of, class Counts> [[nodiscard]] double least(std::size_t r, Of of, Counts counts) const {
        double best = std::numeric_limits<double>::infinity();
        for (const std::size_t chain : c_->devices[r].chains)
            if (counts(chain)) best = std::min(best, of(chain));
        return best;
    }
    [[nodiscard]] double first_forward(std::size_t r) const {
        return least(
            r, [&](std::size_t x) { return paths_.head(x); }, [&](std::size_t x) { return is_forward_[x]; });
    }
    [[nodiscard]] double first_backward(std::size_t r) const {
        return least(
            r, [&](std::size_t x) { return paths_.head(x); }, [&](std::size_t x) { return !is_forward_[x]; });
    }
    [[nodiscard]] double after_forwards(std::size_t r) const {
        return least(
            r, [&](std::size_t x) { return paths_.tail(x); }, [&](std::size_t x) { return is_forward_[x]; });
    }
    [[nodiscard]] double after_all(std::size_t r) const {
        return least(
            r, [&](std::size_t x) { return time_after(x); }, [](std::size_t) { return true; });
    }
    /// The least time after the end of an operation. An I or B in a pair ends with the pair. A pair of a full backward
    /// has no W after it.
    [[nodiscard]] double time_after(std::size_t chain) const {
        double most = 0.0;
        for (const auto& next : c_->links[1][chain])
            if (gradient_of_[next.chain] == next.chain)
                most = std::max(most, next.lag + c_->length[next.chain] + paths_.tail(next.chain));
        return most;
    }
    /// Whether the time before the first backward and the time after the last forward never overlap.
    [[nodiscard]] bool has_apart_ends(std::size_t r) const {
        return is_makespan() && first_backward(r) + after_forwards(r) <= known_;
    }
    [[nodiscard]] double idle_at_begin(std::size_t r) const {
        return has_apart_ends(r) ? first_backward(r) - first_forward(r) : 0.0;
    }
    [[nodiscard]] double idle_at_end(std::size_t r) const {
        return has_apart_ends(r) ? after_forwards(r) - after_all(r) : 0.0;
    }

    using terms = std::vector<std::pair<std::size_t, double>>;
    /// Adds the row Σ coefficient · column ≥ `least`, a time.
    void at_least(terms of, double least) {
        rows_.push_back({std::move(of), least / known_, std::numeric_limits<double>::infinity()});
    }
    /// Adds the time `weigh(pair)` for each pair of rank `r`.
    template <class Weigh> void add_pairs_of(std::size_t r, terms& to, Weigh weigh) const {
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            if (pairs_[i].rank == r) to.emplace_back(first_pair_ + i, weigh(pairs_[i]) / known_);
    }
    /// Allows at most `most` of the pairs for which `counts(pair)` holds.
    template <class Counts> void limit_pairs(double most, Counts counts) {
        terms of;
        for (std::size_t i = 0; i < pairs_.size(); ++i)
            if (counts(pairs_[i])) of.emplace_back(first_pair_ + i, 1.0);
        if (!of.empty()) rows_.push_back({std::move(of), -std::numeric_limits<double>::infinity(), most});
    }

    /// Each operation is in at most one pair. A rank's first forward is in no pair: the backward of the pair would
    /// follow another forward.
    void limit_pairs(std::size_t r) {
        double forwards = 0.0;
        for (const std::size_t chain : c_->devices[r].chains) {
            const auto count = static_cast<double>(c_->count[chain]);
            if (is_forward_[chain]) forwards += count;
            limit_pairs(count, [&](const stage_pair& of) { return of.forward == chain || of.gradient == chain; });
        }
        limit_pairs(forwards - 1.0, [&](const stage_pair& of) { return of.rank == r; });
    }
    void add_work(std::size_t r) {
        double work = 0.0;
        double forwards = 0.0;
        for (const std::size_t chain : c_->devices[r].chains) {
            work += time_of(chain);
            if (is_forward_[chain]) forwards += time_of(chain);
        }
        if (work <= 0.0) return;
        const std::size_t begin = first_idle_ + 2 * r;
        terms of{{0, 1.0}, {begin, -1.0}, {begin + 1, -1.0}};
        add_pairs_of(r, of, [](const stage_pair& pair) { return pair.saved; });
        at_least(std::move(of), work + (is_makespan() ? first_forward(r) + after_all(r) : 0.0));
        if (!has_apart_ends(r)) return;
        terms at_begin{{begin, 1.0}};
        add_pairs_of(r, at_begin, [&](const stage_pair& pair) { return -c_->length[pair.forward]; });
        at_least(std::move(at_begin), idle_at_begin(r) - forwards);
        if (c_->devices[r].limited) at_least({{begin, 1.0}}, idle_at_begin(r) - most_forwards_in_memory(r));
        terms at_end{{begin + 1, 1.0}};
        add_pairs_of(r, at_end, [&](const stage_pair& pair) {
            return -c_->length[pair.gradient] - length_of_weight(pair.weight);
        });
        at_least(std::move(at_end), idle_at_end(r) - (work - forwards));
    }
    /// The longest time that the rank can run forwards before its first backward. Contract: the rank's memory is
    /// limited.
    [[nodiscard]] double most_forwards_in_memory(std::size_t r) const {
        const auto& on = c_->devices[r];
        std::vector<double> taken(c_->length.size(), 0.0);
        for (const auto& h : on.holdings)
            if (c_->rank_of[h.to] == r && !is_forward_[h.to]) taken[h.from] += h.size;
        fractional_knapsack all;
        for (const std::size_t chain : on.chains)
            if (is_forward_[chain]) all.add(time_of(chain), taken[chain] * static_cast<double>(c_->count[chain]));
        return all.most_amount(on.limit);
    }

    /// The memory that the rank's stashes hold. With `until_gradient`, I releases all memory that W would release.
    [[nodiscard]] std::vector<held_memory> holdings_of(std::size_t r, bool until_gradient) const {
        std::map<std::pair<std::size_t, std::size_t>, double> sizes;
        for (const auto& h : c_->devices[r].holdings)
            if (h.from != h.to && (is_makespan() || c_->rank_of[h.to] == r))
                sizes[{h.from, until_gradient ? gradient_of_[h.to] : h.to}] += h.size;
        std::vector<held_memory> found;
        for (const auto& [ends, size] : sizes)
            found.push_back({ends.first, ends.second, size});
        return found;
    }
    [[nodiscard]] area_demand demand_of(std::size_t r, bool until_gradient) {
        area_demand found;
        found.growth.assign(c_->length.size(), 0.0);
        std::vector<memory_size> sizes;
        const auto held = holdings_of(r, until_gradient);
        for (const auto& h : held) {
            found.area += h.size * static_cast<double>(c_->count[h.from]) * paths_.lifespan(h.from, h.to);
            paths_.for_each_chain_back(h.to, [&](std::size_t chain) { found.growth[chain] += h.size; });
            sizes.emplace_back(h.size);
            found.head = std::min(found.head, paths_.head(h.from));
            found.tail = std::min(found.tail, time_after(h.to));
        }
        if (held.empty()) return found;
        if (c_->span) found.head = found.tail = 0.0;
        const auto& on = c_->devices[r];
        found.level = reachable_level(sizes, memory_size{on.limit}, memory_size{c_->memory_slack}).value();
        found.unused = unused_at_ends(r, held, found);
        return found;
    }
    /// The largest unused area of the ramps, if both have room in every schedule, or else of one ramp.
    [[nodiscard]] double unused_at_ends(std::size_t r, const std::vector<held_memory>& held,
                                        const area_demand& of) const {
        const auto up = ramp_up(held).below(of.level);
        const auto down = ramp_down(r, held).below(of.level);
        const double room = known_ - of.head - of.tail;
        double most = 0.0;
        for (const auto& begin : {up, memory_ramp{}})
            for (const auto& end : {down, memory_ramp{}})
                if (begin.time + end.time <= room) most = std::max(most, begin.unused + end.unused);
        return most;
    }
    [[nodiscard]] ramp_operations ramp_up(const std::vector<held_memory>& held) const {
        std::vector<double> taken(c_->length.size(), 0.0);
        ramp_operations found;
        for (const auto& h : held) {
            taken[h.from] += h.size;
            if (!is_forward_[h.from]) found.add_at_once(std::numeric_limits<double>::infinity());
        }
        for (std::size_t chain = 0; chain < taken.size(); ++chain)
            found.add(taken[chain], c_->length[chain], c_->count[chain]);
        return found;
    }
    [[nodiscard]] ramp_operations ramp_down(std::size_t r, const std::vector<held_memory>& held) const {
        std::vector<double> released(c_->length.size(), 0.0);
        std::vector<double> at_once(released);
        ramp_operations found;
        for (const auto& h : held) {
            released[h.to] += h.size;
            at_once[gradient_of_[h.to]] += h.size;
            if (is_forward_[h.to] || c_->rank_of[h.to] != r) found.add_at_once(std::numeric_limits<double>::infinity());
        }
        for (std::size_t chain = 0; chain < released.size(); ++chain) {
            found.add(released[chain], c_->length[chain], c_->count[chain]);
            found.add_at_once(at_once[chain]);
        }
        return found;
    }
    void add_area(const area_demand& of) {
        if (of.level <= 0.0 || of.area <= 0.0) return;
        terms all{{0, 1.0}};
        for (std::size_t i = 0; i < pairs_.size(); ++i) {
            const auto& pair = pairs_[i];
            double more = of.growth[pair.forward] * (pair.length - c_->length[pair.forward]) +
                          of.growth[pair.gradient] * (pair.length - c_->length[pair.gradient]);
            if (pair.weight != chain_system::none) more -= of.growth[pair.weight] * c_->length[pair.weight];
            if (more != 0.0) all.emplace_back(first_pair_ + i, -more / of.level / known_);
        }
        at_least(std::move(all), (of.area + of.unused) / of.level + of.head + of.tail);
    }

    const problem* p_;
    double known_;
    chain_maker maker_;
    const chain_system* c_;
    chain_paths paths_;
    std::vector<char> is_forward_;
    /// For the chain of a W, the chain of its I. For any other chain, the chain itself.
    std::vector<std::size_t> gradient_of_;
    std::vector<stage_pair> pairs_{};
    milp::linear_program program_{};
    std::vector<milp::cut_row> rows_{};
    std::size_t first_idle_ = 0;
    std::size_t first_pair_ = 0;
};

} // namespace optpipe::detail
