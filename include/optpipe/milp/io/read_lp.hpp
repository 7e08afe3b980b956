#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/milp/model.hpp"

#include <string>
#include <string_view>

namespace optpipe::milp {

/// Reads a model from a text in CPLEX's LP format. Accepts constants in objectives, rows (also `a <= x + y <= b`, lazy
/// constraints and user cuts), bounds, and general and binary variables. A row may be reversed (`2 >= x`). Rows, bounds
/// and section keywords begin on new lines. A column with only a negative upper bound has the lower bound 0. A UTF-8
/// byte order mark is skipped. Throws `input_error` with the line if the text is wrong or not linear.
[[nodiscard]] model parse_lp(std::string_view text, const std::string& source);

/// Reads a file, which may be compressed with gzip. Throws the exceptions of `parse_lp`, and `file_error` if the file
/// can't be read.
[[nodiscard]] model read_lp(const std::string& path);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/milp/io/lp_data.hpp"
#include "optpipe/milp/io/lp_tokens.hpp"
#include "optpipe/milp/io/read_text.hpp"
#include "optpipe/milp/io/text_place.hpp"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

namespace optpipe::milp {
namespace detail {

class lp_reader {
public:
    lp_reader(std::string_view text, const std::string& source)
        : tokens_{text, source}, source_{&source}, token_{tokens_.next()}, following_{tokens_.next()} {}

    lp_data read() && {
        if (!is_section(lp_section::minimize) && !is_section(lp_section::maximize))
            refuse("the file must begin with Minimize or Maximize, begins with " + shown_token());
        data_.direction = is_section(lp_section::maximize) ? sense::maximize : sense::minimize;
        advance();
        read_objective();
        while (!is_section(lp_section::end))
            read_section();
        return std::move(data_);
    }

private:
    using kind = lp_token_kind;

    [[nodiscard]] bool is(kind wanted) const { return token_.kind == wanted; }
    [[nodiscard]] bool is_section(lp_section wanted) const { return is(kind::keyword) && token_.section == wanted; }
    [[nodiscard]] bool is_at_end() const { return is(kind::keyword) || is(kind::end_of_text); }
    [[nodiscard]] bool is_relation() const { return is(kind::at_most) || is(kind::at_least) || is(kind::equal); }
    [[nodiscard]] bool is_sign() const { return is(kind::plus) || is(kind::minus); }

    lp_token advance() { return std::exchange(token_, std::exchange(following_, tokens_.next())); }

    [[nodiscard]] text_place place() const { return {source_, token_.line}; }
    [[nodiscard]] std::string shown_token() const {
        return is(kind::end_of_text) ? "the end of the file" : in_quotes(token_.text);
    }
    [[noreturn]] void refuse(std::string reason) const { place().refuse(std::move(reason)); }

    /// Refuses the current token. The error gives `reason`, or says that the text isn't linear.
    [[noreturn]] void refuse_token(const std::string& reason) const {
        if (is(kind::arrow)) refuse("indicator constraints can't be solved");
        if (is(kind::bracket) || is(kind::times) || is(kind::other))
            refuse("has " + shown_token() + " where a linear expression can't; what isn't linear can't be solved");
        refuse(reason);
    }

    void read_section() {
        if (is(kind::end_of_text)) refuse("the file ends without End");
        const auto section = advance().section;
        switch (section) {
        case lp_section::minimize:
        case lp_section::maximize: refuse("there is a second objective");
        case lp_section::rows: return read_all(&lp_reader::read_row);
        case lp_section::bounds: return read_all(&lp_reader::read_bound);
        case lp_section::general: return read_all(&lp_reader::read_integer);
        case lp_section::binary: return read_all(&lp_reader::read_binary);
        case lp_section::semicontinuous: return expect_none("semicontinuous variables");
        case lp_section::special_ordered_sets: return expect_none("special ordered sets");
        case lp_section::general_constraints: return expect_none("general constraints");
        case lp_section::piecewise_objective: return expect_none("piecewise linear objectives");
        case lp_section::end: return;
        }
    }
    void read_all(void (lp_reader::*read_one)()) {
        while (!is_at_end())
            (this->*read_one)();
    }
    /// Accepts a section only if it is empty.
    void expect_none(const std::string& what) const {
        if (!is_at_end()) refuse(what + " can't be solved");
    }

