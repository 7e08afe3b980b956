#pragma once

#include "optpipe/milp/io/text_place.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace optpipe::milp::detail {

enum class lp_section : unsigned char {
    minimize,
    maximize,
    rows,
    bounds,
    general,
    binary,
    semicontinuous,
    special_ordered_sets,
    general_constraints,
    piecewise_objective,
    end
};

[[nodiscard]] constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

[[nodiscard]] inline bool is_same_word(std::string_view text, std::string_view lower_case_word) {
    return std::equal(text.begin(), text.end(), lower_case_word.begin(), lower_case_word.end(),
                      [](char a, char b) { return lower_case(a) == b; });
}

[[nodiscard]] inline bool is_lp_infinity(std::string_view word) {
    return is_same_word(word, "inf") || is_same_word(word, "infinity");
}

struct lp_keyword {
    lp_section section;
    std::size_t length; ///< number of characters in the text
};

struct lp_spelling {
    std::string_view text;
    lp_section section;
};
inline constexpr lp_spelling lp_spellings[] = {
    {"minimize", lp_section::minimize},
    {"minimise", lp_section::minimize},
    {"minimum", lp_section::minimize},
    {"min", lp_section::minimize},
    {"maximize", lp_section::maximize},
    {"maximise", lp_section::maximize},
    {"maximum", lp_section::maximize},
    {"max", lp_section::maximize},
    {"subject to", lp_section::rows},
    {"such that", lp_section::rows},
    {"st", lp_section::rows},
    {"st.", lp_section::rows},
    {"s.t.", lp_section::rows},
    {"lazy constraints", lp_section::rows},
    {"user cuts", lp_section::rows},
    {"bounds", lp_section::bounds},
    {"bound", lp_section::bounds},
    {"generals", lp_section::general},
    {"general", lp_section::general},
    {"gen", lp_section::general},
    {"integers", lp_section::general},
    {"integer", lp_section::general},
    {"int", lp_section::general},
    {"binaries", lp_section::binary},
    {"binary", lp_section::binary},
    {"bin", lp_section::binary},
    {"semi-continuous", lp_section::semicontinuous},
    {"semis", lp_section::semicontinuous},
    {"semi", lp_section::semicontinuous},
    {"sos", lp_section::special_ordered_sets},
    {"sos1", lp_section::special_ordered_sets},
    {"sos2", lp_section::special_ordered_sets},
    {"general constraints", lp_section::general_constraints},
    {"general constraint", lp_section::general_constraints},
    {"gencons", lp_section::general_constraints},
    {"pwlobj", lp_section::piecewise_objective},
    {"end", lp_section::end},
};

/// The length of `keyword` at the start of `text`, or 0 if `text` starts otherwise. A blank in the keyword matches any
/// number of blanks.
[[nodiscard]] inline std::size_t length_of_keyword(std::string_view text, std::string_view keyword) {
    std::size_t at = 0;
    for (const char c : keyword) {
        if (at == text.size()) return 0;
        if (c != ' ' && lower_case(text[at]) != c) return 0;
        if (c == ' ' && !is_blank(text[at])) return 0;
        ++at;
        while (c == ' ' && at < text.size() && is_blank(text[at]))
            ++at;
    }
    const bool is_whole = at == text.size() || is_blank(text[at]) || text[at] == '\n' || text[at] == '\\';
    return is_whole ? at : 0;
}

/// Returns the longest keyword at the start of a line. "general constraints" must not be read as "general".
[[nodiscard]] inline std::optional<lp_keyword> lp_keyword_of(std::string_view text) {
    std::optional<lp_keyword> found;
    for (const auto& each : lp_spellings) {
        const auto length = length_of_keyword(text, each.text);
        if (length > 0 && (!found || length > found->length)) found = lp_keyword{each.section, length};
    }
    return found;
}

/// `arrow` belongs to an indicator constraint. `bracket` and `other` (power and division) occur only in nonlinear
/// expressions.
enum class lp_token_kind : unsigned char {
    end_of_text,
    keyword,
    name,
    number,
    plus,
    minus,
    times,
    colon,
    at_most,
    at_least,
    equal,
    arrow,
    bracket,
    other
};

