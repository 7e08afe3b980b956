#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/milp/model.hpp"

#include <string>

namespace optpipe::milp {

/// The model in the free MPS format. `parse_mps` restores the model except unspellable names, and the last digit of
/// ranged rows' sides.
[[nodiscard]] std::string model_to_mps(const model& m);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/milp/io/written_names.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::milp {
namespace detail {

inline bool is_mps_name(std::string_view name) {
    const auto is_letter = [](char c) { return c > ' ' && c <= '~'; };
    return !name.empty() && name.front() != '$' && name.front() != '\'' &&
           std::all_of(name.begin(), name.end(), is_letter);
}

/// A row as MPS represents it. A row whose two sides exclude each other becomes two rows.
struct mps_written_row {
    row source;
    std::string name;
    char type;
    double rhs;
    double range;
};

class mps_writer {
public:
    explicit mps_writer(const model& m) : m_{&m}, names_{names_for(m, is_mps_name)} {
        objective_ = names_.new_row("COST");
        for (const row r : m.all_rows())
            add_row(r);
    }

    std::string write() && {
        if (is_mps_name(m_->name()))
            text_ = "NAME " + m_->name() + "\n";
        else
            text_ = "NAME\n";
        if (m_->direction() == sense::maximize) text_ += "OBJSENSE\n MAX\n";
        text_ += "ROWS\n N " + objective_ + '\n';
        for (const auto& r : rows_)
            text_.append(" ").append(1, r.type).append(" ").append(r.name).append("\n");
        write_columns();
        write_row_numbers("RHS", 0.0 - m_->offset(), [](const auto& r) { return r.rhs; });
        write_row_numbers("RANGES", 0.0, [](const auto& r) { return r.range; });
        write_bounds();
        return std::move(text_) + "ENDATA\n";
    }

private:
    void add_row(row r) {
        const double lower = m_->row_lower(r);
        const double upper = m_->row_upper(r);
        const auto& name = names_.rows[r.position()];
        if (lower == -infinity && upper == infinity) {
            rows_.push_back({r, name, 'N', 0.0, 0.0});
        } else if (lower == upper) {
            rows_.push_back({r, name, 'E', lower, 0.0});
        } else if (lower == -infinity) {
            rows_.push_back({r, name, 'L', upper, 0.0});
        } else if (upper == infinity) {
            rows_.push_back({r, name, 'G', lower, 0.0});
        } else if (lower > upper) {
            rows_.push_back({r, name, 'G', lower, 0.0});
            rows_.push_back({r, names_.new_row(name + "_upper"), 'L', upper, 0.0});
        } else {
            // A reader computes the second side of the row from the written side and the range. The lower side is
            // written if `lower + range` is exactly `upper`.
            const double range = upper - lower;
            const bool from_below = lower + range == upper;
            rows_.push_back({r, name, from_below ? 'G' : 'L', from_below ? lower : upper, range});
        }
    }

    /// Writes a line. Short names use the columns of the fixed format, because some readers need this for bounds.
    void line(std::string_view code, std::string_view set, std::string_view name, std::string_view number) {
        constexpr std::size_t name_width = 8;
        const auto padded = [&](std::string_view text, std::size_t width) {
            text_.append(text).append(text.size() < width ? width - text.size() : 0, ' ');
        };
        text_ += ' ';
        padded(code, 2);
        text_ += ' ';
        padded(set, name_width);
        text_ += "  ";
        padded(name, number.empty() ? 0 : name_width);
        if (!number.empty()) text_.append("  ").append(number);
        text_ += '\n';
    }
    void line(std::string_view code, std::string_view set, std::string_view name, double value) {
        line(code, set, name, number_text(value));
    }

    void write_columns() {
        struct entry {
            std::size_t row;
            double value;
        };
        std::vector<std::vector<entry>> entries(m_->variables());
        for (std::size_t i = 0; i < rows_.size(); ++i)
            for (const auto& t : m_->terms(rows_[i].source))
                entries[t.column.position()].push_back({i, t.coefficient});
        text_ += "COLUMNS\n";
        bool are_integer = false;
        for (const variable x : m_->all_variables()) {
            if (std::exchange(are_integer, m_->is_integer(x)) != are_integer)
                text_ += are_integer ? " M 'MARKER' 'INTORG'\n" : " M 'MARKER' 'INTEND'\n";
            const auto& name = names_.columns[x.position()];
            const auto& own = entries[x.position()];
            if (m_->cost(x) != 0.0 || own.empty()) line("", name, objective_, m_->cost(x));
            for (const auto& e : own)
                line("", name, rows_[e.row].name, e.value);
        }
        if (are_integer) text_ += " M 'MARKER' 'INTEND'\n";
    }

    template <class Number> void write_row_numbers(std::string section, double of_objective, Number number) {
        const auto before = text_.size();
        if (of_objective != 0.0) line("", section, objective_, of_objective);
        for (const auto& r : rows_)
            if (number(r) != 0.0) line("", section, r.name, number(r));
        // Some readers need the section RHS even if all right-hand sides are 0.
        if (text_.size() > before || section == "RHS") text_.insert(before, section + "\n");
    }

    void write_bounds() {
        const auto before = text_.size();
        for (const variable x : m_->all_variables())
            write_bounds_of(x);
        if (text_.size() > before) text_.insert(before, "BOUNDS\n");
    }

    void write_bounds_of(variable x) {
        const double lower = m_->lower(x);
        const double upper = m_->upper(x);
        const auto& name = names_.columns[x.position()];
        const auto bare = [&](std::string_view kind) { line(kind, "BND", name, std::string_view{}); };
        if (lower == -infinity && upper == infinity) return bare("FR");
        if (lower == upper) return line("FX", "BND", name, lower);
        if (m_->is_integer(x) && lower == 0.0 && upper == 1.0) return bare("BV");
        if (lower == -infinity)
            bare("MI");
        else if (lower != 0.0 || upper < 0.0)
            line("LO", "BND", name, lower);
        if (upper != infinity)
            line("UP", "BND", name, upper);
        else if (m_->is_integer(x))
            bare("PL");
    }

    const model* m_;
    written_names names_;
    std::string objective_;
    std::vector<mps_written_row> rows_;
    std::string text_;
};

} // namespace detail

OPTPIPE_INLINE std::string model_to_mps(const model& m) { return detail::mps_writer{m}.write(); }

} // namespace optpipe::milp
#endif
