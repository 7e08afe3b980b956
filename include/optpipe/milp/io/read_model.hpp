#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/milp/model.hpp"

#include <string>
#include <string_view>

namespace optpipe::milp {

/// Reads a model from a text in LP or MPS format. The ending of `source` determines the format (.lp, .lp.gz, .mps or
/// .mps.gz). If the ending is unknown, the start of the text determines the format. Throws the exceptions of `parse_lp`
/// and `parse_mps`.
[[nodiscard]] model parse_model(std::string_view text, const std::string& source);

/// Reads a file, which may be compressed with gzip. Throws the exceptions of `parse_model`, and `file_error` if the
/// file can't be read.
[[nodiscard]] model read_model(const std::string& path);

} // namespace optpipe::milp

#if OPTPIPE_DEFINES(milp)
#include "optpipe/milp/io/lp_tokens.hpp"
#include "optpipe/milp/io/read_lp.hpp"
#include "optpipe/milp/io/read_mps.hpp"
#include "optpipe/milp/io/read_text.hpp"
#include "optpipe/milp/io/text_place.hpp"

namespace optpipe::milp {
namespace detail {

/// Whether a path ends in `ending`, or in `ending` and ".gz". Case doesn't matter.
[[nodiscard]] inline bool has_ending(std::string_view path, std::string_view ending) {
    const auto ends_in = [&](std::string_view wanted) {
        return path.size() >= wanted.size() && is_same_word(path.substr(path.size() - wanted.size()), wanted);
    };
    if (ends_in(".gz")) path.remove_suffix(3);
    return ends_in(ending);
}

/// Whether a text starts with an objective, or with a comment after a backslash.
[[nodiscard]] inline bool begins_as_lp(std::string_view text) {
    text = without_byte_order_mark(text);
    while (!text.empty() && (is_blank(text.front()) || text.front() == '\n'))
        text.remove_prefix(1);
    if (text.starts_with('\\')) return true;
    const auto keyword = lp_keyword_of(text);
    return keyword && (keyword->section == lp_section::minimize || keyword->section == lp_section::maximize);
}

inline model parse_model_of(std::string_view text, const std::string& path, const std::string& source) {
    const bool is_lp = has_ending(path, ".lp") || (!has_ending(path, ".mps") && begins_as_lp(text));
    return is_lp ? parse_lp(text, source) : parse_mps(text, source);
}

} // namespace detail

OPTPIPE_INLINE model parse_model(std::string_view text, const std::string& source) {
    return detail::parse_model_of(text, source, source);
}

OPTPIPE_INLINE model read_model(const std::string& path) {
    constexpr std::size_t most_shown = 400;
    return detail::parse_model_of(read_text(path), path, detail::shown(path, most_shown));
}

} // namespace optpipe::milp
#endif
