#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/milp/io/mps_format.hpp"
#include "optpipe/milp/model.hpp"

#include <string>
#include <string_view>

namespace optpipe::milp {

/// Reads a model from a text in MPS format. The known sections are NAME, OBJSENSE, OBJNAME, ROWS, LAZYCONS, USERCUTS,
/// COLUMNS with integer markers, RHS, RANGES and BOUNDS. LAZYCONS and USERCUTS are read as rows. A right-hand side of
/// the objective is subtracted from the objective. Additional N rows are free rows. Only the first set of right-hand
/// sides, ranges or bounds counts. `$` in the place of a name starts a comment, and a UTF-8 byte order mark is skipped.
/// Throws `input_error` with the line if the text is wrong, or not a model of this library.
[[nodiscard]] model parse_mps(std::string_view text, const std::string& source,
                              mps_format format = mps_format::automatic);

/// Reads a file, which may be compressed with gzip. Throws the exceptions of `parse_mps`, and `file_error` if the file
/// can't be read.
[[nodiscard]] model read_mps(const std::string& path, mps_format format = mps_format::automatic);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/milp/io/mps_data.hpp"
#include "optpipe/milp/io/mps_fields.hpp"
#include "optpipe/milp/io/read_text.hpp"
#include "optpipe/milp/io/text_place.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace optpipe::milp {
namespace detail {

class mps_reader {
public:
    mps_reader(std::string_view text, const std::string& source, bool is_fixed)
        : text_{text}, place_{&source, 0}, is_fixed_{is_fixed} {}

    /// The number of the current line.
    [[nodiscard]] std::size_t line() const { return place_.line; }

    /// Reads the whole text. May be called only once.
    mps_data read() {
        while (section_ != section::end) {
            if (text_.empty()) {
                ++place_.line;
                place_.refuse("the file ends without ENDATA");
            }
            const auto line = next_line();
            if (trimmed(line).empty() || line.front() == '*') continue;
            if (is_blank(line.front()))
                data_line(line);
            else
                header(words_of(line));
        }
        if (!objective_name_.empty() && !data_.objective)
            place_.refuse("there is no free row " + in_quotes(objective_name_) + ", which OBJNAME names");
        return std::move(data_);
    }

private:
    enum class section : unsigned char {
        none,
        objective_sense,
        objective_name,
        rows,
        columns,
        rhs,
        ranges,
        bounds,
        end
    };

    std::string_view next_line() {
        ++place_.line;
        const auto end = text_.find('\n');
        const auto line = text_.substr(0, end);
        text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
        return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
    }

    void header(const std::vector<std::string_view>& words) {
        const auto keyword = words.front();
        constexpr struct {
            std::string_view keyword;
            section next;
        } sections[] = {{"NAME", section::none},
                        {"ROWS", section::rows},
                        {"LAZYCONS", section::rows},
                        {"USERCUTS", section::rows},
                        {"COLUMNS", section::columns},
                        {"RHS", section::rhs},
                        {"RANGES", section::ranges},
                        {"BOUNDS", section::bounds},
                        {"OBJSENSE", section::objective_sense},
                        {"OBJSENS", section::objective_sense},
                        {"OBJNAME", section::objective_name},
                        {"ENDATA", section::end}};
        const auto* const found =
            std::find_if(std::begin(sections), std::end(sections), [&](const auto& s) { return s.keyword == keyword; });
        if (found == std::end(sections))
            place_.refuse("the section " + in_quotes(keyword) +
                          " is none of those of a linear problem (it must start with a blank if it is data)");
        section_ = found->next;
        if (section_ == section::none) {
            if (words.size() > 1) data_.name = words[1];
            return;
        }
        const bool has_word = section_ <= section::objective_name && words.size() > 1;
        if (words.size() > (has_word ? 2U : 1U))
            place_.refuse("the header " + in_quotes(keyword) +
                          " is followed by other words (the line must start with a blank if it is data)");
        if (has_word) objective_line(words[1]);
    }

