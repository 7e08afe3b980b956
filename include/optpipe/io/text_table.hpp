#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/standard.hpp"

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

using table_row = std::vector<std::string>;

/// Writes rows of cells in columns. The first column is aligned left, and all other columns are aligned right. The
/// first row is the heading. A row with fewer cells than the heading has a name and a sentence. The sentence may have
/// any length.
void write_table(std::ostream& out, const std::vector<table_row>& lines);

/// Escapes Markdown's characters with backslashes.
[[nodiscard]] std::string markdown_escaped(std::string_view text);

/// Writes the rows as a Markdown table for GitHub. Rows shorter than the heading become a list below the table. The
/// cells are escaped.
void write_markdown_table(std::ostream& out, const std::vector<table_row>& lines);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <ostream>

namespace optpipe {
namespace detail {

inline std::string decimal(double value, int digits) {
    std::array<char, 400> text{};
    return {text.data(),
            std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr};
}

inline std::string percent(double share) { return decimal(100.0 * share, 1) + " %"; }

inline std::string signed_percent(double share) {
    const auto text = percent(share);
    return text.front() == '-' ? text : "+" + text;
}

inline std::size_t display_width(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

inline std::string padded(const std::string& text, std::size_t width, bool left) {
    const std::string space(width - std::min(width, display_width(text)), ' ');
    return left ? text + space : space + text;
}

} // namespace detail

OPTPIPE_INLINE void write_table(std::ostream& out, const std::vector<table_row>& lines) {
    if (lines.empty()) return;
    std::vector<std::size_t> widths(lines.front().size(), 0);
    for (const auto& line : lines) {
        const bool is_sentence = line.size() < widths.size();
        for (std::size_t i = 0; i < (is_sentence ? 1 : widths.size()); ++i)
            widths[i] = std::max(widths[i], detail::display_width(line[i]));
    }
    for (const auto& line : lines) {
        const bool is_sentence = line.size() < widths.size();
        for (std::size_t i = 0; i < line.size(); ++i)
            out << (i == 0 ? "" : "  ") << detail::padded(line[i], is_sentence && i > 0 ? 0 : widths[i], i == 0);
        out << '\n';
    }
}

OPTPIPE_INLINE std::string markdown_escaped(std::string_view text) {
    constexpr std::string_view interpreted = "\\`*_[]|<>~&#$";
    std::string result;
    for (const char c : text) {
        if (interpreted.find(c) != std::string_view::npos) result += '\\';
        result += c;
    }
    return result;
}
namespace detail {

/// The rows with escaped cells. The second row is the Markdown line that aligns the columns. Leaves out rows whose
/// length differs from the heading's.
inline std::vector<table_row> markdown_rows(const std::vector<table_row>& lines) {
    std::vector<table_row> rows;
    for (const auto& line : lines) {
        if (line.size() != lines.front().size()) continue;
        rows.emplace_back();
        for (const auto& cell : line)
            rows.back().push_back(markdown_escaped(cell));
        if (rows.size() > 1) continue;
        rows.emplace_back(line.size(), "---:");
        rows.back().front() = ":---";
    }
    return rows;
}

} // namespace detail

OPTPIPE_INLINE void write_markdown_table(std::ostream& out, const std::vector<table_row>& lines) {
    if (lines.empty()) return;
    const auto rows = detail::markdown_rows(lines);
    std::vector<std::size_t> widths(lines.front().size(), 0);
    for (const auto& row : rows)
        for (std::size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], detail::display_width(row[i]));
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i)
            out << "| " << detail::padded(row[i], widths[i], i == 0) << ' ';
        out << "|\n";
    }
    bool is_first = true;
    for (const auto& line : lines) {
        if (line.size() == lines.front().size() || line.empty()) continue;
        out << (is_first ? "\n- " : "- ") << markdown_escaped(line.front());
        if (line.size() > 1) out << ": " << markdown_escaped(line[1]);
        out << '\n';
        is_first = false;
    }
}

} // namespace optpipe
#endif