    /// Reads the name before a colon, if any.
    std::string_view read_label() {
        if (!is(kind::name) || following_.kind != kind::colon) return {};
        const auto name = advance().text;
        advance();
        return name;
    }

    void read_objective() {
        read_label();
        const auto first = place();
        if (!is_at_end()) data_.objective = read_sum();
        if (std::abs(data_.objective.constant) == infinity) first.refuse("the objective has an infinite constant");
        if (!is_at_end()) refuse_token("the objective has " + shown_token() + " where a sign or a section must be");
    }

    /// Reads any number of signs, and returns their product: 1 or -1.
    double read_signs() {
        double sign = 1.0;
        while (is_sign())
            if (advance().kind == kind::minus) sign = -sign;
        return sign;
    }

    /// Reads terms up to the first term without a sign.
    lp_sum read_sum() {
        lp_sum sum;
        bool is_first = true;
        for (; is_first || is_sign(); is_first = false) {
            const double sign = read_signs();
            if (is(kind::name) && is_lp_infinity(token_.text)) {
                if (!is_first) refuse("a sum has an infinite constant");
                advance();
                sum.constant = sign * infinity;
            } else {
                read_term(sum, sign, is_first);
            }
        }
        return sum;
    }

    void read_term(lp_sum& sum, double sign, bool is_first) {
        const bool has_number = is(kind::number);
        const double factor = has_number ? sign * number_of(advance(), is_first) : sign;
        const bool is_product = has_number && is(kind::times);
        if (is_product) advance();
        if (is(kind::name) && !is_lp_infinity(token_.text)) {
            if (std::abs(factor) == infinity) refuse("the coefficient of " + shown_token() + " is too large");
            sum.terms.push_back({take_variable(), factor});
        } else if (has_number && !is_product) {
            sum.constant += factor;
        } else {
            refuse_token("has " + shown_token() + " where a number or a name must be");
        }
    }

    /// Refuses names that are keywords at the start of a line.
    variable take_variable() {
        const auto name = token_.text;
        if (const auto keyword = lp_keyword_of(name); keyword && keyword->length == name.size())
            refuse("the keyword " + shown_token() + " can't be the name of a variable (it must begin a line)");
        advance();
        return data_.column(name);
    }

    [[nodiscard]] double number_of(const lp_token& token, bool or_infinite) const {
        return checked_number(token.number, token.text, {source_, token.line}, or_infinite);
    }

    double read_signed_number(const std::string& what) {
        const double sign = read_signs();
        if (is(kind::name) && is_lp_infinity(token_.text)) {
            advance();
            return sign * infinity;
        }
        if (!is(kind::number)) refuse_token(what + " must be a number, is " + shown_token());
        return sign * number_of(advance(), true);
    }

    void expect_end_of_line(const char* what) const {
        if (!is_at_end() && !token_.begins_line)
            refuse_token(std::string{what} + " ends before " + shown_token() + ", which must begin a line");
    }

    kind read_relation(const char* what) {
        if (!is_relation()) refuse_token(std::string{what} + " has " + shown_token() + " where <=, >= or = must be");
        return advance().kind;
    }

