#pragma once

#include "optpipe/milp/search/context.hpp"
#include "optpipe/milp/search/cuts/aggregation.hpp"
#include "optpipe/milp/search/cuts/clique.hpp"
#include "optpipe/milp/search/cuts/cover.hpp"
#include "optpipe/milp/search/cuts/cut.hpp"
#include "optpipe/milp/search/cuts/cut_sets.hpp"
#include "optpipe/milp/search/cuts/gomory.hpp"
#include "optpipe/milp/search/cuts/implied_bounds.hpp"
#include "optpipe/milp/search/cuts/rounding.hpp"
#include "optpipe/milp/search/cuts/user.hpp"
#include "optpipe/milp/search/cuts/variable_bounds.hpp"
#include "optpipe/milp/search/memory_share.hpp"
#include "optpipe/milp/search/tree/relaxation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// Limits of cut separation at the root. Not tuned.
struct separation_parameters {
    /// Largest number of rounds. Separation also ends when the bound stalls.
    std::size_t most_rounds = 200;
    /// Separation ends after `stall_limit` consecutive rounds without progress. A round makes progress if the bound
    /// rises by `least_progress` · max(1, |bound|).
    std::size_t stall_limit = 4;
    double least_progress = 1e-4;
    /// Cuts per round: a constant, plus one per `columns_per_cut` columns. More cuts raise the bound in fewer rounds,
    /// but slow the simplex method down.
    std::size_t least_per_round = 50;
    std::size_t columns_per_cut = 10;
};

/// Adds cuts at the root in rounds, until the bound stalls. In each round, all separators add cuts to one pool. The
/// best cuts enter the relaxation, and cuts that aren't tight leave it.
class separation {
public:
    separation(const context& c, const domains& d, const implied_bounds& implied) : context_{&c}, implied_{&implied} {
        for (std::size_t j = 0; j < d.columns(); ++j) {
            lower_.push_back(d.lower(j));
            upper_.push_back(d.upper(j));
        }
    }

    /// The relaxation must have been solved before the call. The relaxation is solved again after each round of cuts.
    /// Returns false if the last solve finds no optimal point. `on_bound` is called with each new bound.
    template <class OnBound> bool run(relaxation& lp, OnBound on_bound) {
        const auto& p = *context_->instance;
        const clique_table cliques{p, lower_, upper_};
        variable_bounds ends{p};
        implied_->add_to(ends);
        aggregation rows{p};
        cut_sets networks{p};
        double bound = lp.bound();
        memory_share share{*context_->limits};
        std::size_t stalled = 0;
        for (std::size_t round = 0;
             round < with_.most_rounds && stalled < with_.stall_limit && !context_->limits->over(); ++round) {
            if (fractional_count(lp) == 0) return true;
            find(lp, cliques, ends, rows, networks);
            share.set(pool_.bytes() + cliques.bytes() + ends.bytes() + rows.bytes() + networks.bytes());
            const std::vector<double> point(lp.point().begin(), lp.point().end());
            const auto chosen = pool_.take(point, most_per_round());
            if (chosen.empty()) return true;
            std::vector<sparse_row> added;
            for (const auto& c : chosen) {
                context_->watch(c.entries, c.limit);
                added.push_back(c.row());
            }
            lp.add_cuts(added);
            if (lp.solve(*context_->limits, infinity) != lp_status::optimal) return false;
            drop_loose(lp);
            const double reached = lp.bound();
            on_bound(reached);
            stalled = reached > bound + with_.least_progress * std::max(1.0, std::abs(bound)) ? 0 : stalled + 1;
            bound = std::max(bound, reached);
        }
        return true;
    }

private:
    static constexpr separation_parameters with_{};

    [[nodiscard]] std::size_t most_per_round() const {
        return with_.least_per_round + context_->instance->columns() / with_.columns_per_cut;
    }
    [[nodiscard]] std::size_t fractional_count(const relaxation& lp) const {
        const auto& p = *context_->instance;
        std::size_t count = 0;
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (p.is_integer(j) && std::abs(lp.point()[j] - std::round(lp.point()[j])) > p.tolerances.integrality)
                ++count;
        return count;
    }
    void find(relaxation& lp, const clique_table& cliques, const variable_bounds& ends, aggregation& rows,
              cut_sets& networks) {
        const auto& p = *context_->instance;
        const std::vector<double> point(lp.point().begin(), lp.point().end());
        mixed_integer_rounding rounding{p, lp.cuts(), lower_, upper_, ends};
        implied_->separate(point, pool_);
        clique_separation{p, cliques}.separate(point, pool_);
        cover_separation{p, lower_, upper_}.separate(point, pool_);
        rows.separate(rounding, lower_, upper_, ends, point, pool_);
        networks.separate(rounding, ends, point, pool_);
        separate_gomory(p, lp, rounding, pool_);
        user_separation{*context_}.separate(point, pool_);
    }
    void drop_loose(relaxation& lp) {
        const auto loose = lp.loose_cuts();
        for (const auto k : loose) {
            const auto& r = lp.cuts()[k];
            pool_.add({r.entries, r.upper, 0.0, 0});
        }
        if (!loose.empty()) lp.remove_cuts(loose);
        if (!loose.empty()) static_cast<void>(lp.solve(*context_->limits, infinity));
    }

    const context* context_;
    const implied_bounds* implied_;
    std::vector<double> lower_, upper_;
    cut_pool pool_;
};

} // namespace optpipe::milp::search
