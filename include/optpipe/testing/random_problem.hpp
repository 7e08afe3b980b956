#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/pipeline/edges.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/microbatches.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::testing {

/// Limits of random problems. The numbers of ranks, stages and so on are maxima.
struct problem_ranges {
    std::size_t ranks = 3;
    std::size_t stages = 6;
    std::size_t microbatches = 4;
    /// Largest product of the numbers of stages and microbatches.
    std::size_t cells = 8;
    std::size_t offloading_percent = 50;
    std::size_t span_percent = 40;
    std::size_t split_percent = 70;
    /// Percentage of problems without full backwards, among those that may split backwards.
    std::size_t split_only_percent = 0;
    /// Percentage of problems whose stages have more options than keep and offload.
    std::size_t storage_percent = 0;
    /// Percentage of problems with at least one of these: edges, frozen stages, groups, slices, microbatches that
    /// differ.
    std::size_t graph_percent = 0;
    /// Forwards and backwards take 1 to `steps` grid steps.
    std::size_t steps = 4;
};

struct random_problem {
    optpipe::problem problem;
    /// All times of the problem are integral multiples of this number.
    double grid = 1.0;
};

namespace detail {

class problem_maker {
public:
    problem_maker(random_numbers& random, const problem_ranges& ranges) : random_{&random}, ranges_{ranges} {}

    random_problem make() {
        constexpr double grids[] = {1.0, 0.5, 0.1, 2.3};
        grid_ = grids[random_->below(4)];
        auto g = shape();
        auto costs = all_costs(g);
        optpipe::problem p{std::move(g), std::move(costs)};
        p.split_backward = random_->chance(ranges_.split_percent);
        if (p.split_backward && ranges_.split_only_percent > 0)
            p.full_backward = !random_->chance(ranges_.split_only_percent);
        const bool span = random_->chance(ranges_.span_percent);
        p.objective = span ? optpipe::objective_kind::span : optpipe::objective_kind::makespan;
        set_hops(p);
        if (random_->chance(ranges_.offloading_percent)) set_transfers(p);
        if (ranges_.storage_percent > 0 && random_->chance(ranges_.storage_percent)) set_storage(p);
        if (ranges_.graph_percent > 0 && random_->chance(ranges_.graph_percent)) make_graph(p);
        if (is_plain(p))
            set_limits(p);
        else
            set_limits_of_graph(p);
        p.name = "random";
        return {std::move(p), grid_};
    }

private:
    using per_stage_rank = optpipe::per_stage<optpipe::rank>;

    optpipe::any_graph shape() {
        for (;;) {
            const auto ranks = random_->between(1, ranges_.ranks);
            auto map = some_placement(ranks);
            const auto stages = map.size();
            const auto most = std::min(ranges_.microbatches, ranges_.cells / stages);
            if (stages > ranges_.stages || most == 0) continue;
            return {ranks, random_->between(1, most), optpipe::placement::map<>{std::move(map)}};
        }
    }
    per_stage_rank some_placement(std::size_t ranks) {
        switch (random_->below(4)) {
        case 0: return placed(optpipe::placement::linear{}, ranks);
        case 1: return placed(optpipe::placement::v{}, ranks);
        case 2: return placed(optpipe::placement::loop<>{random_->between(1, 3)}, ranks);
        default: break;
        }
        per_stage_rank map(random_->between(ranks, std::max(ranks, ranges_.stages)));
        for (const optpipe::stage s : map.indices())
            map[s] = optpipe::rank{s.position() < ranks ? s.position() : random_->below(ranks)};
        for (std::size_t i = map.size(); i > 1; --i)
            std::swap(map[optpipe::stage{i - 1}], map[optpipe::stage{random_->below(i)}]);
        return map;
    }
    template <class Placement> static per_stage_rank placed(const Placement& where, std::size_t ranks) {
        per_stage_rank map(where.stages(ranks));
        for (const optpipe::stage s : map.indices())
            map[s] = where.rank_of(s, ranks);
        return map;
    }

    optpipe::duration steps(std::size_t low, std::size_t high) {
        return optpipe::duration{grid_ * static_cast<double>(random_->between(low, high))};
    }
    static optpipe::memory_size quarters(std::size_t count) {
        return optpipe::memory_size{0.25 * static_cast<double>(count)};
    }

    optpipe::stage_costs some_costs(bool units) {
        optpipe::stage_costs c;
        const auto most = units ? 1 : ranges_.steps;
        c.forward = steps(1, most);
        c.backward_input = steps(1, most);
        c.backward_weight = steps(1, most);
        const auto activation = units ? 4 : random_->chance(5) ? 0 : random_->between(1, 12);
        const std::size_t shares[] = {0, activation / 2, activation / 2, activation / 2, activation, activation + 3};
        c.activation = quarters(activation);
        c.weight_stash = quarters(shares[random_->below(6)]);
        return c;
    }
    optpipe::per_stage<optpipe::stage_costs> all_costs(const optpipe::any_graph& g) {
        const bool units = random_->chance(25);
        const bool equal = units || random_->chance(30);
        const auto common = some_costs(units);
        optpipe::per_stage<optpipe::stage_costs> costs(g.stages(), common);
        if (!equal)
            for (auto& c : costs)
                c = some_costs(false);
        return costs;
    }

