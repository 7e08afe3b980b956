#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/search/conflict/disjunctions.hpp"
#include "optpipe/milp/search/propagation/domains.hpp"
#include "optpipe/milp/search/propagation/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// Limits of propagation at a node. Not tuned.
struct propagation_parameters {
    /// A propagation visits at most `least_budget` + `budget_per_row` · (number of rows) rows. The limit ends a
    /// propagation in which bounds change in tiny steps.
    std::size_t least_budget = 2000;
    std::size_t budget_per_row = 200;
    /// A row of n terms counts as 1 + n / `terms_per_visit` visits.
    std::size_t terms_per_visit = 8;
};

/// A problem's bounds, and the constraints that tighten them. Constraints are both sides of each row, the objective's
/// cutoff, and clauses. Every bound change has a reason.
class propagator {
public:
    explicit propagator(const problem& p) : problem_{&p}, domains_{p}, rows_{p.columns()}, disjunctions_{p.columns()} {
        for (std::size_t i = 0; i < p.rows(); ++i)
            add_row(p.row_entries(i), p.row_lower[i], p.row_upper[i], p.row_noise[i]);
        std::vector<entry> costs;
        for (std::size_t j = 0; j < p.columns(); ++j)
            if (p.cost[j] != 0.0) costs.push_back({static_cast<std::uint32_t>(j), p.cost[j]});
        objective_scale_ = p.objective_step > 0.0 ? p.objective_step : 1.0;
        for (auto& c : costs)
            c.coefficient = p.objective_step > 0.0 ? std::round(c.coefficient / objective_scale_) : c.coefficient;
        objective_row_ = rows_.add(costs, infinity, p);
        queued_.resize(rows_.size(), 0);
        for (std::size_t j = 0; j < p.columns() && !contradiction_at_root_; ++j)
            contradiction_at_root_ = p.lower[j] > p.upper[j];
    }

    [[nodiscard]] const problem& model() const { return *problem_; }
    [[nodiscard]] const domains& bounds() const { return domains_; }
    [[nodiscard]] domains& bounds() { return domains_; }
    [[nodiscard]] disjunctions& learned() { return disjunctions_; }
    [[nodiscard]] std::uint32_t level() const { return domains_.level(); }
    /// Whether the problem with the cutoff has been proven to have no point.
    [[nodiscard]] bool refuted() const { return contradiction_at_root_; }
    /// Literals that hold, but exclude each other. Valid after `propagate` or `imply` returned false.
    [[nodiscard]] const std::vector<literal>& conflict() const { return conflict_; }
    [[nodiscard]] std::size_t bytes() const {
        return domains_.bytes() + rows_.bytes() + disjunctions_.bytes() +
               bytes_of(queue_, queued_, lists_, list_literals_, conflict_);
    }
    /// Number of row visits. A long row counts several times.
    [[nodiscard]] std::size_t row_visits() const { return visits_; }

    /// Adds a row that holds for all points that the search looks for. May only be called at level 0.
    void add_row(std::span<const entry> entries, double lower, double upper, double noise = 0.0) {
        if (lower > upper + problem_->tolerances.slack(lower) + noise) contradiction_at_root_ = true;
        if (upper < infinity) enqueue_new(rows_.add(entries, upper, *problem_, noise));
        if (lower > -infinity) enqueue_new(rows_.add_lower(entries, lower, *problem_, noise));
    }
    /// Restricts the search to points with an objective of at most `value`.
    void set_cutoff(double value) {
        const auto& n = problem_->tolerances;
        const double limit = value / objective_scale_;
        // The cutoff is below the incumbent anyway, so the objective row needs hardly any slack.
        rows_.set_limit(objective_row_, limit, n.zero * n.objective_slack(limit), n);
        enqueue(static_cast<std::uint32_t>(objective_row_));
    }
    /// The least objective that the bounds allow.
    [[nodiscard]] double least_objective() const {
        const row_sum sum{rows_.terms(objective_row_), [&](bound_index b) { return domains_[b]; }};
        return sum.infinite > 0 ? -infinity : sum.finite * objective_scale_;
    }

