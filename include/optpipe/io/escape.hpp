#pragma once

#include "optpipe/core/standard.hpp"

#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace optpipe {
namespace detail {

/// The length of the UTF-8 sequence at the start of `text`; 0 if malformed.
[[nodiscard]] constexpr std::size_t utf8_length(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (text.empty()) return 0;
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i)
        if ((byte(i) & 0xC0U) != 0x80U) return 0;
    const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return overlong || surrogate || beyond ? 0 : length;
}

inline std::string hex_of(char c) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    return {digits[byte >> 4U], digits[byte & 15U]};
}

/// Whether a well-formed UTF-8 character is a control character: below U+0020, or U+007F to U+009F.
inline bool is_control(std::string_view character) {
    const auto first = static_cast<unsigned char>(character.front());
    if (first == 0xC2) return static_cast<unsigned char>(character[1]) < 0xA0;
    return first < 0x20 || first == 0x7f;
}

/// Calls `write(piece, is_well_formed)` for each character and each malformed byte.
template <class Write> void for_each_character(std::string_view text, Write write) {
    while (!text.empty()) {
        const auto length = utf8_length(text);
        write(text.substr(0, length == 0 ? 1 : length), length != 0);
        text.remove_prefix(length == 0 ? 1 : length);
    }
}

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";

} // namespace detail

/// Text for a terminal or a message. Control characters and malformed UTF-8 become `\\xNN`. The text is cut to about
/// `limit` bytes.
inline std::string printable(std::string_view text, std::size_t limit = 120) {
    std::string result;
    bool cut = text.size() > limit;
    detail::for_each_character(text.substr(0, limit), [&](std::string_view piece, bool well_formed) {
        if (result.size() >= limit || (cut && !well_formed && result.size() + 4 > limit)) {
            cut = true;
        } else if (well_formed && !detail::is_control(piece)) {
            result += piece;
        } else {
            for (const char byte : piece)
                result += "\\x" + detail::hex_of(byte);
        }
    });
    return cut ? result + "..." : result;
}

/// A JSON string literal, including the quotes. Malformed UTF-8 becomes U+FFFD.
inline std::string json_quoted(std::string_view text) {
    std::string result = "\"";
    detail::for_each_character(text, [&](std::string_view piece, bool well_formed) {
        if (!well_formed)
            result += detail::replacement_character;
        else if (piece == "\"" || piece == "\\")
            result.append("\\").append(piece);
        else if (piece == "\n")
            result += "\\n";
        else if (static_cast<unsigned char>(piece.front()) < 0x20)
            result += "\\u00" + detail::hex_of(piece.front());
        else
            result += piece;
    });
    return result + "\"";
}

/// Text for XML content and attributes. Characters that XML can't contain become U+FFFD.
inline std::string xml_escaped(std::string_view text) {
    std::string result;
    detail::for_each_character(text, [&](std::string_view piece, bool well_formed) {
        if (!well_formed || (detail::is_control(piece) && piece != "\t" && piece != "\n"))
            result += detail::replacement_character;
        else if (piece == "&")
            result += "&amp;";
        else if (piece == "<")
            result += "&lt;";
        else if (piece == ">")
            result += "&gt;";
        else if (piece == "\"")
            result += "&quot;";
        else if (piece == "'")
            result += "&#39;";
        else
            result += piece;
    });
    return result;
}

/// The number with at most `digits` digits after the point, and no trailing zeros.
inline std::string fixed_number(double value, int digits) {
    std::array<char, 400> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr;
    std::string result(text.data(), end);
    if (result.find('.') == std::string::npos) return result;
    result.erase(result.find_last_not_of('0') + 1);
    if (result.back() == '.') result.pop_back();
    return result == "-0" ? "0" : result;
}

} // namespace optpipe
