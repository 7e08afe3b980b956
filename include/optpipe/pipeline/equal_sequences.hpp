#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace optpipe {

/// Sequences of a step that cost the same. Equal sequences have equally many slices, and the i-th slices have equal
/// costs on every stage. A microbatch that isn't a slice is a sequence with one element.
struct equal_sequences {
    /// The slices of the first sequence.
    std::vector<microbatch> slices{};
    std::size_t count = 0;
};

namespace detail {

/// Sorts sequences by their costs. Sequences that cost the same are equivalent.
template <pipeline_graph Graph> class cost_comparison {
public:
    explicit cost_comparison(const basic_problem<Graph>& p) : p_{&p} {}

    bool operator()(const std::vector<microbatch>& a, const std::vector<microbatch>& b) const {
        if (a.size() != b.size()) return a.size() < b.size();
        for (std::size_t i = 0; i < a.size(); ++i)
            for (const stage s : p_->graph.all_stages()) {
                const auto& of_a = p_->microbatches.factors(s, a[i]);
                const auto& of_b = p_->microbatches.factors(s, b[i]);
                if (of_a != of_b) return factors_of(of_a) < factors_of(of_b);
            }
        return false;
    }

private:
    static auto factors_of(const cost_factors& f) {
        return std::tie(f.forward, f.backward_input, f.backward_weight, f.memory, f.message);
    }

    const basic_problem<Graph>* p_;
};

/// All sequences of the step, grouped by their costs. Each sequence is the list of its slices. Groups are in the order
/// of their first sequences.
template <pipeline_graph Graph>
std::vector<std::vector<std::vector<microbatch>>> grouped_by_cost(const basic_problem<Graph>& p) {
    std::vector<std::vector<std::vector<microbatch>>> groups;
    std::map<std::vector<microbatch>, std::size_t, cost_comparison<Graph>> group_of{cost_comparison<Graph>{p}};
    for (auto& each : sequences_of(p)) {
        const auto [found, is_new] = group_of.try_emplace(each, groups.size());
        if (is_new) groups.emplace_back();
        groups[found->second].push_back(std::move(each));
    }
    return groups;
}

} // namespace detail

/// All sequences of the step, grouped by their costs. Every sequence belongs to exactly one group.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<equal_sequences> sequences_by_cost(const basic_problem<Graph>& p) {
    if (p.microbatches.are_equal()) return {{{microbatch{0}}, p.graph.microbatches()}};
    std::vector<equal_sequences> found;
    for (auto& group : detail::grouped_by_cost(p))
        found.push_back({std::move(group.front()), group.size()});
    return found;
}

/// Lists of interchangeable microbatches. Interchangeable microbatches have the same position in sequences of equal
/// cost. Every microbatch is in one list. Lists are ascending, and sorted by their first microbatches.
template <pipeline_graph Graph>
[[nodiscard]] std::vector<std::vector<microbatch>> interchangeable_microbatches(const basic_problem<Graph>& p) {
    std::vector<std::vector<microbatch>> lists;
    for (const auto& group : detail::grouped_by_cost(p))
        for (std::size_t i = 0; i < group.front().size(); ++i) {
            auto& list = lists.emplace_back();
            for (const auto& slices : group)
                list.push_back(slices[i]);
        }
    std::sort(lists.begin(), lists.end());
    return lists;
}

} // namespace optpipe