    void data_line(std::string_view line) {
        switch (section_) {
        case section::none: place_.refuse("data before the section ROWS");
        case section::objective_sense:
        case section::objective_name: return objective_line(trimmed(line));
        case section::rows: return row_line(line);
        case section::columns: return column_line(line);
        case section::rhs: return rhs_line(fields_of(line));
        case section::ranges: return range_line(fields_of(line));
        case section::bounds: return bound_line(line);
        case section::end: return;
        }
    }

    [[nodiscard]] mps_fields fields_of(std::string_view line) const {
        if (!is_fixed_) return free_fields(line, place_);
        const auto f = fixed_fields(line, place_);
        if (!f.code.empty())
            place_.refuse(in_quotes(f.code) + " is in columns 2 and 3, which only rows and bounds use");
        return f;
    }

    void objective_line(std::string_view word) {
        if (section_ == section::objective_name) {
            if (!data_.rows.empty()) place_.refuse("OBJNAME must come before ROWS");
            objective_name_ = word;
            return;
        }
        std::string upper{word};
        for (auto& c : upper)
            c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        const bool is_maximum = upper == "MAX" || upper == "MAXIMIZE" || upper == "MAXIMISE";
        if (!is_maximum && upper != "MIN" && upper != "MINIMIZE" && upper != "MINIMISE")
            place_.refuse("OBJSENSE must be MIN or MAX, is " + in_quotes(word));
        const auto direction = is_maximum ? sense::maximize : sense::minimize;
        if (std::exchange(has_direction_, true) && data_.direction != direction)
            place_.refuse("the file says both MIN and MAX");
        data_.direction = direction;
    }

    void refuse_comment_mark(std::string_view name) const {
        if (name.starts_with(comment_mark)) place_.refuse("the name " + in_quotes(name) + " is a comment elsewhere");
    }

    void row_line(std::string_view line) {
        mps_fields f;
        if (is_fixed_) {
            f = fixed_fields(line, place_);
            for (const auto& pair : f.pairs)
                if (!pair.name.empty() || !pair.number.empty()) place_.refuse("a row has a type and a name");
        } else {
            const auto words = free_words(line);
            if (words.size() != 2) place_.refuse("a row has a type and a name");
            f.code = words[0];
            f.name = words[1];
        }
        mps_row added;
        added.name = f.name;
        added.type = row_type(f.code);
        if (f.name.empty()) place_.refuse("a row has no name");
        refuse_comment_mark(f.name);
        const auto number = row_names_.add(f.name);
        if (!number) place_.refuse("there are two rows " + in_quotes(f.name));
        const bool is_objective = added.type == mps_row_type::free && !data_.objective;
        if (is_objective && (objective_name_.empty() || objective_name_ == f.name)) data_.objective = number;
        data_.rows.push_back(added);
    }

    [[nodiscard]] mps_row_type row_type(std::string_view code) const {
        if (code == "N" || code == "n") return mps_row_type::free;
        if (code == "L" || code == "l") return mps_row_type::at_most;
        if (code == "G" || code == "g") return mps_row_type::at_least;
        if (code == "E" || code == "e") return mps_row_type::equal;
        place_.refuse("the type of a row must be N, L, G or E, is " + in_quotes(code));
    }

    void column_line(std::string_view line) {
        // Programs disagree on the columns of markers, even in the fixed format.
        if (line.find("'MARKER'") != std::string_view::npos)
            if (const auto words = free_words(line); words.size() == 3 && words[1] == "'MARKER'")
                return marker(words[2]);
        const auto f = fields_of(line);
        if (f.name.empty()) place_.refuse("a column has a name, and then rows with a number each");
        if (data_.columns.empty() || data_.columns.back().name != f.name) {
            refuse_comment_mark(f.name);
            if (!column_names_.add(f.name))
                place_.refuse("column " + in_quotes(f.name) + " is there already, further up");
            mps_column added;
            added.name = f.name;
            added.is_integer = are_integer_;
            data_.columns.push_back(added);
        }
        const auto column = static_cast<std::uint32_t>(data_.columns.size() - 1);
        for_each_pair(f, [&](std::uint32_t row, std::string_view number) {
            if (data_.rows[row].last_column == column)
                place_.refuse("row " + in_quotes(data_.rows[row].name) + " is there twice in column " +
                              in_quotes(f.name));
            data_.rows[row].last_column = column;
            data_.entries.push_back({row, column, mps_number(number, place_)});
        });
    }

