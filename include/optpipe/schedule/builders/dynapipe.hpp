#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/builder_parameters.hpp"
#include "optpipe/schedule/builders/graph_1f1b.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/construct/injection.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

namespace detail {

/// Searches for the order of sequences that makes a step shortest. All orders have one pattern of operations
/// (`positions`). The n-th sequence takes the n-th place.
template <pipeline_graph Graph> class injection_search {
public:
    injection_search(const basic_problem<Graph>& p, const basic_order<Graph>& positions, stop_check stop,
                     std::size_t trials, std::uint64_t seed)
        : p_{&p}, positions_{&positions}, stop_{stop}, left_{trials}, random_{seed} {}

    /// The best order found. The order is optimal if the number of orders is at most the number of trials. If no order
    /// fits in memory, the sequences are in the order `given`. Contract: `given` is sorted in ascending order.
    [[nodiscard]] basic_order<Graph> run(const std::vector<std::vector<microbatch>>& given) {
        const bool are_few = can_try_all(given.size());
        best_ = given;
        best_value_ = value_of(given);
        if (are_few)
            try_all(given);
        else
            descend_often(given);
        return inject(*p_, injection{best_}, *positions_);
    }

private:
    /// Number of random swaps that change the best order before a new descent. Not tuned.
    static constexpr std::size_t kick = 3;

    using sequence_order = std::vector<std::vector<microbatch>>;

    duration value_of(const sequence_order& sequences) {
        if (left_ > 0) --left_;
        const auto timed = simulate(*p_, inject(*p_, injection{sequences}, *positions_));
        const auto value = timed ? objective_of(*p_, *timed) : duration::unlimited();
        if (value < best_value_) {
            best_ = sequences;
            best_value_ = value;
        }
        return value;
    }
    [[nodiscard]] bool can_try_all(std::size_t sequences) const {
        auto orders = static_cast<double>(left_);
        for (; sequences > 1 && orders >= 1.0; --sequences)
            orders /= static_cast<double>(sequences);
        return orders >= 1.0;
    }
    void try_all(sequence_order now) {
        while (!stop_() && std::next_permutation(now.begin(), now.end()))
            value_of(now);
    }
    void descend_often(sequence_order now) {
        while (left_ > 0 && !stop_()) {
            descend(now);
            now = best_;
            for (std::size_t k = 0; k < kick; ++k)
                std::swap(now[random_.below(now.size())], now[random_.below(now.size())]);
        }
    }
    /// Swaps and moves sequences while the step gets shorter.
    void descend(sequence_order& now) {
        auto value = value_of(now);
        for (bool improved = true; improved;) {
            improved = false;
            for (std::size_t from = 0; from < now.size(); ++from)
                for (std::size_t to = 0; to < now.size(); ++to) {
                    if (left_ == 0 || stop_()) return;
                    auto moved = now;
                    if (from < to)
                        std::swap(moved[from], moved[to]);
                    else
                        move_back(moved, to, from);
                    const auto other = value_of(moved);
                    if (!(other < value)) continue;
                    value = other;
                    now = std::move(moved);
                    improved = true;
                }
        }
    }
    static void move_back(sequence_order& list, std::size_t to, std::size_t from) {
        const auto at = [&](std::size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
        std::rotate(at(to), at(from), at(from) + 1);
    }

    const basic_problem<Graph>* p_;
    const basic_order<Graph>* positions_;
    stop_check stop_;
    std::size_t left_;
    random_numbers random_;
    sequence_order best_{};
    duration best_value_ = duration::unlimited();
};

} // namespace detail

/// 1F1B with unequal microbatches in the best order of a local search, similar to DynaPipe (Jiang et al., 2024). With
/// one stage per rank, the schedule is 1F1B, or Seq1F1B for slices. The slices of a sequence stay together. With
/// several stages per rank, the schedule is 1F1B of a graph. The search is deterministic.
struct dynapipe_builder {
    static constexpr std::string_view name = "dynapipe";
    static constexpr bool any_graph = true;

    /// Limit on the number of operations that are timed. With the default, all orders of up to 8 microbatches on 4
    /// ranks are tried.
    std::size_t effort = 8'000'000;
    std::uint64_t seed = 1;
    [[nodiscard]] static constexpr std::array<builder_parameter<dynapipe_builder>, 1> parameters() {
        return {{{"effort", &dynapipe_builder::effort}}};
    }

    template <pipeline_graph Graph>
    [[nodiscard]] outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p, stop_check stop = {}) const {
        if (!p.microbatches.has_factors())
            return does_not_apply("microbatches are equal, so that their order changes nothing");
        const auto sequences = sequences_of(p);
        const auto positions = positions_of(p, injection{sequences}.most_slices - 1);
        const auto trials = effort / std::max<std::size_t>(positions.operations.size(), 1);
        return detail::injection_search<Graph>{p, positions, stop, trials, seed}.run(sequences);
    }

private:
    template <pipeline_graph Graph>
    static basic_order<Graph> positions_of(const basic_problem<Graph>& p, std::size_t further) {
        if (one_stage_per_rank(p.graph)) return detail::one_forward_one_backward_order(p.graph, further);
        return detail::graph_period<Graph>{p}.order(p.graph, further);
    }
};
inline constexpr dynapipe_builder dynapipe{};

} // namespace optpipe
