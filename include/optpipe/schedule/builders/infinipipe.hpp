#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/sequences.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/builders/sequence_1f1b.hpp"
#include "optpipe/schedule/construct/follow_storage.hpp"
#include "optpipe/schedule/construct/uniform_storage.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

namespace detail {

/// Chooses a storage option for each diagonal of a given order. Stage s and microbatch m are on diagonal s + m. Ranks
/// work on the same diagonal at the same time. Considers only options that all stages have, and that have no transfers.
template <pipeline_graph Graph> class diagonal_storage {
public:
    diagonal_storage(const basic_problem<Graph>& p, basic_order<Graph> given, stop_check stop)
        : p_{&p}, given_{std::move(given)}, stop_{stop} {
        for (const auto& name : common_option_names(p)) {
            const auto options = *find_common_option(p, name.view());
            bool offloads = false;
            for (const stage s : p.graph.all_stages())
                offloads = offloads || p.storage_of(s, options[s]).offloads();
            if (!offloads) choices_.push_back(options);
        }
        std::stable_sort(choices_.begin(), choices_.end(),
                         [&](const auto& a, const auto& b) { return extra_work(a) < extra_work(b); });
    }

    /// Whether there are at least two options to choose from.
    [[nodiscard]] bool has_choice() const { return choices_.size() > 1; }

    /// First, all diagonals use the option that holds least. Diagonals then recompute less, one at a time, if memory
    /// permits and the step gets no longer. The search ends when no diagonal changes. A stop request ends the search,
    /// and the options chosen by then are used.
    [[nodiscard]] outcome<basic_order<Graph>> run() {
        const auto least = std::min_element(choices_.begin(), choices_.end(),
                                            [&](const auto& a, const auto& b) { return held(a) < held(b); });
        of_diagonal_.assign(p_->graph.stages() + p_->graph.microbatches() - 1,
                            static_cast<std::size_t>(least - choices_.begin()));
        const auto timed = simulate(*p_, order());
        if (!timed) return timed.why();
        value_ = objective_of(*p_, *timed);
        for (bool improved = true; improved;) {
            improved = false;
            for (auto& choice : of_diagonal_)
                improved = recompute_less(choice) || improved;
        }
        return order();
    }

private:
    using stage_options = storage_by_stage<Graph::stage_extent>;

    [[nodiscard]] duration extra_work(const stage_options& choice) const {
        duration sum{};
        for (const stage s : p_->graph.all_stages())
            sum += p_->storage_of(s, choice[s]).extra_work();
        return sum;
    }
    [[nodiscard]] memory_size held(const stage_options& choice) const {
        memory_size sum{};
        for (const stage s : p_->graph.all_stages())
            sum += p_->storage_of(s, choice[s]).held;
        return sum;
    }
    /// Sets `choice` to the option with the least recomputation that doesn't lengthen the step. Returns whether
    /// `choice` changed.
    bool recompute_less(std::size_t& choice) {
        const auto before = choice;
        for (choice = 0; choice < before && !stop_(); ++choice) {
            const auto timed = simulate(*p_, order());
            const auto value = timed ? objective_of(*p_, *timed) : duration::unlimited();
            if (value_ < value) continue;
            value_ = value;
            return true;
        }
        choice = before;
        return false;
    }
    [[nodiscard]] basic_order<Graph> order() const {
        const cell_numbering cell{p_->graph};
        std::vector<std::size_t> used(cell.size(), 0);
        for (const stage s : p_->graph.all_stages())
            for (const microbatch m : p_->graph.all_microbatches())
                used[cell(s, m)] = choices_[of_diagonal_[s.position() + m.position()]][s];
        return {given_.graph, follow_storage(*p_, given_.operations, used)};
    }

    const basic_problem<Graph>* p_;
    basic_order<Graph> given_;
    stop_check stop_;
    /// The options to choose from, sorted by recomputation.
    std::vector<stage_options> choices_{};
    /// The index in `choices_` that each diagonal uses.
    std::vector<std::size_t> of_diagonal_{};
    duration value_{};
};

} // namespace detail

/// Seq1F1B with one storage option per diagonal, similar to InfiniPipe (Wang et al., 2025). Diagonals recompute as
/// little as memory permits. Nothing is offloaded. InfiniPipe also packs and cuts sequences (`equal_time_slices`).
///
/// Needs one stage per rank. All stages must share at least two storage options without transfers.
struct infinipipe_builder {
    static constexpr std::string_view name = "infinipipe";
    static constexpr bool any_graph = true;

    template <pipeline_graph Graph>
    [[nodiscard]] outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p, stop_check stop = {}) const {
        if (!p.microbatches.has_slices()) return does_not_apply("InfiniPipe is for sequences that are cut into slices");
        auto given = sequence_1f1b(p);
        if (!given) return does_not_apply("InfiniPipe is for one stage per rank");
        detail::diagonal_storage<Graph> storage{p, *std::move(given), stop};
        if (!storage.has_choice()) return does_not_apply("InfiniPipe chooses what to recompute, and nothing can be");
        return storage.run();
    }
};
inline constexpr infinipipe_builder infinipipe{};

} // namespace optpipe
