#pragma once

#include "optpipe/core/random.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/conflict/disjunctive_structure.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

namespace optpipe::milp::search {

/// Dispatches jobs. Decides the binaries that order start times of jobs (`disjunctive_structure`). The open column with
/// the least key goes before all columns not taken yet. A key is between the column's current bounds. With the lower
/// bound as key, the job with the earliest start comes first. With the upper bound as key, the earliest due date comes
/// first (Giffler and Thompson, 1960).
class dispatcher {
public:
    explicit dispatcher(const problem& p) : problem_{&p}, orders_{p} {}

    [[nodiscard]] bool has_start_columns() const { return !orders_.start_columns().empty(); }
    [[nodiscard]] std::size_t bytes() const { return orders_.bytes() + bytes_of(noise_); }

    /// Changes the rule. The first few rules are deterministic. All later rules add random numbers to the keys.
    void change_rule(const domains& d, random_numbers& random) {
        constexpr double shares[] = {0.0, 0.05, 0.2, 0.5, 1.0};
        constexpr double noise_share = 0.03; // a share of the width of the widest column
        constexpr std::size_t steps = 1000;
        const auto count = std::size(shares);
        share_ = shares[rules_ % count];
        double widest = 0.0;
        for (const auto j : orders_.start_columns())
            widest = std::max(widest, problem_->unit[j] * d.width(j));
        const double noise = rules_ < count ? 0.0 : noise_share * widest / static_cast<double>(steps);
        noise_.clear();
        for (std::size_t k = 0; k < orders_.start_columns().size(); ++k)
            noise_.push_back(noise * static_cast<double>(random.below(steps)));
        ++rules_;
        reset_current();
    }
    /// Must be called after backtracking.
    void reset_current() { current_.reset(); }
    /// The next decision; empty if all decisions are made.
    [[nodiscard]] std::optional<literal> next(const domains& d) {
        if (current_)
            if (const auto l = open_decision(d, *current_, position_)) return l;
        current_.reset();
        double least = infinity;
        std::optional<literal> best;
        for (std::size_t k = 0; k < orders_.start_columns().size(); ++k) {
            const double key = this->key(d, k);
            if (key >= least) continue;
            std::size_t position = 0;
            const auto l = open_decision(d, orders_.start_columns()[k], position);
            if (!l) continue;
            least = key;
            best = l;
            current_ = orders_.start_columns()[k];
            position_ = position;
        }
        return best;
    }

private:
    [[nodiscard]] double key(const domains& d, std::size_t k) const {
        const auto j = orders_.start_columns()[k];
        return problem_->unit[j] * (d.lower(j) + share_ * d.width(j)) + noise_[k];
    }
    [[nodiscard]] std::optional<literal> open_decision(const domains& d, std::size_t j, std::size_t& from) const {
        const auto decisions = orders_.decisions(j);
        for (; from < decisions.size(); ++from)
            if (!d.is_fixed(column_of(decisions[from].bound))) return decisions[from];
        return std::nullopt;
    }

    const problem* problem_;
    disjunctive_structure orders_;
    std::vector<double> noise_; ///< a random number for each start column
    double share_ = 0.0;
    std::size_t rules_ = 0;
    std::optional<std::uint32_t> current_;
    std::size_t position_ = 0; ///< position among the decisions of the current column
};

} // namespace optpipe::milp::search
