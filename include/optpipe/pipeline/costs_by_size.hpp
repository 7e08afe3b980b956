#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <vector>

namespace optpipe {

/// The costs of a pipeline for any microbatch size. A step has a fixed number of samples, so microbatches
/// of half the size are twice as many.
///
/// Costs, memory sizes, limits and delays are interpolated linearly between two measured sizes. Values beyond the
/// measured sizes are extrapolated. No value is negative.
class costs_by_size {
public:
    /// `measured` contains one problem per microbatch size, for at least two sizes. Problems with different microbatch
    /// sizes have different numbers of microbatches. Throws `error` if a problem isn't plain. Throws `input_error` for
    /// fewer than two sizes. Throws `input_error` if the problems differ in more than costs, limits and the number of
    /// microbatches.
    explicit costs_by_size(std::vector<problem> measured);

    /// The problem with this number of microbatches. Contract: the number is above 0.
    [[nodiscard]] problem at(std::size_t microbatches) const;
    /// The measured numbers of microbatches, in ascending order.
    [[nodiscard]] std::vector<std::size_t> measured_numbers() const;

private:
    /// Sorted by the number of microbatches, in ascending order.
    std::vector<problem> measured_;
};

namespace detail {

/// All differences between `other` and `p`, except in costs, limits and the number of microbatches.
[[nodiscard]] std::vector<violation> differences_in_shape(const problem& p, const problem& other);

} // namespace detail

} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/require_plain.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace optpipe {
namespace detail {

OPTPIPE_INLINE std::vector<violation> differences_in_shape(const problem& p, const problem& other) {
    std::vector<violation> found;
    const auto differs = [&](bool is_same, std::string place) {
        if (!is_same) found.push_back({std::move(place), "differs from that of the first problem"});
    };
    const auto limited = [&](memory_size a, memory_size b, const char* list, rank r) {
        if (a.is_unlimited() != b.is_unlimited())
            found.push_back({std::string{list} + "[" + std::to_string(r.value()) + "]",
                             "must be given in all problems or in none"});
    };
    differs(p.graph.ranks() == other.graph.ranks(), "ranks");
    differs(p.graph.stages() == other.graph.stages(), "stages");
    if (!found.empty()) return found;
    for (const stage s : p.graph.all_stages()) {
        const auto place = "stages[" + std::to_string(s.value()) + "].";
        differs(p.rank_of(s) == other.rank_of(s), place + "rank");
        const auto& a = p.storage[s];
        const auto& b = other.storage[s];
        const bool same = std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
            return x.name == y.name && x.offloads() == y.offloads() && x.recomputes() == y.recomputes();
        });
        differs(same, place + "storage");
    }
    for (const rank r : p.graph.all_ranks()) {
        limited(p.memory_limit[r], other.memory_limit[r], "memory_limit", r);
        limited(p.host_memory_limit[r], other.host_memory_limit[r], "host_memory_limit", r);
    }
    differs(p.split_backward == other.split_backward, "split_backward");
    differs(p.full_backward == other.full_backward, "full_backward");
    differs(p.transfer.engines == other.transfer.engines && p.transfer.duplex == other.transfer.duplex &&
                std::equal(p.transfer.link.begin(), p.transfer.link.end(), other.transfer.link.begin()),
            "transfer");
    differs(p.objective == other.objective, "objective");
    differs(p.time_unit == other.time_unit, "time_unit");
    differs(p.memory_unit == other.memory_unit, "memory_unit");
    return found;
}

/// Interpolates linearly between the values of one quantity in two problems.
struct cost_line {
    /// 0 gives the value of the first problem, and 1 gives the value of the second problem.
    double position = 0.0;

