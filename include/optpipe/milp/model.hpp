#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/expression.hpp"

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::milp {

/// A binary variable is an integer between 0 and 1.
enum class domain : unsigned char { continuous, integer };
enum class sense : unsigned char { minimize, maximize };

/// A model has variables with bounds, rows `lower <= sum of terms <= upper`, and a linear objective. Bounds may be
/// infinite. If bounds exclude each other, the model is infeasible. Rows can be added, but not removed. Bounds, costs,
/// domains and names can be changed. A call that breaks a contract leaves the model as it was.
class model {
public:
    /// Here and below, coefficients and offsets must be finite, and bounds must not be NaN. A lower bound must not be
    /// +infinity, and an upper bound must not be -infinity.
    variable add_variable(double lower, double upper, domain kind = domain::continuous, std::string name = {});
    variable add_binary(std::string name = {}) { return add_variable(0.0, 1.0, domain::integer, std::move(name)); }

    /// Terms are stored in the order of their columns. Terms of the same column are summed, and zeros are dropped.
    row add_row(double lower, std::span<const term> terms, double upper, std::string name = {});
    row add_row(double lower, std::initializer_list<term> terms, double upper, std::string name = {}) {
        return add_row(lower, std::span<const term>{terms.begin(), terms.size()}, upper, std::move(name));
    }
    /// The constant of the body is subtracted from both sides.
    row add_row(const constraint& c, std::string name = {});

    /// Replaces all costs and the offset.
    void set_objective(const expression& objective, sense direction = sense::minimize);
    void set_cost(variable x, double cost);
    void set_offset(double offset);
    void set_direction(sense direction) { direction_ = direction; }
    void set_bounds(variable x, double lower, double upper);
    void set_bounds(row r, double lower, double upper);
    void set_domain(variable x, domain kind) { at(x).kind = kind; }
    void set_name(std::string name) { name_ = std::move(name); }
    void set_name(variable x, std::string name) { at(x).name = std::move(name); }
    void set_name(row r, std::string name) { at(r).name = std::move(name); }

    [[nodiscard]] std::size_t variables() const { return columns_.size(); }
    [[nodiscard]] std::size_t rows() const { return rows_.size(); }
    [[nodiscard]] std::size_t nonzeros() const { return terms_.size(); }
    /// Memory in bytes. Excludes the memory of long names.
    [[nodiscard]] std::size_t bytes() const { return bytes_of(columns_, rows_, terms_); }
    [[nodiscard]] index_range<variable> all_variables() const { return index_range<variable>{variables()}; }
    [[nodiscard]] index_range<row> all_rows() const { return index_range<row>{rows()}; }

    [[nodiscard]] double lower(variable x) const { return at(x).lower; }
    [[nodiscard]] double upper(variable x) const { return at(x).upper; }
    [[nodiscard]] double cost(variable x) const { return at(x).cost; }
    [[nodiscard]] domain domain_of(variable x) const { return at(x).kind; }
    [[nodiscard]] bool is_integer(variable x) const { return at(x).kind == domain::integer; }
    [[nodiscard]] double offset() const { return offset_; }
    [[nodiscard]] sense direction() const { return direction_; }

    [[nodiscard]] double row_lower(row r) const { return at(r).lower; }
    [[nodiscard]] double row_upper(row r) const { return at(r).upper; }
    /// The terms, sorted by column. Each column occurs at most once. Valid until the next `add_row`.
    [[nodiscard]] std::span<const term> terms(row r) const;

    /// Names may be empty, and needn't be unique.
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] const std::string& name(variable x) const { return at(x).name; }
    [[nodiscard]] const std::string& name(row r) const { return at(r).name; }

private:
    struct column_data {
        double lower;
        double upper;
        double cost;
        domain kind;
        std::string name;
    };
    struct row_data {
        double lower;
        double upper;
        std::size_t end; ///< position after the row's last term
        std::string name;
    };

    static bool are_bounds(double lower, double upper) { return lower < infinity && upper > -infinity; }

    [[nodiscard]] std::vector<term> normalized(std::span<const term> terms) const;

    [[nodiscard]] const column_data& at(variable x) const;
    [[nodiscard]] column_data& at(variable x) { return const_cast<column_data&>(std::as_const(*this).at(x)); }
    [[nodiscard]] const row_data& at(row r) const;
    [[nodiscard]] row_data& at(row r) { return const_cast<row_data&>(std::as_const(*this).at(r)); }

    std::vector<column_data> columns_;
    std::vector<row_data> rows_;
    std::vector<term> terms_; ///< the terms of all rows, row after row
    double offset_ = 0.0;
    sense direction_ = sense::minimize;
    std::string name_;
};

/// Whether all columns of the row are integer variables, and all coefficients are integral.
[[nodiscard]] bool is_integral(const model& m, row r);

/// The variable's name. An unnamed variable gets a name from its index, such as "x7".
[[nodiscard]] std::string name_of(const model& m, variable x);
/// The row's name. An unnamed row gets a name from its index, such as "r3".
[[nodiscard]] std::string name_of(const model& m, row r);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)