    /// Opens a level with this decision. The literal must be neither true nor false.
    void decide(literal l) {
        domains_.push_level();
        domains_.raise(l, {});
    }
    void back_to(std::uint32_t level) {
        if (level >= this->level()) return;
        domains_.back_to(level);
        head_ = std::min(head_, domains_.changes());
        clear_queue();
        enqueue(static_cast<std::uint32_t>(objective_row_)); // the limit of the objective row may have fallen
        while (!lists_.empty() && lists_.back().bound_change >= domains_.changes()) {
            list_literals_.resize(lists_.back().first);
            lists_.pop_back();
        }
    }

    /// Tightens a bound, unless the literal already holds. Returns false on a conflict. A continuous column's crossing
    /// bounds are made equal. The row reports the conflict, because the row's slack decides.
    bool imply(literal l, reason why) {
        if (domains_.is_true(l)) return true;
        const auto j = column_of(l.bound);
        const double limit = -domains_[opposite(l.bound)];
        if (l.value > limit) {
            const bool integral = domains_.is_integral(j);
            const bool says_row = why.from == reason::source::row || why.from == reason::source::list;
            if (integral || (!says_row && l.value > limit + problem_->tolerances.slack(limit))) {
                conflict_.clear();
                explain(l, why, conflict_);
                conflict_.push_back({opposite(l.bound), integral ? 1.0 - l.value : domains_[opposite(l.bound)]});
                if (level() == 0) contradiction_at_root_ = true;
                return false;
            }
            l.value = limit;
            if (domains_.is_true(l)) return true;
        }
        domains_.raise(l, why);
        return true;
    }
    /// Implies `l` with the reason `because`.
    bool imply(literal l, std::span<const literal> because) {
        if (domains_.is_true(l)) return true;
        return imply(l, keep_list(because));
    }
    /// Implies `l` everywhere in the tree. May only be called at level 0.
    bool imply_at_root(literal l) { return imply(l, reason{}); }

    /// Propagates until nothing changes. Stops at a limit if continuous bounds converge too slowly. Returns false on a
    /// conflict.
    bool propagate() {
        if (contradiction_at_root_) return false;
        const auto budget = visits_ + with_.least_budget + with_.budget_per_row * rows_.size();
        while (true) {
            while (head_ < domains_.changes())
                if (!follow(domains_.at(head_++))) return fail();
            if (queue_head_ == queue_.size()) break;
            const auto r = queue_[queue_head_++];
            queued_[r] = 0;
            if (visits_ < budget && !visit(r)) return fail();
        }
        queue_.clear();
        queue_head_ = 0;
        if (level() == 0) settle_root();
        return true;
    }

    /// Propagates a row that holds everywhere, without storing it. Returns false on a conflict.
    bool apply(std::span<const signed_term> terms, double limit) {
        const row_sum sum{terms, [&](bound_index b) { return domains_[b]; }};
        if (sum.infinite > 0) return true;
        const double room = limit - sum.finite;
        const double slack = problem_->tolerances.objective_slack(limit) +
                             noise_of(terms, limit, [&](bound_index b) { return domains_[b]; });
        row_explanation explanation{domains_, rows_, problem_->tolerances};
        if (room < -slack) {
            conflict_.clear();
            explanation.contradiction(terms, limit, slack, conflict_);
            if (level() == 0) contradiction_at_root_ = true;
            return false;
        }
        std::vector<literal> because;
        for (const auto& t : terms) {
            const auto target = risen(t, room + slack, domains_[t.bound], problem_->tolerances.integrality);
            if (!target) continue;
            because.clear();
            // No reasons are needed at the root.
            if (level() > 0) explanation.implied(terms, limit + slack, false, *target, because);
            if (!imply(*target, because)) return fail();
        }
        return true;
    }

    /// Sets the conflict of a row that the bounds violate by more than `margin`.
    void contradict(std::span<const signed_term> terms, double limit, double margin) {
        conflict_.clear();
        row_explanation{domains_, rows_, problem_->tolerances}.contradiction(terms, limit, margin, conflict_);
        if (level() == 0) contradiction_at_root_ = true;
    }