struct lp_token {
    lp_token_kind kind = lp_token_kind::end_of_text;
    std::string_view text{};
    double number = 0.0;
    lp_section section = lp_section::end;
    std::size_t line = 0;
    bool begins_line = false;
};

/// Splits a text into tokens. Section keywords count only at the start of a line, without a colon after them.
class lp_tokens {
public:
    lp_tokens(std::string_view text, const std::string& source) : rest_{text}, source_{&source} {}

    lp_token next() {
        skip_blanks();
        lp_token token;
        token.line = line_;
        token.begins_line = begins_line_;
        if (rest_.empty()) return token;
        if (begins_line_ && read_keyword(token)) return token;
        begins_line_ = false;
        read(token);
        return token;
    }

private:
    [[nodiscard]] text_place place() const { return {source_, line_}; }

    void skip_blanks() {
        while (!rest_.empty()) {
            if (rest_.front() == '\\') rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            if (rest_.empty() || (!is_blank(rest_.front()) && rest_.front() != '\n')) return;
            if (rest_.front() == '\n') {
                ++line_;
                begins_line_ = true;
            }
            rest_.remove_prefix(1);
        }
    }

    bool read_keyword(lp_token& token) {
        const auto found = lp_keyword_of(rest_);
        if (!found) return false;
        const auto behind = rest_.substr(found->length);
        const auto next = behind.find_first_not_of(" \t");
        if (next != std::string_view::npos && behind[next] == ':') return false;
        take(token, lp_token_kind::keyword, found->length);
        token.section = found->section;
        begins_line_ = false;
        return true;
    }

    void take(lp_token& token, lp_token_kind kind, std::size_t length) {
        token.kind = kind;
        token.text = rest_.substr(0, length);
        rest_.remove_prefix(length);
    }

    void read(lp_token& token) {
        constexpr struct {
            std::string_view text;
            lp_token_kind kind;
        } marks[] = {{"<=", lp_token_kind::at_most},  {"=<", lp_token_kind::at_most}, {">=", lp_token_kind::at_least},
                     {"=>", lp_token_kind::at_least}, {"->", lp_token_kind::arrow},   {"<", lp_token_kind::at_most},
                     {">", lp_token_kind::at_least},  {"=", lp_token_kind::equal},    {"+", lp_token_kind::plus},
                     {"-", lp_token_kind::minus},     {"*", lp_token_kind::times},    {":", lp_token_kind::colon},
                     {"[", lp_token_kind::bracket},   {"]", lp_token_kind::bracket},  {"^", lp_token_kind::other},
                     {"/", lp_token_kind::other}};
        for (const auto& mark : marks)
            if (rest_.starts_with(mark.text)) return take(token, mark.kind, mark.text.size());
        const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
        const bool is_number =
            is_digit(rest_.front()) || (rest_.front() == '.' && rest_.size() > 1 && is_digit(rest_[1]));
        if (is_number) return read_number(token);
        read_name(token);
    }

    void read_number(lp_token& token) {
        const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), token.number);
        take(token, lp_token_kind::number, static_cast<std::size_t>(stop - rest_.data()));
        if (error != std::errc{}) place().refuse(in_quotes(token.text) + " is out of the range of numbers");
    }

    void read_name(lp_token& token) {
        constexpr std::string_view operators = "+-*/^:<>=\\";
        const auto is_of_name = [&](char c) { return c > ' ' && c <= '~' && operators.find(c) == operators.npos; };
        std::size_t length = 0;
        while (length < rest_.size() && is_of_name(rest_[length]))
            ++length;
        if (length == 0) place().refuse(in_quotes(rest_.substr(0, 1)) + " is no character of an LP file");
        take(token, lp_token_kind::name, length);
    }

    std::string_view rest_;
    const std::string* source_;
    std::size_t line_ = 1;
    bool begins_line_ = true;
};

} // namespace optpipe::milp::detail
