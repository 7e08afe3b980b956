#pragma once

#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::testing {
namespace detail {

/// All problems one step simpler than a given problem. The largest simplifications come first.
class simpler_problems {
public:
    explicit simpler_problems(const problem& p) : p_{p} {}

    std::vector<problem> all() {
        for (const auto m : {std::size_t{1}, p_.graph.microbatches() / 2, p_.graph.microbatches() - 1})
            if (m > 0 && m < p_.graph.microbatches())
                add(reshaped(p_.graph.ranks(), m, placed(), p_.costs, p_.storage));
        for (const rank r : p_.graph.all_ranks())
            without_rank(r);
        for (const stage s : p_.graph.all_stages())
            without_stage(s);
        simplify_rules();
        simplify_costs();
        return std::move(found_);
    }

private:
    using stages_of = per_stage<rank>;

    [[nodiscard]] stages_of placed() const {
        stages_of where(p_.graph.stages());
        for (const stage s : p_.graph.all_stages())
            where[s] = p_.rank_of(s);
        return where;
    }
    /// Raises memory limits of `p` that allow no schedule, and adds `p`.
    void add(problem p) {
        for (const rank r : p.graph.all_ranks()) {
            const auto needed = least_memory(p, r).needed;
            if (needed.is_unlimited()) return; // host memory is too small for a stage whose storage options all offload
            p.memory_limit[r] = std::max(p.memory_limit[r], needed);
        }
        found_.push_back(std::move(p));
    }
    template <class Change> void changed(const Change& change) {
        auto p = p_;
        change(p);
        add(std::move(p));
    }

    /// A copy of the problem with different ranks, microbatches and stages. Rules and limits stay the same. `kept`
    /// lists the ranks that remain.
    [[nodiscard]] problem reshaped(std::size_t ranks, std::size_t microbatches, stages_of where,
                                   per_stage<stage_costs> costs, per_stage<storage_list<false>> storage,
                                   const std::vector<rank>& kept = {}) const {
        problem p{any_graph{ranks, microbatches, placement::map<>{std::move(where)}}, std::move(costs)};
        p.storage = std::move(storage);
        const auto old = [&](rank r) { return kept.empty() ? r : kept[r.position()]; };
        p.split_backward = p_.split_backward;
        p.full_backward = p_.full_backward;
        p.objective = p_.objective;
        p.transfer.engines = p_.transfer.engines;
        p.transfer.duplex = p_.transfer.duplex;
        bounded_vector<duration, dynamic> hops;
        for (const rank a : p.graph.all_ranks()) {
            p.memory_limit[a] = p_.memory_limit[old(a)];
            p.host_memory_limit[a] = p_.host_memory_limit[old(a)];
            for (const rank b : p.graph.all_ranks()) {
                hops.push_back(p_.p2p(old(a), old(b)));
                if (p_.transfer.link[old(a)] == p_.transfer.link[old(b)]) p.transfer.share_link(a, b);
            }
        }
        if (p_.p2p.is_uniform())
            p.p2p = p_.p2p;
        else
            p.p2p = hop_times<>{ranks, std::move(hops)};
        return p;
    }
    /// Removes a rank and its stages, if any stages remain.
    void without_rank(rank gone) {
        std::vector<rank> kept;
        for (const rank r : p_.graph.all_ranks())
            if (r != gone) kept.push_back(r);
        std::vector<stage> stages;
        for (const stage s : p_.graph.all_stages())
            if (p_.rank_of(s) != gone) stages.push_back(s);
        if (stages.empty()) return;
        add(of_stages(stages, kept));
    }
    void without_stage(stage gone) {
        std::vector<stage> stages;
        std::size_t on_its_rank = 0;
        for (const stage s : p_.graph.all_stages()) {
            if (s != gone) stages.push_back(s);
            if (p_.rank_of(s) == p_.rank_of(gone)) ++on_its_rank;
        }
        if (on_its_rank < 2) return;
        std::vector<rank> ranks;
        for (const rank r : p_.graph.all_ranks())
            ranks.push_back(r);
        add(of_stages(stages, ranks));
    }
    [[nodiscard]] problem of_stages(const std::vector<stage>& stages, const std::vector<rank>& ranks) const {
        stages_of where(stages.size());
        per_stage<stage_costs> costs(stages.size());
        per_stage<storage_list<false>> storage(stages.size());
        for (const stage s : where.indices()) {
            storage[s] = p_.storage[stages[s.position()]];
            const auto at = std::find(ranks.begin(), ranks.end(), p_.rank_of(stages[s.position()])) - ranks.begin();
            where[s] = rank{static_cast<std::size_t>(at)};
            costs[s] = p_.costs[stages[s.position()]];
        }
        return reshaped(ranks.size(), p_.graph.microbatches(), std::move(where), std::move(costs), std::move(storage),
                        ranks);
    }