    /// Appends visible literals that imply `l` by the reason `why`.
    void explain(literal l, reason why, std::vector<literal>& out) {
        switch (why.from) {
        case reason::source::none: break;
        case reason::source::row:
            visits_ += 1 + rows_[why.which].count / with_.terms_per_visit;
            row_explanation{domains_, rows_, problem_->tolerances}.implied(why.which, l, out);
            break;
        case reason::source::disjunction:
            disjunctions_.bump(why.which);
            for (const auto& other : disjunctions_.literals(why.which))
                if (other.bound != l.bound) out.push_back(negation(other));
            break;
        case reason::source::list: {
            const auto& list = lists_[why.which];
            for (std::size_t k = list.first; k < list.first + list.count; ++k)
                out.push_back(list_literals_[k]);
            break;
        }
        }
    }
    /// Adds a clause that always holds, and applies it at once. The clause's literals must be ordered: true or open
    /// literals come first, then false literals. Among false literals, the one that became false last comes first.
    /// Returns false on a conflict.
    bool learn(std::span<const literal> literals, bool learned, std::uint32_t levels) {
        if (literals.empty()) return fail_at_root();
        if (literals.size() == 1) {
            OPTPIPE_EXPECT(level() == 0, "learn: a statement of one literal belongs to the root");
            return imply(literals[0], reason{}) || fail_at_root();
        }
        const auto id = disjunctions_.add(literals, learned, levels);
        if (domains_.is_false(literals[1]) && !domains_.is_true(literals[0]))
            return imply(literals[0], {reason::source::disjunction, id});
        return true;
    }

private:
    static constexpr propagation_parameters with_{};

    struct kept_list {
        trail_position bound_change; ///< the bound change that the list explains
        std::size_t first;
        std::size_t count;
    };

    reason keep_list(std::span<const literal> because) {
        const auto first = list_literals_.size();
        list_literals_.insert(list_literals_.end(), because.begin(), because.end());
        lists_.push_back({domains_.changes(), first, because.size()});
        return {reason::source::list, static_cast<std::uint32_t>(lists_.size() - 1)};
    }
    bool fail() {
        clear_queue();
        head_ = domains_.changes();
        if (level() == 0) contradiction_at_root_ = true;
        return false;
    }
    bool fail_at_root() {
        contradiction_at_root_ = true;
        return false;
    }
    void settle_root() {
        domains_.forget_root_changes();
        head_ = 0;
        lists_.clear();
        list_literals_.clear();
    }
    void enqueue(std::uint32_t row) {
        if (queued_[row] != 0) return;
        queued_[row] = 1;
        queue_.push_back(row);
    }
    void enqueue_new(std::size_t row) {
        queued_.resize(rows_.size(), 0);
        enqueue(static_cast<std::uint32_t>(row));
    }
    void clear_queue() {
        for (; queue_head_ < queue_.size(); ++queue_head_)
            queued_[queue_[queue_head_]] = 0;
        queue_.clear();
        queue_head_ = 0;
    }

    bool follow(const bound_change m) {
        for (const auto r : rows_.watchers(m.bound))
            enqueue(r);
        return follow_disjunctions(m.bound);
    }
    bool follow_disjunctions(bound_index b) {
        auto& watchers = disjunctions_.watchers(b);
        const double limit = -domains_[b];
        std::size_t kept = 0, k = 0;
        bool fine = true;
        for (; k < watchers.size() && fine; ++k) {
            const auto w = watchers[k];
            if (limit >= w.value || domains_.is_true(w.blocker)) {
                watchers[kept++] = w;
                continue;
            }
            if (rewatch(w, b)) continue;
            const auto literals = disjunctions_.literals(w.which);
            watchers[kept++] = {w.which, w.value, literals[0]};
            fine = domains_.is_true(literals[0]) || assert_first(w.which);
        }
        for (; k < watchers.size(); ++k)
            watchers[kept++] = watchers[k];
        watchers.resize(kept);
        return fine;
    }
    /// Moves the false literal to the second position, and looks for another literal to watch.
    bool rewatch(const disjunctions::watcher& w, bound_index b) {
        auto literals = disjunctions_.literals(w.which);
        if (opposite(literals[0].bound) == b && literals[0].value == w.value) std::swap(literals[0], literals[1]);
        if (domains_.is_true(literals[0])) return false;
        for (std::size_t i = 2; i < literals.size(); ++i)
            if (!domains_.is_false(literals[i])) {
                std::swap(literals[1], literals[i]);
                disjunctions_.watch(w.which, literals[1], literals[0]);
                return true;
            }
        return false;
    }
    bool assert_first(std::uint32_t which) {
        const auto literals = disjunctions_.literals(which);
        if (!domains_.is_false(literals[0])) return imply(literals[0], {reason::source::disjunction, which});
        conflict_.clear();
        for (const auto& l : literals)
            conflict_.push_back(negation(l));
        disjunctions_.bump(which);
        return false;
    }

