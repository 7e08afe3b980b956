#pragma once

#include "optpipe/milp/model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace optpipe::milp::detail {

/// The shortest text that is read as the same double.
inline std::string number_text(double value) {
    constexpr std::size_t longest = 32;
    std::array<char, longest> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// The names of columns and rows in a file. Uses the model's names if all are distinct and can be spelled. The
/// replacement names are x0, x1, … for columns and r0, r1, … for rows.
struct written_names {
    std::vector<std::string> columns;
    std::vector<std::string> rows;

    /// Appends underscores to `name` until no row has this name.
    [[nodiscard]] std::string new_row(std::string name) const {
        while (std::find(rows.begin(), rows.end(), name) != rows.end())
            name += '_';
        return name;
    }
};

template <class Usable> bool are_usable(const std::vector<std::string>& names, Usable usable) {
    std::unordered_set<std::string_view> seen;
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return usable(name) && seen.insert(name).second; });
}

template <class Usable> written_names names_for(const model& m, Usable usable) {
    written_names names;
    for (const variable x : m.all_variables())
        names.columns.push_back(name_of(m, x));
    for (const row r : m.all_rows())
        names.rows.push_back(name_of(m, r));
    if (!are_usable(names.columns, usable))
        for (std::size_t j = 0; j < names.columns.size(); ++j)
            names.columns[j] = "x" + std::to_string(j);
    if (!are_usable(names.rows, usable))
        for (std::size_t i = 0; i < names.rows.size(); ++i)
            names.rows[i] = "r" + std::to_string(i);
    return names;
}

} // namespace optpipe::milp::detail
