#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/lone_sequence.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe {

/// The memory limits of all ranks, raised by the tolerance.
template <pipeline_graph Graph> [[nodiscard]] auto tolerated_limits(const basic_problem<Graph>& p) {
    const auto slack = tolerance{}.at(p.memory_scale());
    auto limits = p.memory_limit;
    for (auto& limit : limits)
        limit += slack;
    return limits;
}

/// The memory of the sequences in flight, for the banker's algorithm (Dijkstra). Before an operation takes memory,
/// `is_safe` checks that the sequences in flight can still be finished. Sequences are assumed to finish in the order in
/// which they entered the pipeline. Each sequence may use the memory that earlier sequences release. The need of a
/// sequence is its peak memory when it runs alone (`run_alone`).
template <pipeline_graph Graph> class safe_memory {
public:
    /// `sequences` has the sequences in the order in which they enter the pipeline. `option_of(stage,
    /// microbatch)` is the storage option of a cell. Contract: no option offloads.
    template <class OptionOf>
    safe_memory(const basic_problem<Graph>& p, const std::vector<std::vector<microbatch>>& sequences,
                const OptionOf& option_of)
        : p_{&p}, sequence_of_(p.graph.microbatches()),
          unfinished_(p.graph.ranks(), std::vector<std::size_t>(sequences.size(), 0)), oldest_(p.graph.ranks(), 0),
          held_(p.graph.ranks(), std::vector<memory_size>(sequences.size())), peak_{held_} {
        for (std::size_t i = 0; i < sequences.size(); ++i) {
            for (const microbatch m : sequences[i])
                sequence_of_[m.position()] = i;
            for (const stage s : p.graph.all_stages())
                unfinished_[p.rank_of(s)][i] += sequences[i].size();
        }
        find_peaks(sequences, option_of);
    }

    /// Whether every sequence in flight can still be finished after `op` takes `taken` of its rank's memory.
    /// `fits(amount)` tells whether `amount` more memory fits on the rank of `op` now.
    template <class Fits> [[nodiscard]] bool is_safe(const operation& op, memory_size taken, const Fits& fits) const {
        const rank r = p_->rank_of(op.stage);
        const auto own = sequence_of_[op.microbatch.position()];
        auto more = taken;
        for (auto i = oldest_[r]; i <= own; ++i) {
            if (unfinished_[r][i] == 0) continue;
            const auto has = held_[r][i] + (i == own ? taken : memory_size{});
            const auto lacks = std::max(memory_size{}, peak_[r][i] - has);
            if (!fits(more + lacks)) return false;
            more -= has;
        }
        return true;
    }
    void start(const operation& op) { held_of(op) += memory_effect_of(*p_, op).acquired_at_start; }
    void end(const operation& op) {
        held_of(op) -= memory_effect_of(*p_, op).released_at_end;
        const auto own = sequence_of_[op.microbatch.position()];
        for_each_release_of_others(*p_, op, [&](rank of, memory_size amount) { held_[of][own] -= amount; });
        if (is_last_computation(*p_, op)) finish(p_->rank_of(op.stage), own);
    }

private:
    memory_size& held_of(const operation& op) {
        return held_[p_->rank_of(op.stage)][sequence_of_[op.microbatch.position()]];
    }
    /// Finds the peak memory of each sequence on each rank when it runs alone.
    template <class OptionOf>
    void find_peaks(const std::vector<std::vector<microbatch>>& sequences, const OptionOf& option_of) {
        auto level = held_;
        const auto run = [&](const operation& op) {
            const auto own = sequence_of_[op.microbatch.position()];
            const rank r = p_->rank_of(op.stage);
            const auto effect = memory_effect_of(*p_, op);
            level[r][own] += effect.acquired_at_start;
            peak_[r][own] = std::max(peak_[r][own], level[r][own]);
            level[r][own] -= effect.released_at_end;
            for_each_release_of_others(*p_, op, [&](rank of, memory_size amount) { level[of][own] -= amount; });
        };
        for (const auto& slices : sequences)
            detail::run_alone(*p_, slices, option_of, run);
    }
    /// Marks one cell of a sequence as finished.
    void finish(rank r, std::size_t sequence) {
        --unfinished_[r][sequence];
        while (oldest_[r] < unfinished_[r].size() && unfinished_[r][oldest_[r]] == 0)
            ++oldest_[r];
    }

    const basic_problem<Graph>* p_;
    std::vector<std::size_t> sequence_of_;
    /// For each sequence and rank, the number of unfinished cells. For each rank, the first unfinished sequence.
    per_rank<std::vector<std::size_t>> unfinished_;
    per_rank<std::size_t> oldest_;
    /// For each sequence and rank, the memory held now, and the peak when the sequence runs alone.
    per_rank<std::vector<memory_size>> held_;
    per_rank<std::vector<memory_size>> peak_;
};

} // namespace optpipe
