#pragma once

#include "optpipe/milp/bytes.hpp"
#include "optpipe/milp/model.hpp"
#include "optpipe/milp/search/numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace optpipe::milp::search {

/// How the search treats a column.
enum class column_kind : unsigned char {
    continuous,
    integer,
    /// The column is continuous in the model. For any values of the integer variables, some best point is integral in
    /// this column. An implied column is treated like an integer in propagation and learning. The search never branches
    /// on an implied column.
    implied,
};

/// One term of a sparse row, packed.
struct entry {
    std::uint32_t column = 0;
    double coefficient = 0.0;
};

struct sparse_row {
    std::vector<entry> entries;
    double lower = -infinity;
    double upper = infinity;
};

/// The memory of rows or cuts, including their entries.
template <class Row> [[nodiscard]] std::size_t bytes_of_rows(const std::vector<Row>& rows) {
    std::size_t sum = bytes_of(rows);
    for (const auto& r : rows)
        sum += bytes_of(r.entries);
    return sum;
}

/// A model in the form that the search uses. The objective is minimized, names are absent, and all rows share one
/// array. Columns may have other units than in the model (`unit`).
struct problem {
    std::vector<double> lower, upper, cost;
    std::vector<column_kind> kind;
    /// For each implied column, whether its upper bound is the better value.
    std::vector<unsigned char> prefers_upper;
    /// Unit of each column: model value = `unit` · value in this problem.
    std::vector<double> unit;

    std::vector<std::size_t> row_start{0};
    std::vector<entry> entries;
    std::vector<double> row_lower, row_upper;
    /// For each row, the error of its computed sides.
    std::vector<double> row_noise;

    double offset = 0.0;
    /// -1 if the model maximizes, 1 otherwise.
    double direction = 1.0;
    /// The least step between different objectives of best points; 0 if unknown.
    double objective_step = 0.0;
    numbers tolerances;

    [[nodiscard]] std::size_t columns() const { return cost.size(); }
    [[nodiscard]] std::size_t rows() const { return row_lower.size(); }
    [[nodiscard]] std::span<const entry> row_entries(std::size_t i) const {
        return std::span{entries}.subspan(row_start[i], row_start[i + 1] - row_start[i]);
    }
    [[nodiscard]] bool is_integral(std::size_t j) const { return kind[j] != column_kind::continuous; }
    [[nodiscard]] bool is_integer(std::size_t j) const { return kind[j] == column_kind::integer; }
    [[nodiscard]] bool has(column_kind wanted) const {
        return std::find(kind.begin(), kind.end(), wanted) != kind.end();
    }
    [[nodiscard]] bool has_integers() const { return has(column_kind::integer); }
    [[nodiscard]] bool is_binary(std::size_t j) const { return is_integer(j) && lower[j] == 0.0 && upper[j] == 1.0; }

    [[nodiscard]] std::size_t bytes() const {
        return bytes_of(lower, upper, cost, kind, prefers_upper, unit, row_start, entries, row_lower, row_upper,
                        row_noise);
    }

    void add_row(std::span<const entry> terms, double low, double up, double noise = 0.0) {
        entries.insert(entries.end(), terms.begin(), terms.end());
        row_start.push_back(entries.size());
        row_lower.push_back(low);
        row_upper.push_back(up);
        row_noise.push_back(noise);
    }

    /// Objective to be minimized, without the model's offset.
    [[nodiscard]] double objective_of(std::span<const double> values) const {
        long double sum = 0.0L;
        for (std::size_t j = 0; j < columns(); ++j)
            sum += static_cast<long double>(cost[j]) * static_cast<long double>(values[j]);
        return static_cast<double>(sum);
    }

    [[nodiscard]] std::vector<double> to_model(std::span<const double> values) const {
        std::vector<double> result(values.begin(), values.end());
        for (std::size_t j = 0; j < columns(); ++j)
            result[j] = unit[j] * (is_integer(j) ? std::round(values[j]) : values[j]);
        return result;
    }
    [[nodiscard]] std::vector<double> from_model(std::span<const double> values) const {
        std::vector<double> result(values.begin(), values.end());
        for (std::size_t j = 0; j < columns(); ++j)
            result[j] = values[j] / unit[j];
        return result;
    }
    [[nodiscard]] double activity(std::size_t i, std::span<const double> values) const {
        long double sum = 0.0L;
        for (const auto& e : row_entries(i))
            sum += static_cast<long double>(e.coefficient) * static_cast<long double>(values[e.column]);
        return static_cast<double>(sum);
    }
};

[[nodiscard]] inline problem problem_of(const model& m, const numbers& tolerances = {},
                                        std::span<const double> noise = {}) {
    problem p;
    p.tolerances = tolerances;
    p.direction = m.direction() == sense::maximize ? -1.0 : 1.0;
    p.offset = m.offset();
    for (const variable x : m.all_variables()) {
        const bool is_integer = m.is_integer(x);
        p.lower.push_back(is_integer ? tolerances.rule().rounded_up(m.lower(x)) : m.lower(x));
        p.upper.push_back(is_integer ? tolerances.rule().rounded_down(m.upper(x)) : m.upper(x));
        p.cost.push_back(p.direction * m.cost(x));
        p.kind.push_back(is_integer ? column_kind::integer : column_kind::continuous);
        p.unit.push_back(1.0);
        p.prefers_upper.push_back(0);
    }
    std::vector<entry> terms;
    for (const row r : m.all_rows()) {
        terms.clear();
        for (const auto& t : m.terms(r))
            terms.push_back({t.column.value(), t.coefficient});
        const double off = noise.empty() ? 0.0 : noise[r.position()];
        const double low = m.row_lower(r), up = m.row_upper(r);
        // Widens the row if its error exceeds the search's tolerance, so that no point is lost.
        const bool widens = off > std::max(tolerances.noise_at(low), tolerances.noise_at(up));
        if (widens)
            p.add_row(terms, low - off, up + off);
        else
            p.add_row(terms, low, up, off);
    }
    return p;
}

} // namespace optpipe::milp::search
