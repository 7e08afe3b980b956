#pragma once

#include "optpipe/core/standard.hpp"

#include <string_view>

namespace optpipe {

/// The text without a leading UTF-8 byte order mark. Editors on Windows begin files with this mark.
[[nodiscard]] constexpr std::string_view without_byte_order_mark(std::string_view text) {
    constexpr std::string_view mark = "\xef\xbb\xbf";
    return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

/// Whether the text begins with a byte order mark of UTF-16.
[[nodiscard]] constexpr bool is_utf16(std::string_view text) {
    return text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
}

inline constexpr std::string_view utf16_reason = "is encoded in UTF-16; save it as UTF-8";

} // namespace optpipe
