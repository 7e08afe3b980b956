#pragma once

#include "optpipe/milp/io/stated_bounds.hpp"
#include "optpipe/milp/model.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace optpipe::milp::detail {

/// Gives numbers to the names of rows or columns.
class mps_names {
public:
    /// Adds a name and returns its number. Returns nothing if the name already has a number.
    std::optional<std::uint32_t> add(std::string_view name) {
        const auto number = static_cast<std::uint32_t>(numbers_.size());
        if (!numbers_.try_emplace(name, number).second) return std::nullopt;
        return number;
    }
    [[nodiscard]] std::optional<std::uint32_t> find(std::string_view name) const {
        const auto found = numbers_.find(name);
        return found == numbers_.end() ? std::nullopt : std::optional{found->second};
    }

private:
    std::unordered_map<std::string_view, std::uint32_t> numbers_;
};

enum class mps_row_type : unsigned char { free, at_most, at_least, equal };

struct mps_row {
    std::string_view name;
    mps_row_type type = mps_row_type::free;
    std::optional<double> rhs;
    std::optional<double> range;
    std::uint32_t last_column = ~std::uint32_t{0}; ///< the last column that has an entry in the row

    [[nodiscard]] double lower() const {
        const double at = rhs.value_or(0.0);
        switch (type) {
        case mps_row_type::free: return -infinity;
        case mps_row_type::at_most: return range ? at - std::abs(*range) : -infinity;
        case mps_row_type::at_least: return at;
        case mps_row_type::equal: return range && *range < 0.0 ? at + *range : at;
        }
        return -infinity;
    }
    [[nodiscard]] double upper() const {
        const double at = rhs.value_or(0.0);
        switch (type) {
        case mps_row_type::free: return infinity;
        case mps_row_type::at_most: return at;
        case mps_row_type::at_least: return range ? at + std::abs(*range) : infinity;
        case mps_row_type::equal: return range && *range > 0.0 ? at + *range : at;
        }
        return infinity;
    }
    /// Whether the row's sides can be satisfied: the lower side isn't +infinity, and the upper side isn't -infinity.
    [[nodiscard]] bool is_possible() const { return lower() < infinity && upper() > -infinity; }
};

struct mps_column {
    std::string_view name;
    bool is_integer = false;
    stated_bounds bounds{};

    /// The lower bound. By an old convention of MPS, a negative upper bound alone removes the lower bound of 0.
    [[nodiscard]] double lower() const { return bounds.upper < 0.0 && !bounds.has_lower ? -infinity : bounds.lower; }
    /// The upper bound. A column without bounds in the file is between 0 and infinity. By an old convention, an integer
    /// column without bounds is between 0 and 1.
    [[nodiscard]] double upper() const { return is_integer && !bounds.is_stated() ? 1.0 : bounds.upper; }
};

struct mps_entry {
    std::uint32_t row;
    std::uint32_t column;
    double value;
};

/// The contents of an MPS file. Names are views of the file's text.
struct mps_data {
    std::string_view name;
    sense direction = sense::minimize;
    std::optional<std::uint32_t> objective; ///< the number of the first free row
    std::vector<mps_row> rows;
    std::vector<mps_column> columns;
    std::vector<mps_entry> entries;

    [[nodiscard]] model to_model() const {
        model m;
        m.set_name(std::string{name});
        m.set_direction(direction);
        for (const auto& c : columns)
            m.add_variable(c.lower(), c.upper(), c.is_integer ? domain::integer : domain::continuous,
                           std::string{c.name});
        const auto starts = row_starts();
        const auto terms = terms_by_row(starts);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::span<const term> of_row{terms.data() + starts[i], starts[i + 1] - starts[i]};
            if (objective == i)
                set_objective(m, of_row, rows[i].rhs.value_or(0.0));
            else
                m.add_row(rows[i].lower(), of_row, rows[i].upper(), std::string{rows[i].name});
        }
        return m;
    }

private:
    static void set_objective(model& m, std::span<const term> terms, double rhs) {
        for (const auto& t : terms)
            m.set_cost(t.column, t.coefficient);
        m.set_offset(0.0 - rhs);
    }

    [[nodiscard]] std::vector<std::size_t> row_starts() const {
        std::vector<std::size_t> starts(rows.size() + 1, 0);
        for (const auto& e : entries)
            ++starts[e.row + 1];
        for (std::size_t i = 0; i < rows.size(); ++i)
            starts[i + 1] += starts[i];
        return starts;
    }

    [[nodiscard]] std::vector<term> terms_by_row(std::vector<std::size_t> next) const {
        std::vector<term> terms(entries.size());
        for (const auto& e : entries)
            terms[next[e.row]++] = {variable{e.column}, e.value};
        return terms;
    }
};

} // namespace optpipe::milp::detail
