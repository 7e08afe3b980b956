#pragma once

#include "optpipe/formulation/known_order.hpp"
#include "optpipe/formulation/literal.hpp"
#include "optpipe/formulation/meaning.hpp"
#include "optpipe/formulation/model_families.hpp"
#include "optpipe/formulation/operation_table.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/precedence.hpp"
#include "optpipe/milp/model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::formulation {

/// A sum of terms and a constant, which will become a row.
struct sum {
    std::vector<milp::term> terms;
    double constant = 0.0;

    sum& add(double factor, milp::variable x) {
        terms.push_back({x, factor});
        return *this;
    }
    sum& add(double factor, const literal& l) {
        constant += factor * l.constant;
        if (!l.is_constant()) terms.push_back({l.column, factor * l.coefficient});
        return *this;
    }
    sum& add(double value) {
        constant += value;
        return *this;
    }
};

/// An amount that depends on the storage option of a cell. The amount is linear in `choices`, because exactly one
/// choice is 1.
struct amount {
    double least = 0.0;
    double most = 0.0;
    std::vector<std::pair<double, literal>> above{}; ///< for each option, the excess over the least amount
    literal otherwise_zero = literal::always();      ///< whether the chosen option has this amount; the amount is 0
                                                     ///< otherwise

    [[nodiscard]] bool is_fixed() const { return above.empty(); }
    void add_to(sum& s, double factor) const {
        s.add(factor * least, otherwise_zero);
        for (const auto& [more, chosen] : above)
            s.add(factor * more, chosen);
    }
};

/// Builds a model. The families of constraints add their variables and rows. Stores the meaning of each variable, and
/// the time windows of events.
class model_builder {
public:
    model_builder(const operation_table& operations, const options& o, double horizon)
        : t_{&operations}, options_{&o}, horizon_{horizon}, slack_{time_share * horizon},
          precedences_{known_order(operations, o, horizon, slack_)}, ends_(operations.size()),
          lengths_(operations.size()), offloaded_(operations.cells()), fulls_(operations.cells(), literal::never()),
          choices_(operations.cells()), local_(operations.size(), 0) {
        for (const rank r : operations.problem().graph.all_ranks()) {
            const auto& own = precedences_.computations_on(r);
            for (std::size_t i = 0; i < own.size(); ++i)
                local_[own[i]] = i;
            orders_.emplace_back(own.size() * own.size(), literal::never());
        }
    }

    [[nodiscard]] const operation_table& operations() const { return *t_; }
    /// Whether `options::stop` ended the propagation early, so that there is no model.
    [[nodiscard]] bool is_stopped() const { return precedences_.is_stopped(); }
    [[nodiscard]] const optpipe::problem& problem() const { return t_->problem(); }
    [[nodiscard]] const options& wanted() const { return *options_; }
    [[nodiscard]] const precedence& precedences() const { return precedences_; }
    [[nodiscard]] milp::model& model() { return model_; }
    [[nodiscard]] std::vector<meaning>& meanings() { return meanings_; }
    [[nodiscard]] const family_sizes& sizes() const { return sizes_; }
    [[nodiscard]] bool keeps_order() const { return formulation::keeps_order(*t_, options_->overtaking); }
    /// Whether the transfers of a stage are numbered by time, without belonging to a microbatch.
    [[nodiscard]] bool is_pooled() const { return options_->overtaking == overtaking::pooled && t_->any_may_offload(); }
    [[nodiscard]] bool is_span() const { return problem().objective == objective_kind::span; }
    /// The cutoff. Larger objectives are excluded.
    [[nodiscard]] double horizon() const { return horizon_; }
    [[nodiscard]] double slack() const { return slack_; }
    [[nodiscard]] bool is_too_large() const { return model_.rows() > options_->most_rows; }
    [[nodiscard]] bool contradiction() const { return contradiction_ || precedences_.contradiction(); }
    void contradict() { contradiction_ = true; }

    // -- variables -----------------------------------------------------------------------------------------------

