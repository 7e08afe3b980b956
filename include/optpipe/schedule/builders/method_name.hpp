#pragma once

#include "optpipe/core/standard.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace optpipe {

/// The settings after a method's name and a colon, separated by commas, as in "g=3,storage=full". In the name of a
/// storage option, a comma is written `\,` and a backslash is written `\\`.
struct method_settings {
    /// All settings except `storage`, for `set_parameters`.
    std::optional<std::string> parameters{};
    std::optional<std::string> storage{};
};

/// The name of a builder that uses one storage option throughout, such as "1f1b:storage=full". `parse_method_settings`
/// reads the option from the name.
[[nodiscard]] inline std::string method_with_storage(std::string_view method, std::string_view option) {
    auto text = std::string{method} + ":storage=";
    for (const char c : option) {
        if (c == ',' || c == '\\') text += '\\';
        text += c;
    }
    return text;
}

namespace detail {

/// Removes a setting, up to the next comma, from the start of the text. Returns the setting without its escapes.
[[nodiscard]] inline std::string take_setting(std::string_view& rest) {
    std::string setting;
    std::size_t at = 0;
    for (; at < rest.size() && rest[at] != ','; ++at) {
        const bool is_escape =
            rest[at] == '\\' && at + 1 < rest.size() && (rest[at + 1] == ',' || rest[at + 1] == '\\');
        if (is_escape) ++at;
        setting += rest[at];
    }
    rest.remove_prefix(at);
    return setting;
}

} // namespace detail

[[nodiscard]] inline method_settings parse_method_settings(std::string_view text) {
    constexpr std::string_view storage = "storage=";
    method_settings result;
    for (;;) {
        const auto one = detail::take_setting(text);
        if (one.starts_with(storage))
            result.storage = one.substr(storage.size());
        else
            result.parameters = result.parameters ? *result.parameters + "," + one : one;
        if (text.empty()) return result;
        text.remove_prefix(1);
    }
}

} // namespace optpipe
