#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/standard.hpp"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::formulation {

/// Values of variables by name. Variables that a solver doesn't list are 0.
using named_values = std::map<std::string, double, std::less<>>;

/// The values in a solver's solution file. `columns` are the names of the model's first variables. GLPK's files only
/// number the variables, and need `columns`. Throws `input_error` if the text isn't a solution file, or has no
/// solution.
[[nodiscard]] named_values parse_solution(std::string_view text, const std::string& source,
                                          const std::vector<std::string>& columns = {});

} // namespace optpipe::formulation

#if OPTPIPE_DEFINES(formulation)
#include "optpipe/core/error.hpp"
#include "optpipe/core/parse_number.hpp"

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace optpipe::formulation {
namespace detail {

/// Reads the solution files of HiGHS, CBC, GLPK (`glpsol --write`) and SCIP, and plain lists of names and values.
class solution_reader {
public:
    solution_reader(std::string_view text, std::string source, const std::vector<std::string>& columns)
        : lines_{std::string{text}}, source_{std::move(source)}, columns_{columns} {}

    named_values run() {
        std::string line;
        while (next(line))
            if (!line.empty()) break;
        if (line.empty()) refuse("is empty, not a solution file");
        if (line.find(" - objective value") != std::string::npos)
            read_cbc(line);
        else if (line.starts_with("solution status:"))
            read_scip(line);
        else if (line.starts_with("c ") || line.starts_with("s "))
            read_glpk(line);
        else if (line.starts_with("Problem:"))
            refuse("is a printed report; glpsol writes the solution with --write");
        else
            read_list(line);
        if (values_.empty()) refuse("holds no value of any variable");
        return std::move(values_);
    }

private:
    [[noreturn]] void refuse(const std::string& why) const {
        const auto place = number_ == 0 ? std::string{} : "line " + std::to_string(number_);
        throw input_error{source_, {{place, why}}};
    }
    bool next(std::string& line) {
        if (!std::getline(lines_, line)) return false;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        ++number_;
        return true;
    }
    double number_in(const std::string& text) const {
        const auto value = parse_number<double>(text);
        if (!value || !std::isfinite(*value)) refuse("'" + text.substr(0, longest_word) + "' is no number");
        return *value;
    }
    void set(const std::string& name, const std::string& value) { values_[name] = number_in(value); }

    /// Reads CBC's format: a status such as "Optimal - objective value 17.0", then lines such as " 12 x12 3.5 0".
    /// Infeasible values start with two stars.
    void read_cbc(const std::string& status) {
        if (status.find("nfeasible") != std::string::npos || status.find("nbounded") != std::string::npos)
            refuse("holds no solution: " + status.substr(0, longest_line));
        for (std::string line; next(line);) {
            if (line.starts_with("**")) refuse("CBC marks a value as infeasible");
            std::istringstream fields{line};
            std::string column, name, value;
            if (!(fields >> column)) continue;
            if (!(fields >> name >> value)) refuse("is cut off");
            set(name, value);
        }
    }
    /// Reads SCIP's format: the status, the objective, and lines such as "x12   3.5   (obj:1)".
    void read_scip(const std::string& status) {
        if (status.find("infeasible") != std::string::npos || status.find("unbounded") != std::string::npos)
            refuse("holds no solution: " + status.substr(0, longest_line));
        for (std::string line; next(line);) {
            if (line.starts_with("objective value:")) continue;
            if (line.starts_with("no solution")) refuse("holds no solution");
            read_pair(line);
        }
    }
    void read_pair(const std::string& line) {
        std::istringstream fields{line};
        std::string name, value;
        if (!(fields >> name)) return;
        if (!(fields >> value)) refuse("is cut off");
        set(name, value);
    }
    /// Reads GLPK's format: a line such as "s mip rows columns o 17", then lines such as "j 3 25.5" for column 3.
    void read_glpk(std::string line) {
        do {
            std::istringstream fields{line};
            std::string tag, first, second, third;
            fields >> tag >> first >> second >> third;
            if (tag == "s") {
                if (first != "mip") refuse("isn't the solution of an integer model");
                std::string columns, status;
                fields >> status;
                if (status != "o" && status != "f") refuse("holds no solution");
            }
            if (tag != "j") continue;
            const double position = number_in(first);
            if (!(position >= 1.0) || position != std::floor(position)) refuse("there is no column " + first);
            if (position <= static_cast<double>(columns_.size()))
                set(columns_[static_cast<std::size_t>(position) - 1], second);
        } while (next(line));
    }
    /// Reads HiGHS' format and plain lists: headings, comments, and lines such as "x12 3.5". All text after the values
    /// of the columns is ignored.
    void read_list(std::string line) {
        bool after_status = false;
        do {
            if (after_status && line != "Optimal" && line.find("nfeasible") != std::string::npos)
                refuse("holds no solution: " + line.substr(0, longest_line));
            after_status = line == "Model status";
            if (line.starts_with("# Rows") || line.starts_with("# Dual")) return;
            std::istringstream fields{line};
            std::string name, value, rest;
            const bool is_pair = fields >> name >> value && !(fields >> rest);
            if (line.empty() || line.front() == '#' || name == "Objective" || name == "Model" || name == "Feasible" ||
                name == "Optimal" || (is_pair && name == "Time"))
                continue;
            if (!is_pair) {
                if (values_.empty()) {
                    if (name == "None") refuse("holds no solution");
                    if (number_ <= first_lines) continue;
                }
                refuse("is neither a name and a value nor anything else that a solver writes");
            }
            set(name, value);
        } while (next(line));
    }

    static constexpr std::size_t first_lines = 8;
    // Number of characters quoted in a message.
    static constexpr std::size_t longest_word = 40;
    static constexpr std::size_t longest_line = 80;

    std::istringstream lines_;
    std::string source_;
    const std::vector<std::string>& columns_;
    std::size_t number_ = 0;
    named_values values_;
};

} // namespace detail

OPTPIPE_INLINE named_values parse_solution(std::string_view text, const std::string& source,
                                           const std::vector<std::string>& columns) {
    return detail::solution_reader{text, source, columns}.run();
}

} // namespace optpipe::formulation
#endif
