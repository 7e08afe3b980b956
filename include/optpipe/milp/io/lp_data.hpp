#pragma once

#include "optpipe/milp/expression.hpp"
#include "optpipe/milp/io/stated_bounds.hpp"
#include "optpipe/milp/model.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace optpipe::milp::detail {

/// A sum of terms and a constant, or just an infinite constant.
struct lp_sum {
    std::vector<term> terms;
    double constant = 0.0;
};

struct lp_column {
    std::string_view name;
    bool is_integer = false;
    bool is_binary = false;
    stated_bounds bounds{};

    /// Whether the bounds are within 0 and 1. Programs read wider bounds of a binary differently.
    [[nodiscard]] bool has_bounds_of_binary() const {
        const auto fits = [](double bound) { return bound >= 0.0 && bound <= 1.0; };
        return (!bounds.has_lower || fits(bounds.lower)) && (!bounds.has_upper || fits(bounds.upper));
    }
    [[nodiscard]] double upper() const { return is_binary && !bounds.has_upper ? 1.0 : bounds.upper; }
};

struct lp_row {
    std::string_view name;
    double lower = -infinity;
    double upper = infinity;
    std::vector<term> terms;
};

/// The contents of an LP file. Names are views of the file's text. Columns are in the order of their first occurrence.
class lp_data {
public:
    sense direction = sense::minimize;
    lp_sum objective;
    std::vector<lp_row> rows;
    std::vector<lp_column> columns;

    [[nodiscard]] variable column(std::string_view name) {
        const auto [found, is_new] = columns_by_name_.try_emplace(name, columns.size());
        if (is_new) columns.push_back({name});
        return variable{found->second};
    }

    /// Adds a row. Returns false if another row has the same name.
    [[nodiscard]] bool add(lp_row added) {
        if (!added.name.empty() && !row_names_.insert(added.name).second) return false;
        rows.push_back(std::move(added));
        return true;
    }

    [[nodiscard]] model to_model() const {
        model m;
        m.set_direction(direction);
        for (const auto& c : columns)
            m.add_variable(c.bounds.lower, c.upper(), c.is_integer ? domain::integer : domain::continuous,
                           std::string{c.name});
        for (const auto& t : objective.terms)
            m.set_cost(t.column, m.cost(t.column) + t.coefficient);
        m.set_offset(objective.constant);
        for (const auto& r : rows)
            m.add_row(r.lower, r.terms, r.upper, std::string{r.name});
        return m;
    }

private:
    std::unordered_map<std::string_view, std::size_t> columns_by_name_;
    std::unordered_set<std::string_view> row_names_;
};

} // namespace optpipe::milp::detail