    void simplify_rules() {
        const bool has_hops = !p_.p2p.is_uniform() || p_.p2p.uniform() != duration{};
        if (has_hops) changed([](problem& p) { p.p2p = {}; });
        if (p_.objective != objective_kind::makespan) changed([](problem& p) { p.objective = {}; });
        if (!p_.split_backward) changed([](problem& p) { p.split_backward = true; });
        if (!p_.full_backward) changed([](problem& p) { p.full_backward = true; });
        const transfer_rules<> plain{p_.graph.ranks()};
        if (p_.transfer.engines != 1 || p_.transfer.duplex != duplex_kind::full || p_.transfer.link != plain.link)
            changed([&](problem& p) { p.transfer = plain; });
        for (const rank r : p_.graph.all_ranks()) {
            if (!p_.memory_limit[r].is_unlimited())
                changed([&](problem& p) { p.memory_limit[r] = memory_size::unlimited(); });
            if (!p_.host_memory_limit[r].is_unlimited())
                changed([&](problem& p) { p.host_memory_limit[r] = memory_size::unlimited(); });
        }
    }
    void simplify_costs() {
        constexpr stage_costs unit{duration{1}, duration{1}, duration{1}, memory_size{1}, memory_size{0.5}, {}};
        for (const stage s : p_.graph.all_stages()) {
            if (!is_described_by_costs(p_.costs[s], p_.storage[s])) {
                simplify_storage(s);
                continue;
            }
            const bool offloads = p_.storage_options(s) > 1;
            if (p_.costs[s] == unit && !offloads) continue;
            changed([&](problem& p) { p.set_stage(s, unit); });
            if (!offloads) continue;
            auto still_offloads = unit;
            still_offloads.transfer = transfer_times{duration{1}, duration{1}};
            if (!(p_.costs[s] == unit && p_.storage[s] == described_storage(still_offloads)))
                changed([&](problem& p) { p.set_stage(s, still_offloads); });
        }
    }

    /// Simplifies the storage of a stage: only `keep` remains, or one option is removed. The costs stay, because they
    /// must match the options' memory.
    void simplify_storage(stage s) {
        changed([&](problem& p) { p.set_stage(s, p.costs[s]); });
        for (std::size_t gone = 0; p_.storage[s].size() > 1 && gone < p_.storage[s].size(); ++gone)
            changed([&](problem& p) {
                p.storage[s].clear();
                for (std::size_t i = 0; i < p_.storage[s].size(); ++i)
                    if (i != gone) p.storage[s].push_back(p_.storage[s][i]);
            });
    }

    const problem& p_;
    std::vector<problem> found_;
};

} // namespace detail

/// Simplifies a failing problem step by step. A step is kept if the simpler problem still fails. A step removes
/// microbatches, ranks, stages or storage options, makes a rule plain, or sets costs to 1. Calls `fails(problem)` at
/// most `most_tries` times.
template <class Fails>
[[nodiscard]] problem shrink_problem(problem p, const Fails& fails, std::size_t most_tries = 2000) {
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (auto& candidate : detail::simpler_problems{p}.all()) {
            if (most_tries == 0) return p;
            --most_tries;
            if (!fails(candidate)) continue;
            p = std::move(candidate);
            smaller = true;
            break;
        }
    }
    return p;
}

} // namespace optpipe::testing
