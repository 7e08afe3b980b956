#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/cuts/parameters.hpp"
#include "optpipe/milp/search/cuts/sparse_sum.hpp"
#include "optpipe/milp/search/problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace optpipe::milp::search {

/// A row `terms · x <= limit` that holds for every point that the search looks for.
struct cut {
    std::vector<entry> entries;
    double limit = 0.0;
    /// Distance from the cut to the point that it cuts off.
    double efficacy = 0.0;
    std::size_t age = 0;

    [[nodiscard]] double norm() const {
        double sum = 0.0;
        for (const auto& e : entries)
            sum += e.coefficient * e.coefficient;
        return std::sqrt(sum);
    }
    [[nodiscard]] double violation(std::span<const double> point) const {
        double sum = -limit;
        for (const auto& e : entries)
            sum += e.coefficient * point[e.column];
        return sum;
    }
    void measure(std::span<const double> point) {
        const double length = norm();
        efficacy = length > 0.0 ? violation(point) / length : 0.0;
    }
    [[nodiscard]] sparse_row row() const { return {entries, -infinity, limit}; }
};

/// Cosine of the angle between two cuts, whose entries must be sorted by column.
[[nodiscard]] inline double parallelism(const cut& a, const cut& b) {
    double sum = 0.0;
    auto j = b.entries.begin();
    for (const auto& e : a.entries) {
        while (j != b.entries.end() && j->column < e.column)
            ++j;
        if (j != b.entries.end() && j->column == e.column) sum += e.coefficient * j->coefficient;
    }
    const double lengths = a.norm() * b.norm();
    return lengths > 0.0 ? sum / lengths : 0.0;
}

/// Replaces tiny terms by their least values within the bounds. Empty if the cut is numerically doubtful. Numbers of
/// very different sizes, and tiny terms without a bound, make a cut doubtful.
[[nodiscard]] inline std::optional<cut> normalized(cut c, std::span<const double> lower,
                                                   std::span<const double> upper) {
    constexpr cut_parameters with{};
    double largest = 0.0;
    for (const auto& e : c.entries)
        largest = std::max(largest, std::abs(e.coefficient));
    if (largest == 0.0) return std::nullopt;
    std::vector<entry> kept;
    for (const auto& e : c.entries) {
        if (std::abs(e.coefficient) * with.widest >= largest) {
            kept.push_back(e);
            continue;
        }
        const double bound = e.coefficient > 0.0 ? lower[e.column] : upper[e.column];
        if (!std::isfinite(bound)) return std::nullopt;
        c.limit -= e.coefficient * bound;
    }
    for (auto& e : kept)
        e.coefficient /= largest;
    c.limit /= largest;
    if (std::abs(c.limit) > with.largest_limit) return std::nullopt;
    std::sort(kept.begin(), kept.end(), [](const entry& a, const entry& b) { return a.column < b.column; });
    c.entries = std::move(kept);
    return c;
}

/// Converts `terms · x <= limit` to a cut without the rounding noise of cancelled terms. Empty if the whole row may be
/// noise.
[[nodiscard]] inline std::optional<cut> normalized(const sparse_sum& terms, double limit, std::span<const double> lower,
                                                   std::span<const double> upper) {
    constexpr cut_parameters with{};
    cut c;
    c.limit = limit;
    double largest = 0.0, largest_size = 0.0;
    for (const auto j : terms.touched()) {
        largest_size = std::max(largest_size, terms.size_of(j));
        if (!terms.is_noise(j)) {
            c.entries.push_back({j, terms[j]});
            largest = std::max(largest, std::abs(terms[j]));
        } else if (terms[j] != 0.0) {
            const double bound = terms[j] > 0.0 ? lower[j] : upper[j];
            if (!std::isfinite(bound)) return std::nullopt;
            c.limit -= terms[j] * bound;
        }
    }
    if (largest < with.least_remainder * largest_size) return std::nullopt;
    return normalized(std::move(c), lower, upper);
}

/// All cuts found, except the cuts in the relaxation. A cut returns to the relaxation if it is violated again. A cut
/// that hasn't been violated for several rounds is deleted.
class cut_pool {
public:
    void add(cut c) {
        for (const auto& other : cuts_)
            if (other.limit <= c.limit && same_terms(other, c)) return;
        cuts_.push_back(std::move(c));
    }
    [[nodiscard]] std::size_t size() const { return cuts_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_of_rows(cuts_); }

    /// Removes and returns the most effective cuts that the point violates. No two of the returned cuts are nearly
    /// parallel.
    std::vector<cut> take(std::span<const double> point, std::size_t most) {
        for (auto& c : cuts_) {
            c.measure(point);
            c.age = c.efficacy > with_.least_efficacy ? 0 : c.age + 1;
        }
        std::stable_sort(cuts_.begin(), cuts_.end(),
                         [](const cut& a, const cut& b) { return a.efficacy > b.efficacy; });
        std::vector<cut> chosen, rest;
        for (auto& c : cuts_) {
            const bool good = chosen.size() < most && c.efficacy > with_.least_efficacy;
            const bool fresh = good && std::none_of(chosen.begin(), chosen.end(), [&](const cut& other) {
                                   return parallelism(c, other) > with_.most_parallel;
                               });
            if (fresh)
                chosen.push_back(std::move(c));
            else if (c.age < with_.most_idle_rounds)
                rest.push_back(std::move(c));
        }
        cuts_ = std::move(rest);
        return chosen;
    }

private:
    static constexpr cut_parameters with_{};

    static bool same_terms(const cut& a, const cut& b) {
        constexpr double same = 1e-9;
        return std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                          [](const entry& x, const entry& y) {
                              return x.column == y.column && std::abs(x.coefficient - y.coefficient) < same;
                          });
    }

    std::vector<cut> cuts_;
};

} // namespace optpipe::milp::search