    milp::variable add_variable(family f, double lower, double upper, meaning what, std::string name) {
        ++sizes_[static_cast<std::size_t>(f)].variables;
        meanings_.push_back(std::move(what));
        if (lower > upper) { // caused by rounding, or by infeasibility
            contradiction_ = contradiction_ || lower > upper + slack_;
            lower = upper;
        }
        return model_.add_variable(lower, upper, milp::domain::continuous, std::move(name));
    }
    literal add_binary(family f, meaning what, std::string name) {
        auto& size = sizes_[static_cast<std::size_t>(f)];
        ++size.variables;
        ++size.integers;
        meanings_.push_back(std::move(what));
        return literal::of(model_.add_binary(std::move(name)));
    }

    milp::variable objective{};
    /// For `span`, the start of each rank's first operation.
    std::vector<milp::variable> first_starts{};
    [[nodiscard]] milp::variable end(operation_id a) const { return ends_[a]; }
    void set_end(operation_id a, milp::variable x) { ends_[a] = x; }
    /// Whether the stash of a cell is offloaded.
    [[nodiscard]] const literal& offloaded(cell c) const { return offloaded_[c]; }
    void set_offloaded(cell c, literal l) { offloaded_[c] = l; }
    /// Whether I and W of a cell form a full backward.
    [[nodiscard]] const literal& full(cell c) const { return fulls_[c]; }
    void set_full(cell c, literal l) { fulls_[c] = l; }
    /// One literal for each entry of `operation_table::options`: whether the cell has this option.
    [[nodiscard]] const std::vector<literal>& choices(cell c) const { return choices_[c]; }
    void set_choices(cell c, std::vector<literal> all) {
        choices_[c] = std::move(all);
        for (std::size_t what = 0; what < roles; ++what) {
            const auto a = t_->id(static_cast<role>(what), c);
            lengths_[a] = by_option(c, [&](storage_index o) { return t_->length(a, o); });
        }
    }
    /// `of(option)` as a linear function of the cell's choices.
    template <class Amount> [[nodiscard]] amount by_option(cell c, const Amount& of) const {
        return over_options(c, of, [](storage_index) { return true; });
    }
    /// The memory that an offload moves, or 0. The amount's members `least` and `most` only consider options that
    /// offload.
    [[nodiscard]] amount offloaded_size(cell c) const {
        const stage s = t_->stage_of(c);
        auto result = over_options(
            c, [&](storage_index o) { return t_->stored_in(c, o).transfer_size.value(); },
            [&](storage_index o) { return t_->stored(s, o).offloads(); });
        result.otherwise_zero = offloaded_[c];
        return result;
    }
    /// Whether a comes before b, for two computations of one rank.
    [[nodiscard]] literal order(operation_id a, operation_id b) const {
        if (precedences_.precedes(a, b)) return literal::always();
        if (precedences_.precedes(b, a)) return literal::never();
        return orders_[t_->rank_of(a).position()][slot(a, b)];
    }
    void set_order(operation_id a, operation_id b, literal l) {
        auto& all = orders_[t_->rank_of(a).position()];
        all[slot(a, b)] = l;
        all[slot(b, a)] = l.negation();
    }
    /// The literal for "a comes before b if both take place". Empty unless a and b are transfers that exclude each
    /// other.
    [[nodiscard]] std::optional<literal> transfer_order(operation_id a, operation_id b) const {
        const auto found = transfer_orders_.find({std::min(a, b), std::max(a, b)});
        if (found == transfer_orders_.end()) return std::nullopt;
        return a < b ? found->second : found->second.negation();
    }
    void set_transfer_order(operation_id a, operation_id b, literal l) {
        transfer_orders_[{std::min(a, b), std::max(a, b)}] = a < b ? l : l.negation();
    }

    // -- times ---------------------------------------------------------------------------------------------------