    /// Reads `sum relation number`, `number relation sum`, or `number relation sum relation number`.
    void read_row() {
        lp_row row;
        const auto first = place();
        row.name = read_label();
        auto left = read_sum();
        const auto relation = read_relation("a row");
        if (!left.terms.empty()) {
            limit(row, left, relation, read_signed_number("the right-hand side"), first);
            row.terms = std::move(left.terms);
        } else {
            auto body = read_sum();
            limit(row, body, mirrored(relation), left.constant, first);
            if (is_relation()) {
                if (relation == kind::equal || token_.kind != relation)
                    refuse("the two relations of a row must be alike, <= or >=");
                advance();
                limit(row, body, relation, read_signed_number("the right-hand side"), first);
            }
            row.terms = std::move(body.terms);
        }
        expect_end_of_line("a row");
        if (row.lower == infinity || row.upper == -infinity)
            first.refuse("the row has an infinite side on the wrong side");
        const auto name = row.name;
        if (!data_.add(std::move(row))) first.refuse("there are two rows " + in_quotes(name));
    }

    static kind mirrored(kind relation) {
        return relation == kind::at_most ? kind::at_least : relation == kind::at_least ? kind::at_most : relation;
    }

    /// Sets the sides of a row according to `body relation side`. Refuses a constant in the body, because programs
    /// disagree on its meaning.
    static void limit(lp_row& row, const lp_sum& body, kind relation, double side, const text_place& at) {
        if (body.terms.empty() || body.constant != 0.0)
            at.refuse("the body of a row must be a sum of variables, without a constant");
        if (relation != kind::at_least) row.upper = side;
        if (relation != kind::at_most) row.lower = side;
    }

    /// Reads `x free`, `x relation number`, `number relation x`, or `number relation x relation number`.
    void read_bound() {
        const auto first = place();
        std::optional<double> left;
        auto relation = kind::equal;
        if (!is(kind::name) || is_lp_infinity(token_.text)) {
            left = read_signed_number("a bound");
            relation = read_relation("a bound");
        }
        if (!is(kind::name)) refuse_token("a bound has " + shown_token() + " where a variable must be");
        auto& column = data_.columns[take_variable().position()];
        if (left) set_bound(column, mirrored(relation), *left, first);
        if (!left && is(kind::name) && is_same_word(token_.text, "free")) {
            advance();
            set_bound(column, kind::at_least, -infinity, first);
            set_bound(column, kind::at_most, infinity, first);
        } else if (!left || is_relation()) {
            const auto second = read_relation("a bound");
            if (left && (second == kind::equal || second != relation))
                first.refuse("the two relations of a bound must be alike, <= or >=");
            set_bound(column, second, read_signed_number("a bound"), first);
        }
        expect_end_of_line("a bound");
    }

    static void set_bound(lp_column& column, kind relation, double value, const text_place& at) {
        if (relation != kind::at_most && !column.bounds.set_lower(value))
            at.refuse("variable " + in_quotes(column.name) + " has another lower bound already");
        if (relation != kind::at_least && !column.bounds.set_upper(value))
            at.refuse("variable " + in_quotes(column.name) + " has another upper bound already");
        if (column.bounds.are_misplaced())
            at.refuse("variable " + in_quotes(column.name) + " has an infinite bound on the wrong side");
        check_binary(column, at);
    }
    static void check_binary(const lp_column& column, const text_place& at) {
        if (column.is_binary && !column.has_bounds_of_binary())
            at.refuse("variable " + in_quotes(column.name) + " is binary and has bounds other than 0 and 1");
    }

    lp_column& read_listed() {
        if (!is(kind::name)) refuse_token("a list of variables has " + shown_token());
        return data_.columns[take_variable().position()];
    }
    void read_integer() { read_listed().is_integer = true; }
    void read_binary() {
        const auto first = place();
        auto& column = read_listed();
        column.is_integer = true;
        column.is_binary = true;
        check_binary(column, first);
    }

    lp_tokens tokens_;
    const std::string* source_;
    lp_token token_;
    lp_token following_;
    lp_data data_;
};

} // namespace detail

OPTPIPE_INLINE model parse_lp(std::string_view text, const std::string& source) {
    return detail::lp_reader{detail::model_text(text, source), source}.read().to_model();
}

OPTPIPE_INLINE model read_lp(const std::string& path) {
    constexpr std::size_t most_shown = 400;
    return parse_lp(read_text(path), detail::shown(path, most_shown));
}

} // namespace optpipe::milp
#endif
