#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/presolve/margins.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

namespace optpipe::milp {

struct presolve_options {
    /// Whether to allow reductions that keep an optimal solution, but lose feasible solutions. Disable dual reductions
    /// if rows are added later.
    bool dual_reductions = true;
    /// Whether to allow reductions that map several points to one point. If rows are added later, disable many-to-one
    /// and dual reductions for the sake of `translate`.
    bool many_to_one = true;
    std::size_t rounds = 100;
    std::size_t probing_rounds = 2; ///< number of rounds that may probe; probing takes longest
    presolving::margins margins{};
    /// For each row, the error of its two sides. Empty if all row sides are exact.
    std::vector<double> noise{};
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::stop_token stop{};
};

namespace presolving {
class reducer;
class reducible;
struct undo_list;
} // namespace presolving

/// `unbounded` means infeasible or unbounded.
enum class presolve_status : unsigned char { reduced, infeasible, unbounded };

/// A smaller model with the same optimum, and the steps that restore original points. With the status `unbounded`, the
/// result has the model at which presolve stopped. If the status is `infeasible`, the result has no model.
class presolve_result {
public:
    presolve_result(presolve_status status, const presolving::reducer& r, const optpipe::milp::model& original);

    [[nodiscard]] presolve_status status() const { return status_; }
    [[nodiscard]] const optpipe::milp::model& model() const { return model_; }
    /// For each row of the reduced model, the error of its sides.
    [[nodiscard]] const std::vector<double>& noise() const { return noise_; }

    /// Memory in bytes. The number is an estimate.
    [[nodiscard]] std::size_t bytes() const;
    /// Converts values of the reduced model's variables to values of the original model's variables. The objective
    /// stays the same.
    [[nodiscard]] std::vector<double> restore(std::span<const double> reduced) const;

    /// Values of the reduced model's variables for a point of the original model. The values are feasible unless a dual
    /// reduction has cut off the point.
    [[nodiscard]] std::vector<double> project(std::span<const double> original) const;

    /// A row of the original model as a row of the reduced model. A point satisfies the new row if and only if its
    /// restored point satisfies the original row. Empty if no linear row of the reduced model expresses the original
    /// row.
    [[nodiscard]] std::optional<constraint> translate(const constraint& original) const;

    /// The variable in the reduced model, if it still has the same meaning.
    [[nodiscard]] std::optional<variable> find(variable original) const;

private:
    static constexpr std::uint32_t gone = ~std::uint32_t{0};

    void build(const presolving::reducible& m, const optpipe::milp::model& original);