    void set_hops(optpipe::problem& p) {
        const auto ranks = p.graph.ranks();
        switch (random_->below(3)) {
        case 0: return;
        case 1: p.p2p = optpipe::hop_times<>{steps(1, 2)}; return;
        default: break;
        }
        optpipe::bounded_vector<optpipe::duration, optpipe::dynamic> matrix;
        for (std::size_t i = 0; i < ranks * ranks; ++i)
            matrix.push_back(steps(0, 3));
        p.p2p = optpipe::hop_times<>{ranks, std::move(matrix)};
    }

    void set_transfers(optpipe::problem& p) {
        const bool host_limited = random_->chance(30);
        // With host limits, no transfer has duration 0. Transfers of duration 0 could swap host memory at one instant,
        // which no order allows.
        const std::size_t shortest = host_limited || random_->chance(85) ? 1 : 0;
        const bool all = random_->chance(60);
        for (const optpipe::stage s : p.graph.all_stages()) {
            if (!all && !random_->chance(50)) continue;
            auto c = p.costs[s];
            c.transfer = optpipe::transfer_times{steps(shortest, ranges_.steps), steps(shortest, ranges_.steps)};
            p.set_stage(s, c);
        }
        p.transfer.engines = random_->chance(50) ? 2 : 1;
        p.transfer.duplex = random_->chance(50) ? optpipe::duplex_kind::half : optpipe::duplex_kind::full;
        for (std::size_t r = 1; r < p.graph.ranks(); ++r)
            if (random_->chance(50)) p.transfer.share_link(optpipe::rank{random_->below(r)}, optpipe::rank{r});
        if (!host_limited) return;
        for (auto& limit : p.host_memory_limit)
            if (random_->chance(70)) limit = quarters(random_->between(0, 24));
    }

    /// Draws a storage option. An option that holds less than the activation also recomputes. The held size is a
    /// multiple of 0.25. A part or all of the held memory may be transferred.
    optpipe::storage_option some_option(const optpipe::stage_costs& c, bool transfers) {
        const auto whole = static_cast<std::size_t>(c.activation.value() / 0.25);
        optpipe::storage_option o{};
        o.held = random_->chance(40) ? c.activation : quarters(random_->between(0, whole));
        if (o.held < c.activation || random_->chance(20))
            (random_->chance(50) ? o.recompute : o.backward_extra) = steps(1, ranges_.steps);
        if (!transfers || !random_->chance(50)) return o;
        const auto held = static_cast<std::size_t>(o.held.value() / 0.25);
        o.transfer_size = random_->chance(60) ? o.held : quarters(random_->between(0, held));
        o.transfer = optpipe::transfer_times{steps(1, ranges_.steps), steps(1, ranges_.steps)};
        return o;
    }
    /// Gives each stage a new list of options in random order. The list has old options (sometimes without the first)
    /// and up to four new options. Stages often get the same options.
    void set_storage(optpipe::problem& p) {
        const bool transfers = random_->chance(70);
        for (const optpipe::stage s : p.graph.all_stages()) {
            const auto& c = p.costs[s];
            if (random_->chance(10)) continue;
            std::vector<optpipe::storage_option> options(p.storage[s].begin(), p.storage[s].end());
            if (!random_->chance(85)) options.erase(options.begin()); // removes `keep`
            for (std::size_t i = random_->between(options.empty() ? 1 : 0, 4); i > 0; --i) {
                options.push_back(some_option(c, transfers));
                options.back().name = optpipe::bounded_text<32>{"option-", i};
            }
            // A copy of the last option, with a transfer added.
            if (random_->chance(50) && !options.back().offloads() && transfers) {
                options.push_back(options.back());
                auto& twin = options.back();
                twin.name.append("+offload");
                twin.transfer_size = twin.held;
                twin.transfer = optpipe::transfer_times{steps(1, ranges_.steps), steps(1, ranges_.steps)};
            }
            for (std::size_t i = options.size(); i > 1; --i)
                std::swap(options[i - 1], options[random_->below(i)]);
            p.set_storage(s, options);
        }
        for (const optpipe::rank r : p.graph.all_ranks())
            if (least_memory(p, r).needed.is_unlimited()) p.host_memory_limit[r] = optpipe::memory_size::unlimited();
    }

    void set_limits(optpipe::problem& p) {
        const auto how = random_->below(4);
        for (const optpipe::rank r : p.graph.all_ranks()) {
            const auto least = least_memory(p, r).needed;
            const auto generous = random_->between(0, 8);
            if (how == 0 || (how == 1 && random_->chance(30))) continue;
            p.memory_limit[r] = least + quarters(how == 3 ? 0 : generous);
        }
    }