    void marker(std::string_view kind) {
        if (kind != "'INTORG'" && kind != "'INTEND'")
            place_.refuse("a marker must be 'INTORG' or 'INTEND', is " + in_quotes(kind));
        are_integer_ = kind == "'INTORG'";
    }

    void rhs_line(const mps_fields& f) {
        const bool counts = is_first_set(rhs_set_, f.name, "right-hand sides");
        for_each_pair(f, [&](std::uint32_t row, std::string_view number) {
            auto& r = data_.rows[row];
            const double value = mps_number(number, place_, data_.objective != row);
            if (!counts) return;
            if (r.rhs) place_.refuse("row " + in_quotes(r.name) + " has a right-hand side already");
            r.rhs = value;
            check_sides(r);
        });
    }

    void range_line(const mps_fields& f) {
        const bool counts = is_first_set(range_set_, f.name, "ranges");
        for_each_pair(f, [&](std::uint32_t row, std::string_view number) {
            auto& r = data_.rows[row];
            const double value = mps_number(number, place_, true);
            if (r.type == mps_row_type::free)
                place_.refuse("row " + in_quotes(r.name) + " is free, a range means nothing");
            if (!counts) return;
            if (r.range) place_.refuse("row " + in_quotes(r.name) + " has a range already");
            r.range = value;
            check_sides(r);
        });
    }
    void check_sides(const mps_row& r) const {
        if (!r.is_possible()) place_.refuse("row " + in_quotes(r.name) + " has an infinite side on the wrong side");
    }

    template <class Visit> void for_each_pair(const mps_fields& f, Visit visit) const {
        if (f.pairs[0].name.empty()) place_.refuse("names no row");
        for (const auto& [name, number] : f.pairs) {
            if (name.empty() && number.empty()) continue;
            if (name.empty()) place_.refuse("has the number " + in_quotes(number) + " without a name");
            if (number.empty()) place_.refuse("has the name " + in_quotes(name) + " without a number");
            const auto row = row_names_.find(name);
            if (!row) place_.refuse("there is no row " + in_quotes(name));
            visit(*row, number);
        }
    }

    /// Whether a line belongs to the first of several sets; only this set counts. Refuses lines without a set's name
    /// beside lines with one.
    bool is_first_set(std::optional<std::string_view>& first, std::string_view name, const char* what) const {
        if (!first) first = name;
        if (first->empty() != name.empty())
            place_.refuse("either all " + std::string{what} + " are in a set that has a name, or none");
        return *first == name;
    }

    struct bound {
        std::string_view kind;
        std::string_view set;
        std::string_view column;
        std::string_view number;
    };

    static bool needs_number(std::string_view kind) {
        return kind != "FR" && kind != "MI" && kind != "PL" && kind != "BV";
    }

    void check_kind(std::string_view kind) const {
        constexpr std::string_view kinds[] = {"UP", "LO", "FX", "FR", "MI", "PL", "BV", "UI", "LI"};
        if (kind == "SC" || kind == "SI" || kind == "SN") place_.refuse("semicontinuous variables can't be solved");
        if (std::find(std::begin(kinds), std::end(kinds), kind) == std::end(kinds))
            place_.refuse("there is no kind of bound " + in_quotes(kind));
    }