    /// `forward_of(a)` is the F of the stash of transfer a. `needs_stash(a)` is the gradient or recomputation that
    /// comes after a. If transfers are pooled, the m-th transfer lies between the m-th F and the last gradient.
    [[nodiscard]] operation_id forward_of(operation_id a) const { return t_->id(role::forward, t_->cell_of(a)); }
    [[nodiscard]] operation_id needs_stash(operation_id a) const {
        const cell last = t_->cell_at(t_->stage_of(a), t_->microbatches() - 1);
        const bool may_recompute = t_->may_recompute(t_->stage_of(a));
        return t_->id(may_recompute ? role::recompute : role::gradient, is_pooled() ? last : t_->cell_of(a));
    }
    /// The earliest and the latest time of an event. An absent transfer has length 0, and lies between F and the
    /// computation that needs the stash.
    [[nodiscard]] double earliest(event e) const {
        if (t_->is_transfer(e.op)) return precedences_.earliest_end(forward_of(e.op));
        return e.is_end ? precedences_.earliest_end(e.op) : precedences_.earliest_start(e.op);
    }
    [[nodiscard]] double latest(event e) const {
        if (t_->is_transfer(e.op)) return precedences_.latest_start(needs_stash(e.op));
        return e.is_end ? precedences_.latest_end(e.op) : precedences_.latest_start(e.op);
    }
    void add_time(sum& s, double factor, event e) const {
        s.add(factor, ends_[e.op]);
        if (!e.is_end) add_length(s, -factor, e.op);
    }
    /// Adds the duration of an operation. The duration depends on the storage option, and is 0 for an absent operation.
    void add_length(sum& s, double factor, operation_id a) const { lengths_[a].add_to(s, factor); }
    /// If all literals in `given` hold, `first` comes no later than `then`.
    void imply_order(family f, const std::vector<literal>& given, event first, event then) {
        const double big_m = std::max(0.0, latest(first) - earliest(then));
        sum s;
        add_time(s, 1.0, then);
        add_time(s, -1.0, first);
        for (const auto& l : given) {
            if (l.is_never()) return;
            if (!l.is_always()) s.add(big_m).add(-big_m, l);
        }
        add_row(f, s, 0.0, milp::infinity);
    }

    /// If the literal is true, `first` comes no later than `then`. With `exact`, the literal is false only if `then`
    /// comes no later than `first`. The literal is constant if the time windows or a known order decide.
    literal before(family f, event first, event then, bool exact) {
        auto& known = before_literals_[{first, then}];
        if (!known.is_set) {
            known.is_set = true;
            if (latest(first) <= earliest(then) || is_certain(first, then))
                known.value = literal::always();
            else if (earliest(first) > latest(then) + slack_ || is_excluded(first, then))
                known.value = literal::never();
            else {
                known.value =
                    add_binary(f, meaning::is_before(first, then), "y." + name_of(first) + "." + name_of(then));
                imply_order(f, {known.value}, first, then);
            }
        }
        if (exact && !known.is_exact) {
            known.is_exact = true;
            if (!known.value.is_constant()) imply_order(f, {known.value.negation()}, then, first);
        }
        return known.value;
    }
    /// A literal that can be true only if all of `parts` are true. The literal can be false in any case.
    literal all_of(family f, const std::vector<literal>& parts, std::string name) {
        std::vector<literal> open;
        for (const auto& l : parts) {
            if (l.is_never()) return literal::never();
            if (!l.is_always() && std::find(open.begin(), open.end(), l) == open.end()) open.push_back(l);
        }
        if (open.empty()) return literal::always();
        if (open.size() == 1) return open.front();
        auto what = meaning::excess_of(1.0 - static_cast<double>(open.size()));
        for (const auto& l : open)
            what.parts.push_back({1.0, l});
        const auto all = add_binary(f, std::move(what), std::move(name));
        for (const auto& l : open)
            add_row(f, sum{}.add(1.0, l).add(-1.0, all), 0.0, milp::infinity);
        return all;
    }
    /// Visits all literals that say which of two events comes first.
    template <class Visit> void for_each_before(Visit visit) const {
        for (const auto& [events, known] : before_literals_)
            visit(events.first, events.second, known.value);
    }
    template <class Visit> void for_each_transfer_order(Visit visit) const {
        for (const auto& [pair, l] : transfer_orders_)
            visit(pair.first, pair.second, l);
    }
    [[nodiscard]] std::optional<literal> find_before(event first, event then) const {
        const auto found = before_literals_.find({first, then});
        if (found == before_literals_.end() || !found->second.is_set) return std::nullopt;
        return found->second.value;
    }

    // -- rows ----------------------------------------------------------------------------------------------------