    void make_graph(optpipe::problem& p) {
        if (random_->chance(70)) set_edges(p);
        if (random_->chance(40)) freeze_stages(p);
        if (random_->chance(40)) set_group(p);
        if (random_->chance(50)) set_slices(p);
        if (random_->chance(50)) set_factors(p);
        for (auto& limit : p.host_memory_limit)
            limit = optpipe::memory_size::unlimited();
        grid_ /= 4.0; // sizes of edges and factors are multiples of 0.5, and two factors may be multiplied
    }
    /// A random factor: 0.5, 1, 1.5 or 2.
    double factor() { return 0.5 * static_cast<double>(random_->between(1, 4)); }

    void set_edges(optpipe::problem& p) {
        std::vector<optpipe::edge> all;
        for (const optpipe::stage s : p.graph.all_stages())
            for (const optpipe::stage t : p.graph.all_stages()) {
                if (!(s < t) || !random_->chance(t == s.next() ? 75 : 25)) continue;
                const auto held = random_->chance(40) ? quarters(random_->between(1, 3)) : optpipe::memory_size{};
                all.push_back({s, t, 0.5 * static_cast<double>(random_->below(4)), held});
            }
        p.graph = {p.graph.ranks(), p.graph.microbatches(), p.graph.placement(),
                   optpipe::edges::any{p.graph.stages(), std::move(all)}};
    }
    void freeze_stages(optpipe::problem& p) {
        for (const optpipe::stage s : p.graph.all_stages()) {
            bool may_be_none = true;
            p.graph.for_each_edge_into(s, [&](const optpipe::edge& e) {
                may_be_none = may_be_none && p.costs[e.from].gradients == optpipe::gradient_kind::none;
            });
            auto& c = p.costs[s];
            if (!random_->chance(40)) continue;
            c.gradients = may_be_none ? optpipe::gradient_kind::none : optpipe::gradient_kind::input;
            c.backward_weight = {};
            c.weight_stash = {};
            if (!may_be_none) continue;
            c.backward_input = {};
            p.set_stage(s, optpipe::stage_costs{c});
        }
    }
    void set_group(optpipe::problem& p) {
        std::vector<optpipe::stage> members;
        for (const optpipe::stage s : p.graph.all_stages())
            if (random_->chance(50)) members.push_back(s);
        if (!members.empty()) p.groups.add(members, steps(0, 2), p.graph.stages());
    }
    void set_slices(optpipe::problem& p) {
        std::vector<std::size_t> sequences(p.graph.microbatches());
        for (std::size_t m = 1; m < sequences.size(); ++m)
            sequences[m] = sequences[m - 1] + (random_->chance(60) ? 0 : 1);
        p.microbatches.set_sequences(sequences);
        for (auto& c : p.costs)
            c.kv = quarters(random_->below(4));
    }
    void set_factors(optpipe::problem& p) {
        const auto some = [&] {
            const auto common = factor();
            if (random_->chance(50)) return optpipe::cost_factors{common, common, common, common, common};
            return optpipe::cost_factors{factor(), factor(), factor(), factor(), factor()};
        };
        const bool by_stage = random_->chance(40);
        std::vector<optpipe::cost_factors> all(by_stage ? p.graph.cells() : p.graph.microbatches());
        for (auto& each : all)
            each = some();
        if (by_stage)
            p.microbatches.set_factors_by_stage(all, p.graph.microbatches());
        else
            p.microbatches.set_factors(all);
    }

    /// Memory of a sequence's microbatches on a rank if all of it is held at once.
    static optpipe::memory_size all_of_sequence(const optpipe::problem& p, optpipe::rank r, optpipe::microbatch first) {
        optpipe::memory_size all{};
        for (auto m = std::optional{first}; m; m = p.microbatches.slice_after(*m))
            for (const optpipe::stage s : p.graph.all_stages()) {
                const auto c = p.cost(s, *m);
                if (p.rank_of(s) == r) all += std::max(c.activation, c.weight_stash) + 2.0 * c.kv;
                p.graph.for_each_edge_out_of(s, [&](const optpipe::edge& e) {
                    const auto held = p.microbatches.factors(s, *m).memory * e.held;
                    all += (p.rank_of(s) == r ? held : optpipe::memory_size{}) +
                           (p.rank_of(e.to) == r ? held : optpipe::memory_size{});
                });
            }
        return all;
    }
    void set_limits_of_graph(optpipe::problem& p) {
        for (const optpipe::rank r : p.graph.all_ranks()) {
            if (random_->chance(30)) continue;
            optpipe::memory_size most{};
            for (const optpipe::microbatch m : p.graph.all_microbatches())
                if (!p.microbatches.slice_before(m)) most = std::max(most, all_of_sequence(p, r, m));
            p.memory_limit[r] = most + quarters(random_->between(0, 4));
        }
    }

    random_numbers* random_;
    problem_ranges ranges_;
    double grid_ = 1.0;
};

} // namespace detail

/// A small random problem of any kind. Running the microbatches (or sequences) one after the other is a valid schedule.
inline random_problem make_random_problem(random_numbers& random, const problem_ranges& ranges = {}) {
    return detail::problem_maker{random, ranges}.make();
}

} // namespace optpipe::testing