    [[nodiscard]] bound bound_of(std::string_view line) const {
        if (is_fixed_) {
            const auto f = fixed_fields(line, place_);
            if (!f.pairs[1].name.empty() || !f.pairs[1].number.empty()) place_.refuse("a bound has one column");
            return {f.code, f.name, f.pairs[0].name, f.pairs[0].number};
        }
        const auto w = free_words(line);
        const std::size_t most = 4;
        if (w.size() < 2 || w.size() > most)
            place_.refuse("a bound has a kind, a set, a column and a number; this has " + std::to_string(w.size()) +
                          " words");
        if (w.size() == most) return {w[0], w[1], w[2], w[3]};
        if (w.size() == 2) return {w[0], {}, w[1], {}};
        // The set's name may be missing, and so may a number that the kind of bound doesn't need.
        const bool has_number = needs_number(w[0]) || !column_names_.find(w[2]);
        return has_number ? bound{w[0], {}, w[1], w[2]} : bound{w[0], w[1], w[2], {}};
    }

    void bound_line(std::string_view line) {
        const auto b = bound_of(line);
        check_kind(b.kind);
        const auto number = column_names_.find(b.column);
        if (!number) place_.refuse("there is no column " + in_quotes(b.column));
        if (b.number.empty() && needs_number(b.kind)) place_.refuse("the bound has no number");
        const double value = b.number.empty() ? 0.0 : mps_number(b.number, place_, true);
        if (!is_first_set(bound_set_, b.set, "bounds")) return;
        auto& c = data_.columns[*number];
        set_bound(c, b.kind, value);
        if (b.kind == "BV" || b.kind == "UI" || b.kind == "LI") c.is_integer = true;
        if (c.bounds.are_misplaced())
            place_.refuse("column " + in_quotes(c.name) + " has an infinite bound on the wrong side");
    }

    static std::optional<double> stated_lower(std::string_view kind, double value) {
        if (kind == "LO" || kind == "LI" || kind == "FX") return value;
        if (kind == "MI" || kind == "FR") return -infinity;
        return kind == "BV" ? std::optional{0.0} : std::nullopt;
    }
    static std::optional<double> stated_upper(std::string_view kind, double value) {
        if (kind == "UP" || kind == "UI" || kind == "FX") return value;
        if (kind == "PL" || kind == "FR") return infinity;
        return kind == "BV" ? std::optional{1.0} : std::nullopt;
    }

    void set_bound(mps_column& c, std::string_view kind, double value) const {
        const auto lower = stated_lower(kind, value);
        const auto upper = stated_upper(kind, value);
        if (lower && !c.bounds.set_lower(*lower))
            place_.refuse("column " + in_quotes(c.name) + " has another lower bound already");
        if (upper && !c.bounds.set_upper(*upper))
            place_.refuse("column " + in_quotes(c.name) + " has another upper bound already");
    }

    std::string_view text_;
    text_place place_;
    bool is_fixed_;
    section section_ = section::none;
    mps_data data_;
    mps_names row_names_;
    mps_names column_names_;
    std::string_view objective_name_;
    bool has_direction_ = false;
    bool are_integer_ = false;
    std::optional<std::string_view> rhs_set_;
    std::optional<std::string_view> range_set_;
    std::optional<std::string_view> bound_set_;
};

/// Reads a text in the given format. If no reader accepts the text, the error comes from the reader that got further.
inline mps_data read_mps_data(std::string_view text, const std::string& source, mps_format format) {
    mps_reader as_fixed{text, source, true};
    if (format == mps_format::fixed) return as_fixed.read();
    mps_reader as_free{text, source, false};
    if (format == mps_format::free) return as_free.read();
    try {
        return as_free.read();
    } catch (const input_error&) {
        try {
            return as_fixed.read();
        } catch (const input_error&) {
            if (as_fixed.line() > as_free.line()) throw;
        }
        throw;
    }
}

} // namespace detail

OPTPIPE_INLINE model parse_mps(std::string_view text, const std::string& source, mps_format format) {
    return detail::read_mps_data(detail::model_text(text, source), source, format).to_model();
}

OPTPIPE_INLINE model read_mps(const std::string& path, mps_format format) {
    constexpr std::size_t most_shown = 400;
    return parse_mps(read_text(path), detail::shown(path, most_shown), format);
}

} // namespace optpipe::milp
#endif