    bool visit(std::uint32_t row) {
        const auto& r = rows_[row];
        visits_ += 1 + r.count / with_.terms_per_visit;
        if (r.limit == infinity) return true;
        const auto terms = rows_.terms(row);
        const row_sum sum{terms, [&](bound_index b) { return domains_[b]; }};
        if (sum.infinite > 1) return true;
        const double room = r.limit - sum.finite;
        const auto noise = [&] {
            return r.exact ? 0.0 : r.noise + noise_of(terms, r.limit, [&](bound_index b) { return domains_[b]; });
        };
        if (sum.infinite == 1) return tighten(row, terms[sum.where], room + noise(), 0.0);
        if (room < -r.slack && (r.exact || room < -r.slack - noise())) {
            conflict_.clear();
            row_explanation{domains_, rows_, problem_->tolerances}.contradiction(row, conflict_);
            return false;
        }
        return tighten_all(row, terms, room, noise);
    }
    template <class Noise>
    bool tighten_all(std::uint32_t row, std::span<const signed_term> terms, double room, const Noise& noise) {
        std::optional<double> wider;
        for (const auto& t : terms) {
            const double least = domains_[t.bound];
            if (t.weight * (-domains_[opposite(t.bound)] - least) <= room) continue;
            if (!wider) wider = room + noise();
            if (!tighten(row, t, *wider, least)) return false;
        }
        return true;
    }
    /// Tightens the opposite bound, so that the term rises by at most `room` above `least · weight`.
    bool tighten(std::uint32_t row, const signed_term& t, double room, double least) {
        const auto target = risen(t, room, least, problem_->tolerances.rule().grace(rows_[row].slack, t.weight));
        return !target || imply(*target, {reason::source::row, row});
    }
    /// The literal that follows if a term may rise by at most `room`. Empty if the literal isn't new, or tightens a
    /// bound too little. The bound of an integer variable may be too tight by `grace`.
    [[nodiscard]] std::optional<literal> risen(const signed_term& t, double room, double least, double grace) const {
        const auto target = opposite(t.bound);
        const double value = -(least + room / t.weight);
        const double old = domains_[target];
        if (std::abs(value) > problem_->tolerances.huge) return std::nullopt;
        if (domains_.is_integral(column_of(target))) {
            const double rounded = std::ceil(value - grace);
            return rounded > old ? std::optional{literal{target, rounded}} : std::nullopt;
        }
        if (old == -infinity) return literal{target, value};
        const double width = -domains_[t.bound] - old;
        const double step = problem_->tolerances.least_move * (width < infinity ? width : std::max(1.0, std::abs(old)));
        if (value <= old + std::max(step, problem_->tolerances.slack(old))) return std::nullopt;
        return literal{target, value};
    }

    const problem* problem_;
    domains domains_;
    signed_rows rows_;
    disjunctions disjunctions_;
    std::size_t objective_row_ = 0;
    double objective_scale_ = 1.0;

    trail_position head_ = 0;
    std::vector<std::uint32_t> queue_;
    std::size_t queue_head_ = 0;
    std::vector<unsigned char> queued_;
    std::size_t visits_ = 0;

    std::vector<kept_list> lists_;
    std::vector<literal> list_literals_;
    std::vector<literal> conflict_;
    bool contradiction_at_root_ = false;
};

} // namespace optpipe::milp::search
