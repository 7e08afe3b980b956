#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/milp/model.hpp"

#include <string>

namespace optpipe::milp {

/// The model in the LP format that most solvers read. The text is meant for people, and for comparisons with other
/// solvers. `parse_lp` restores the model except its name, unspellable names, and the order of columns.
[[nodiscard]] std::string model_to_lp(const model& m);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/milp/io/lp_tokens.hpp"
#include "optpipe/milp/io/written_names.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::milp {
namespace detail {

/// False for numbers, operators, exponents of numbers, and words of the format.
inline bool is_lp_name(std::string_view name) {
    constexpr std::string_view marks = "!\"#$%&(),.;?@_`'{}~";
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const auto is_allowed = [&](char c) { return is_digit(c) || is_letter(c) || marks.find(c) != marks.npos; };
    if (name.empty() || is_digit(name.front()) || name.front() == '.') return false;
    const bool is_exponent = (name.front() == 'e' || name.front() == 'E') && (name.size() == 1 || is_digit(name[1]));
    if (is_exponent) return false;
    const bool is_reserved = is_same_word(name, "free") || is_lp_infinity(name) || lp_keyword_of(name);
    return std::all_of(name.begin(), name.end(), is_allowed) && !is_reserved;
}

class lp_writer {
public:
    explicit lp_writer(const model& m) : m_{&m}, names_{names_for(m, is_lp_name)} {}

    std::string write() && {
        write_objective();
        text_ += "Subject To\n";
        for (const row r : m_->all_rows())
            write_row(r);
        text_ += "Bounds\n";
        for (const variable x : m_->all_variables())
            write_bounds(x);
        write_list("General", [](double lower, double upper) { return lower != 0.0 || upper != 1.0; });
        write_list("Binary", [](double lower, double upper) { return lower == 0.0 && upper == 1.0; });
        return std::move(text_) + "End\n";
    }

private:
    [[nodiscard]] const std::string& name(variable x) const { return names_.columns[x.position()]; }

    void write_terms(std::span<const term> terms) {
        constexpr std::size_t terms_per_line = 8; // lines are short because some readers don't read long lines
        for (std::size_t i = 0; i < terms.size(); ++i) {
            const auto& t = terms[i];
            if (i > 0 && i % terms_per_line == 0) text_ += "\n  ";
            text_ +=
                (t.coefficient < 0.0 ? " - " : " + ") + number_text(std::abs(t.coefficient)) + ' ' + name(t.column);
        }
        if (terms.empty()) text_ += " 0 " + (m_->variables() == 0 ? std::string{"none"} : names_.columns.front());
    }

    void write_objective() {
        text_ = m_->direction() == sense::maximize ? "Maximize\n " : "Minimize\n ";
        text_ += names_.new_row("COST") + ':';
        std::vector<char> is_in_row(m_->variables(), 0);
        for (const row r : m_->all_rows())
            for (const auto& t : m_->terms(r))
                is_in_row[t.column.position()] = 1;
        std::vector<term> terms;
        for (const variable x : m_->all_variables())
            if (m_->cost(x) != 0.0 || !is_in_row[x.position()]) terms.push_back({x, m_->cost(x)});
        write_terms(terms);
        if (m_->offset() != 0.0) text_ += (m_->offset() < 0.0 ? " - " : " + ") + number_text(std::abs(m_->offset()));
        text_ += '\n';
    }

    void write_row(row r) {
        const double lower = m_->row_lower(r);
        const double upper = m_->row_upper(r);
        text_ += ' ' + names_.rows[r.position()] + ':';
        const bool is_ranged = lower != upper && lower > -infinity && upper < infinity;
        if (is_ranged) text_ += ' ' + number_text(lower) + " <=";
        write_terms(m_->terms(r));
        if (lower == upper)
            text_ += " = " + number_text(lower);
        else if (upper < infinity)
            text_ += " <= " + number_text(upper);
        else
            text_ += " >= " + bound_text(lower);
        text_ += '\n';
    }

    static std::string bound_text(double bound) {
        return std::isfinite(bound) ? number_text(bound) : bound > 0.0 ? "+inf" : "-inf";
    }

    void write_bounds(variable x) {
        const double lower = m_->lower(x);
        const double upper = m_->upper(x);
        if (lower == 0.0 && upper == infinity) return;
        if (lower == -infinity && upper == infinity)
            text_ += ' ' + name(x) + " free\n";
        else if (lower == upper)
            text_ += ' ' + name(x) + " = " + number_text(lower) + '\n';
        else
            text_ += ' ' + bound_text(lower) + " <= " + name(x) + " <= " + bound_text(upper) + '\n';
    }

    template <class Wanted> void write_list(const char* section, Wanted wanted) {
        const auto before = text_.size();
        for (const variable x : m_->all_variables())
            if (m_->is_integer(x) && wanted(m_->lower(x), m_->upper(x))) text_ += ' ' + name(x) + '\n';
        if (text_.size() > before) text_.insert(before, std::string{section} + '\n');
    }

    const model* m_;
    written_names names_;
    std::string text_;
};

} // namespace detail

OPTPIPE_INLINE std::string model_to_lp(const model& m) { return detail::lp_writer{m}.write(); }

} // namespace optpipe::milp
#endif