    /// Adds the row, unless the bounds of its variables imply the row.
    void add_row(family f, sum s, double lower, double upper) {
        if (is_too_large()) return;
        lower -= s.constant;
        upper -= s.constant;
        double least = 0.0, most = 0.0;
        normalize(s.terms);
        for (const auto& t : s.terms) {
            const double a = t.coefficient * model_.lower(t.column), b = t.coefficient * model_.upper(t.column);
            least += std::min(a, b);
            most += std::max(a, b);
        }
        const double scale = time_share * std::max(std::abs(least), std::abs(most));
        if (least >= lower - scale && most <= upper + scale) return;
        if (s.terms.empty()) return contradict();
        auto& size = sizes_[static_cast<std::size_t>(f)];
        ++size.rows;
        size.nonzeros += s.terms.size();
        model_.add_row(lower, s.terms, upper);
    }
    [[nodiscard]] std::string name_of(event e) const { return t_->name_of(e.op) + (e.is_end ? "" : "s"); }

private:
    static constexpr double time_share = 1e-9;

    struct statement {
        literal value{};
        bool is_set = false;
        bool is_exact = false;
    };

    template <class Amount, class Condition>
    [[nodiscard]] amount over_options(cell c, const Amount& of, const Condition& counts) const {
        const auto& options = t_->options(t_->stage_of(c));
        amount result{milp::infinity, 0.0};
        for (const auto o : options)
            if (counts(o)) {
                result.least = std::min(result.least, of(o));
                result.most = std::max(result.most, of(o));
            }
        if (result.least > result.most) return {};
        for (std::size_t i = 0; i < options.size(); ++i)
            if (const auto o = options[i]; counts(o) && of(o) > result.least)
                result.above.push_back({of(o) - result.least, choices_[c][i]});
        return result;
    }
    /// A computation's event that never comes before `e` (`no_earlier`), or never after `e` (`no_later`).
    [[nodiscard]] event no_earlier(event e) const { return t_->is_transfer(e.op) ? start_of(needs_stash(e.op)) : e; }
    [[nodiscard]] event no_later(event e) const { return t_->is_transfer(e.op) ? end_of(forward_of(e.op)) : e; }
    [[nodiscard]] bool is_certain(event first, event then) const {
        const auto a = no_earlier(first), b = no_later(then);
        return a.op == b.op ? !a.is_end || b.is_end : precedences_.precedes(a.op, b.op);
    }
    /// Whether `first` is later than `then`, with a computation between them.
    [[nodiscard]] bool is_excluded(event first, event then) const {
        const auto a = no_earlier(then), b = no_later(first);
        if (a.op == b.op) return !a.is_end && b.is_end;
        return precedences_.precedes(a.op, b.op) && (!a.is_end || b.is_end);
    }
    [[nodiscard]] std::size_t slot(operation_id a, operation_id b) const {
        return local_[a] * precedences_.computations_on(t_->rank_of(a)).size() + local_[b];
    }
    static void normalize(std::vector<milp::term>& terms) {
        std::sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.column < b.column; });
        std::size_t kept = 0;
        for (std::size_t i = 0; i < terms.size();) {
            auto merged = terms[i++];
            for (; i < terms.size() && terms[i].column == merged.column; ++i)
                merged.coefficient += terms[i].coefficient;
            if (merged.coefficient != 0.0) terms[kept++] = merged;
        }
        terms.resize(kept);
    }

    const operation_table* t_;
    const options* options_;
    double horizon_;
    double slack_;
    precedence precedences_;
    milp::model model_;
    std::vector<meaning> meanings_;
    family_sizes sizes_{};
    std::vector<milp::variable> ends_;
    std::vector<amount> lengths_;
    std::vector<literal> offloaded_;
    std::vector<literal> fulls_;
    std::vector<std::vector<literal>> choices_;
    std::vector<std::size_t> local_; ///< position of an operation among the operations of its rank
    std::vector<std::vector<literal>> orders_;
    std::map<std::pair<operation_id, operation_id>, literal> transfer_orders_;
    std::map<std::pair<event, event>, statement> before_literals_;
    bool contradiction_ = false;
};

} // namespace optpipe::formulation