    template <class Quantity> [[nodiscard]] Quantity operator()(Quantity a, Quantity b) const {
        if (a.is_unlimited() || b.is_unlimited()) return Quantity::unlimited();
        return std::max(Quantity{}, a + position * (b - a));
    }
    [[nodiscard]] std::optional<transfer_times> operator()(const std::optional<transfer_times>& a,
                                                           const std::optional<transfer_times>& b) const {
        if (!a || !b) return std::nullopt;
        return transfer_times{(*this)(a->offload, b->offload), (*this)(a->reload, b->reload)};
    }
    [[nodiscard]] stage_costs operator()(const stage_costs& a, const stage_costs& b) const {
        auto costs = a;
        costs.forward = (*this)(a.forward, b.forward);
        costs.backward_input = (*this)(a.backward_input, b.backward_input);
        costs.backward_weight = (*this)(a.backward_weight, b.backward_weight);
        costs.activation = (*this)(a.activation, b.activation);
        costs.weight_stash = (*this)(a.weight_stash, b.weight_stash);
        return costs;
    }
    [[nodiscard]] storage_option operator()(const storage_option& a, const storage_option& b) const {
        return {a.name,
                (*this)(a.held, b.held),
                (*this)(a.recompute, b.recompute),
                (*this)(a.backward_extra, b.backward_extra),
                (*this)(a.transfer_size, b.transfer_size),
                (*this)(a.transfer, b.transfer)};
    }
};

/// The problem `p`, with each number interpolated between `p` and `other`.
inline problem on_line(problem p, const problem& other, cost_line line) {
    for (const stage s : p.graph.all_stages()) {
        p.costs[s] = line(p.costs[s], other.costs[s]);
        for (std::size_t o = 0; o < p.storage[s].size(); ++o)
            p.storage[s][o] = line(p.storage[s][o], other.storage[s][o]);
    }
    bounded_vector<duration, dynamic> delays;
    for (const rank a : p.graph.all_ranks()) {
        for (const rank b : p.graph.all_ranks())
            delays.push_back(line(p.p2p(a, b), other.p2p(a, b)));
        p.memory_limit[a] = line(p.memory_limit[a], other.memory_limit[a]);
        p.host_memory_limit[a] = line(p.host_memory_limit[a], other.host_memory_limit[a]);
    }
    p.p2p = hop_times<>{p.graph.ranks(), std::move(delays)};
    return p;
}

} // namespace detail

OPTPIPE_INLINE costs_by_size::costs_by_size(std::vector<problem> measured) : measured_{std::move(measured)} {
    if (measured_.size() < 2) throw input_error{"costs by size", {{"", "need problems of two sizes at least"}}};
    for (std::size_t i = 0; i < measured_.size(); ++i) {
        require_plain(measured_[i], "costs are interpolated");
        auto found = detail::differences_in_shape(measured_.front(), measured_[i]);
        for (auto& each : found)
            each.place = "problems[" + std::to_string(i) + "]." + each.place;
        if (!found.empty()) throw input_error{"costs by size", std::move(found)};
    }
    const auto number = [](const problem& p) { return p.graph.microbatches(); };
    std::sort(measured_.begin(), measured_.end(),
              [&](const problem& a, const problem& b) { return number(a) < number(b); });
    for (std::size_t i = 1; i < measured_.size(); ++i)
        if (number(measured_[i - 1]) == number(measured_[i]))
            throw input_error{"costs by size", {{"microbatches", "are equally many in two problems"}}};
}

OPTPIPE_INLINE problem costs_by_size::at(std::size_t microbatches) const {
    OPTPIPE_EXPECT(microbatches > 0, "costs_by_size: there must be a microbatch");
    const auto size = [](std::size_t number) { return 1.0 / static_cast<double>(number); };
    std::size_t above = 1;
    while (above + 1 < measured_.size() && measured_[above].graph.microbatches() < microbatches)
        ++above;
    const auto& a = measured_[above - 1];
    const auto& b = measured_[above];
    const auto from = size(a.graph.microbatches());
    auto p = detail::on_line(a, b, {(size(microbatches) - from) / (size(b.graph.microbatches()) - from)});
    p.graph = any_graph{p.graph.ranks(), microbatches, p.graph.placement()};
    return p;
}

OPTPIPE_INLINE std::vector<std::size_t> costs_by_size::measured_numbers() const {
    std::vector<std::size_t> numbers;
    for (const auto& each : measured_)
        numbers.push_back(each.graph.microbatches());
    return numbers;
}

} // namespace optpipe
#endif
