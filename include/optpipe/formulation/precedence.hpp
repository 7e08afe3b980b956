#pragma once

#include "optpipe/formulation/operation_table.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// Implied precedences and time windows of all computations. The precedences are a transitive relation. The window of
/// an operation runs from its earliest start to its latest end within the horizon.
class precedence {
public:
    /// The second operation starts at least `lag` after the end of the first.
    struct arc {
        operation_id before;
        operation_id after;
        double lag;
    };

    /// `latest` is the time by which all computations of a rank must have ended. Once `stop()` returns true, no more
    /// orders are added.
    precedence(const operation_table& operations, const per_rank<double>& latest, double slack,
               std::function<bool()> stop = {})
        : operations_{&operations}, count_{operations.end_of_computations()}, words_{(count_ + word_bits - 1) /
                                                                                     word_bits},
          after_(count_ * words_, 0), before_(count_ * words_, 0), earliest_(count_, 0.0),
          latest_(count_), slack_{slack}, stop_{std::move(stop)} {
        for (operation_id a = 0; a < count_; ++a)
            latest_[a] = latest[operations.rank_of(a)];
        for (const rank r : operations.problem().graph.all_ranks())
            on_rank_.push_back(operations.computations_on(r));
    }

    [[nodiscard]] bool contradiction() const { return contradiction_; }
    void contradict() { contradiction_ = true; }
    /// Whether `stop` ended the propagation early, so that some orders are missing.
    [[nodiscard]] bool is_stopped() const { return is_stopped_; }
    /// Polls `stop`. Once this function has returned true, it always returns true.
    bool must_stop() {
        is_stopped_ = is_stopped_ || (stop_ && stop_());
        return is_stopped_;
    }
    [[nodiscard]] const std::vector<arc>& arcs() const { return arcs_; }
    [[nodiscard]] const std::vector<operation_id>& computations_on(rank r) const { return on_rank_[r.position()]; }
    [[nodiscard]] double earliest_start(operation_id a) const { return earliest_[a]; }
    [[nodiscard]] double latest_end(operation_id a) const { return latest_[a]; }
    [[nodiscard]] double earliest_end(operation_id a) const { return earliest_[a] + operations_->length(a); }
    [[nodiscard]] double latest_start(operation_id a) const { return latest_[a] - operations_->length(a); }
    /// Whether a ends no later than b starts, in all schedules within the horizon.
    [[nodiscard]] bool precedes(operation_id a, operation_id b) const { return bit(after_, a, b); }