#include <algorithm>
#include <cmath>

namespace optpipe::milp {

OPTPIPE_INLINE variable model::add_variable(double lower, double upper, domain kind, std::string name) {
    OPTPIPE_EXPECT(are_bounds(lower, upper), "add_variable: not the bounds of a variable");
    columns_.push_back({lower, upper, 0.0, kind, std::move(name)});
    return variable{columns_.size() - 1};
}

OPTPIPE_INLINE row model::add_row(double lower, std::span<const term> terms, double upper, std::string name) {
    OPTPIPE_EXPECT(are_bounds(lower, upper), "add_row: not the bounds of a row");
    const auto own = normalized(terms);
    terms_.insert(terms_.end(), own.begin(), own.end());
    rows_.push_back({lower, upper, terms_.size(), std::move(name)});
    return row{rows_.size() - 1};
}

OPTPIPE_INLINE row model::add_row(const constraint& c, std::string name) {
    const double constant = c.body.constant();
    return add_row(c.lower - constant, c.body.terms(), c.upper - constant, std::move(name));
}

OPTPIPE_INLINE void model::set_objective(const expression& objective, sense direction) {
    std::vector<double> costs(columns_.size(), 0.0);
    for (const auto& t : objective.terms()) {
        OPTPIPE_EXPECT(t.column.position() < columns_.size(), "set_objective: a term of no variable");
        costs[t.column.position()] += t.coefficient;
    }
    for (const double cost : costs)
        OPTPIPE_EXPECT(std::isfinite(cost), "set_objective: a cost isn't finite");
    set_offset(objective.constant());
    for (std::size_t i = 0; i < costs.size(); ++i)
        columns_[i].cost = costs[i];
    direction_ = direction;
}

OPTPIPE_INLINE void model::set_offset(double offset) {
    OPTPIPE_EXPECT(std::isfinite(offset), "set_offset: not finite");
    offset_ = offset;
}

OPTPIPE_INLINE void model::set_cost(variable x, double cost) {
    OPTPIPE_EXPECT(std::isfinite(cost), "set_cost: not finite");
    at(x).cost = cost;
}

OPTPIPE_INLINE void model::set_bounds(variable x, double lower, double upper) {
    OPTPIPE_EXPECT(are_bounds(lower, upper), "set_bounds: not the bounds of a variable");
    at(x).lower = lower;
    at(x).upper = upper;
}

OPTPIPE_INLINE void model::set_bounds(row r, double lower, double upper) {
    OPTPIPE_EXPECT(are_bounds(lower, upper), "set_bounds: not the bounds of a row");
    at(r).lower = lower;
    at(r).upper = upper;
}

OPTPIPE_INLINE std::span<const term> model::terms(row r) const {
    const auto first = r.position() == 0 ? 0 : at(r.previous()).end;
    return std::span{terms_}.subspan(first, at(r).end - first);
}

OPTPIPE_INLINE std::vector<term> model::normalized(std::span<const term> terms) const {
    for (const auto& t : terms)
        OPTPIPE_EXPECT(t.column.position() < columns_.size() && std::isfinite(t.coefficient),
                       "add_row: a term of no variable, or not finite");
    std::vector<term> own(terms.begin(), terms.end());
    const auto before = [](const term& a, const term& b) { return a.column < b.column; };
    if (!std::is_sorted(own.begin(), own.end(), before)) std::stable_sort(own.begin(), own.end(), before);
    auto kept = own.begin();
    for (auto next = own.begin(); next != own.end();) {
        auto sum = *next;
        while (++next != own.end() && next->column == sum.column)
            sum.coefficient += next->coefficient;
        OPTPIPE_EXPECT(std::isfinite(sum.coefficient), "add_row: terms of a column whose sum isn't finite");
        if (sum.coefficient != 0.0) *kept++ = sum;
    }
    own.erase(kept, own.end());
    return own;
}

OPTPIPE_INLINE const model::column_data& model::at(variable x) const {
    OPTPIPE_EXPECT(x.position() < columns_.size(), "model: there is no such variable");
    return columns_[x.position()];
}

OPTPIPE_INLINE const model::row_data& model::at(row r) const {
    OPTPIPE_EXPECT(r.position() < rows_.size(), "model: there is no such row");
    return rows_[r.position()];
}

OPTPIPE_INLINE bool is_integral(const model& m, row r) {
    const auto terms = m.terms(r);
    return std::all_of(terms.begin(), terms.end(), [&](const term& t) {
        return m.is_integer(t.column) && t.coefficient == std::round(t.coefficient);
    });
}

OPTPIPE_INLINE std::string name_of(const model& m, variable x) {
    return m.name(x).empty() ? "x" + std::to_string(x.value()) : m.name(x);
}

OPTPIPE_INLINE std::string name_of(const model& m, row r) {
    return m.name(r).empty() ? "r" + std::to_string(r.value()) : m.name(r);
}

} // namespace optpipe::milp
#endif