    presolve_status status_;
    optpipe::milp::model model_;
    std::vector<double> noise_;
    std::shared_ptr<const presolving::undo_list> undos_;
    std::size_t columns_of_original_;
    std::vector<variable> columns_; ///< for each column of the reduced model, its variable in the original
    std::vector<std::uint32_t> reduced_;
};

/// Reduces a model by the methods in `presolve/` until nothing changes or a limit is met. The optimal objective stays,
/// and feasible points can be restored.
[[nodiscard]] presolve_result presolve(const model& m, const presolve_options& options = {});

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/core/contract.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/presolve/clique_merging.hpp"
#include "optpipe/milp/presolve/coefficient_tightening.hpp"
#include "optpipe/milp/presolve/dominated_columns.hpp"
#include "optpipe/milp/presolve/doubleton_equations.hpp"
#include "optpipe/milp/presolve/dual_fixing.hpp"
#include "optpipe/milp/presolve/duplicate_columns.hpp"
#include "optpipe/milp/presolve/duplicate_rows.hpp"
#include "optpipe/milp/presolve/free_columns.hpp"
#include "optpipe/milp/presolve/implied_bounds.hpp"
#include "optpipe/milp/presolve/integer_rows.hpp"
#include "optpipe/milp/presolve/probing.hpp"
#include "optpipe/milp/presolve/reducer.hpp"
#include "optpipe/milp/presolve/reducible.hpp"
#include "optpipe/milp/presolve/reductions.hpp"
#include "optpipe/milp/presolve/redundant_rows.hpp"
#include "optpipe/milp/presolve/singleton_columns.hpp"
#include "optpipe/milp/presolve/singleton_rows.hpp"
#include "optpipe/milp/presolve/tight_rows.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace optpipe::milp {
namespace presolving {

/// The undos, in the order in which presolve made them.
struct undo_list {
    std::vector<undo> all;
};

} // namespace presolving

OPTPIPE_INLINE presolve_result::presolve_result(presolve_status status, const presolving::reducer& r,
                                                const optpipe::milp::model& original)
    : status_{status}, undos_{std::make_shared<const presolving::undo_list>(presolving::undo_list{r.undos()})},
      columns_of_original_{original.variables()}, reduced_(original.variables(), gone) {
    if (status != presolve_status::infeasible) build(r.state(), original);
}

OPTPIPE_INLINE std::size_t presolve_result::bytes() const {
    constexpr std::size_t per_undo = 64;
    return model_.bytes() + bytes_of(noise_, undos_->all, columns_, reduced_) + per_undo * undos_->all.size();
}

OPTPIPE_INLINE std::vector<double> presolve_result::restore(std::span<const double> reduced) const {
    OPTPIPE_EXPECT(reduced.size() == columns_.size(), "restore: one value per variable of the reduced model");
    std::vector<double> values(columns_of_original_, 0.0);
    for (std::size_t j = 0; j < columns_.size(); ++j)
        values[columns_[j].position()] = reduced[j];
    for (auto undo = undos_->all.rbegin(); undo != undos_->all.rend(); ++undo)
        std::visit([&](const auto& u) { u(values); }, *undo);
    return values;
}

OPTPIPE_INLINE std::vector<double> presolve_result::project(std::span<const double> original) const {
    OPTPIPE_EXPECT(original.size() == columns_of_original_, "project: one value per variable of the original");
    std::vector<double> values{original.begin(), original.end()};
    for (const auto& undo : undos_->all)
        if (const auto* merge = std::get_if<presolving::merge_columns::undo>(&undo))
            values[merge->kept.position()] += merge->factor * values[merge->merged.position()];
    std::vector<double> reduced;
    for (const variable x : columns_)
        reduced.push_back(values[x.position()]);
    return reduced;
}

OPTPIPE_INLINE std::optional<constraint> presolve_result::translate(const constraint& original) const {
    presolving::open_row open{std::vector<double>(columns_of_original_, 0.0), original.body.constant()};
    for (const auto& t : original.body.terms()) {
        OPTPIPE_EXPECT(t.column.position() < columns_of_original_, "translate: there is no such variable");
        open.coefficients[t.column.position()] += t.coefficient;
    }
    for (const auto& undo : undos_->all)
        if (!std::visit([&](const auto& u) { return u.leave(open); }, undo)) return std::nullopt;
    std::vector<term> terms;
    for (std::size_t j = 0; j < columns_.size(); ++j)
        if (const double a = open.coefficients[columns_[j].position()]; a != 0.0) terms.push_back({variable{j}, a});
    return constraint{{std::move(terms), open.constant}, original.lower, original.upper};
}

OPTPIPE_INLINE std::optional<variable> presolve_result::find(variable original) const {
    OPTPIPE_EXPECT(original.position() < columns_of_original_, "find: there is no such variable");
    const auto at = reduced_[original.position()];
    return at == gone ? std::nullopt : std::optional{variable{at}};
}

OPTPIPE_INLINE void presolve_result::build(const presolving::reducible& m, const optpipe::milp::model& original) {
    model_.set_name(original.name());
    model_.set_direction(original.direction());
    model_.set_offset(m.offset());
    for (const variable x : m.all_variables()) {
        if (!m.has(x)) continue;
        reduced_[x.position()] = static_cast<std::uint32_t>(columns_.size());
        columns_.push_back(x);
        const auto kind = m.is_integer(x) ? domain::integer : domain::continuous;
        const auto added = model_.add_variable(m.lower(x), m.upper(x), kind, name_of(original, x));
        model_.set_cost(added, m.own_cost(x));
    }
    std::vector<term> terms;
    for (const row r : m.all_rows()) {
        if (!m.has(r)) continue;
        terms.clear();
        for (const auto& t : m.terms(r))
            terms.push_back({variable{reduced_[t.column.position()]}, t.coefficient});
        model_.add_row(m.lower(r), terms, m.upper(r), name_of(original, r));
        noise_.push_back(m.noise(r));
    }
    for (const auto& undo : undos_->all)
        if (const auto* merge = std::get_if<presolving::merge_columns::undo>(&undo))
            reduced_[merge->kept.position()] = gone;
}

namespace presolving {

/// Runs the fast methods until they find nothing, then the slower methods. Once a slower method has found a reduction,
/// the fast methods run again.
inline verdict reduce(reducer& r, const presolve_options& options) {
    const auto is_over = [&] {
        return options.stop.stop_requested() || std::chrono::steady_clock::now() >= options.deadline;
    };
    const auto all = [&](auto... method) {
        verdict worst = verdict::unchanged;
        const auto run = [&](auto& each) {
            if (worst != verdict::infeasible && worst != verdict::unbounded && !is_over())
                if (const auto v = r.run(each); v != verdict::unchanged) worst = v;
        };
        (run(method), ...);
        return worst;
    };
    std::size_t probed = 0;
    for (std::size_t round = 0; round < options.rounds && !is_over(); ++round) {
        auto v = all(redundant_rows{}, singleton_rows{}, integer_rows{}, implied_bounds{}, doubleton_equations{},
                     singleton_columns{options.dual_reductions, options.many_to_one});
        if (v == verdict::unchanged && options.dual_reductions) v = all(dual_fixing{}, tight_rows{});
        if (v == verdict::unchanged) v = all(free_columns{});
        if (v == verdict::unchanged) v = all(duplicate_rows{});
        if (v == verdict::unchanged && options.many_to_one) v = all(duplicate_columns{});
        if (v == verdict::unchanged) v = all(coefficient_tightening{});
        if (v == verdict::unchanged && options.dual_reductions) v = all(dominated_columns{});
        if (v == verdict::unchanged && probed++ < options.probing_rounds) v = all(probing{}, clique_merging{});
        if (v != verdict::applied) return v;
    }
    return verdict::unchanged;
}

} // namespace presolving

OPTPIPE_INLINE presolve_result presolve(const model& m, const presolve_options& options) {
    presolving::reducer r{m, options.margins, options.noise};
    const auto v = r.is_infeasible() ? presolving::verdict::infeasible : presolving::reduce(r, options);
    const auto status = v == presolving::verdict::infeasible  ? presolve_status::infeasible
                        : v == presolving::verdict::unbounded ? presolve_status::unbounded
                                                              : presolve_status::reduced;
    return {status, r, m};
}

} // namespace optpipe::milp
#endif