    void limit(operation_id a, double earliest_start, double latest_end) {
        earliest_[a] = std::max(earliest_[a], earliest_start);
        latest_[a] = std::min(latest_[a], latest_end);
    }
    /// Adds a dependency with its delay.
    void depend(operation_id a, operation_id b, double lag) {
        arcs_.push_back({a, b, lag});
        order(a, b);
    }
    /// Adds the order a before b. Returns true if the order is new.
    bool order(operation_id a, operation_id b) {
        if (is_stopped_ || precedes(a, b) || must_stop()) return false;
        if (a == b || precedes(b, a)) {
            contradiction_ = true;
            return false;
        }
        // a and its predecessors come before b and its successors.
        std::vector<std::uint64_t> sources(row(before_, a), row(before_, a) + words_);
        std::vector<std::uint64_t> targets(row(after_, b), row(after_, b) + words_);
        sources[a / word_bits] |= std::uint64_t{1} << (a % word_bits);
        targets[b / word_bits] |= std::uint64_t{1} << (b % word_bits);
        for (operation_id x = 0; x < count_; ++x) {
            if (has(sources, x)) merge(row(after_, x), targets);
            if (has(targets, x)) merge(row(before_, x), sources);
        }
        return true;
    }
    /// Tightens the time windows by the arcs. A rank runs one operation at a time.
    void propagate_times() {
        const auto sorted = in_order();
        std::vector<std::vector<const arc*>> entering(count_), leaving(count_);
        for (const auto& one : arcs_) {
            entering[one.after].push_back(&one);
            leaving[one.before].push_back(&one);
        }
        for (const operation_id b : sorted) {
            for (const arc* one : entering[b])
                earliest_[b] = std::max(earliest_[b], earliest_end(one->before) + one->lag);
            earliest_[b] = std::max(earliest_[b], end_of_predecessors(b));
        }
        for (auto it = sorted.rbegin(); it != sorted.rend(); ++it) {
            const operation_id a = *it;
            for (const arc* one : leaving[a])
                latest_[a] = std::min(latest_[a], latest_start(one->after) - one->lag);
            latest_[a] = std::min(latest_[a], start_of_successors(a));
            if (earliest_end(a) > latest_[a] + slack_) contradiction_ = true;
        }
    }
    /// Pairs a → b with no operation between them on their rank. Some pairs are missing if `stop` returns true.
    [[nodiscard]] std::vector<arc> covering_pairs(rank r) const {
        const auto& own = on_rank_[r.position()];
        std::vector<arc> found;
        for (const auto a : own) {
            if (stop_ && stop_()) break;
            for (const auto b : own) {
                if (!precedes(a, b)) continue;
                const bool is_between = std::any_of(own.begin(), own.end(),
                                                    [&](operation_id z) { return precedes(a, z) && precedes(z, b); });
                if (!is_between) found.push_back({a, b, 0.0});
            }
        }
        return found;
    }

private:
    [[nodiscard]] std::vector<operation_id> in_order() const {
        std::vector<std::size_t> rank_in_order(count_, 0);
        for (operation_id a = 0; a < count_; ++a)
            for (std::size_t w = 0; w < words_; ++w)
                rank_in_order[a] += static_cast<std::size_t>(std::popcount(before_[a * words_ + w]));
        std::vector<operation_id> sorted;
        for (operation_id a = 0; a < count_; ++a)
            if (operations_->exists(a)) sorted.push_back(a);
        std::stable_sort(sorted.begin(), sorted.end(),
                         [&](operation_id a, operation_id b) { return rank_in_order[a] < rank_in_order[b]; });
        return sorted;
    }
    /// The earliest time at which all predecessors of b on its rank can have run.
    [[nodiscard]] double end_of_predecessors(operation_id b) const {
        std::vector<operation_id> first;
        for (const auto a : on_rank_[operations_->rank_of(b).position()])
            if (precedes(a, b)) first.push_back(a);
        std::sort(first.begin(), first.end(), [&](auto x, auto y) { return earliest_[x] > earliest_[y]; });
        double work = 0.0, end = 0.0;
        for (const auto a : first) {
            work += operations_->length(a);
            end = std::max(end, earliest_[a] + work);
        }
        return end;
    }
    [[nodiscard]] double start_of_successors(operation_id a) const {
        std::vector<operation_id> last;
        for (const auto b : on_rank_[operations_->rank_of(a).position()])
            if (precedes(a, b)) last.push_back(b);
        std::sort(last.begin(), last.end(), [&](auto x, auto y) { return latest_[x] < latest_[y]; });
        double work = 0.0, start = latest_[a];
        for (const auto b : last) {
            work += operations_->length(b);
            start = std::min(start, latest_[b] - work);
        }
        return start;
    }

    using words = std::vector<std::uint64_t>;
    static constexpr std::size_t word_bits = 64;
    [[nodiscard]] bool bit(const words& all, operation_id a, operation_id b) const {
        return (all[a * words_ + b / word_bits] >> (b % word_bits) & 1U) != 0;
    }
    [[nodiscard]] static bool has(const words& set, operation_id x) {
        return (set[x / word_bits] >> (x % word_bits) & 1U) != 0;
    }
    [[nodiscard]] std::uint64_t* row(words& all, operation_id a) const { return all.data() + a * words_; }
    void merge(std::uint64_t* into, const words& from) const {
        for (std::size_t w = 0; w < words_; ++w)
            into[w] |= from[w];
    }

    const operation_table* operations_;
    std::size_t count_;
    std::size_t words_;
    words after_;
    words before_;
    std::vector<double> earliest_;
    std::vector<double> latest_;
    std::vector<arc> arcs_;
    std::vector<std::vector<operation_id>> on_rank_;
    double slack_;
    std::function<bool()> stop_;
    bool is_stopped_ = false;
    bool contradiction_ = false;
};

} // namespace optpipe::formulation
