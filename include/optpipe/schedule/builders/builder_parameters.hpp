#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/parse_number.hpp"

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace optpipe {

/// A numeric parameter of a builder, settable by name, as in `--method gis:g=3`.
template <class Builder> struct builder_parameter {
    using member = std::size_t Builder::*; // without this name, g++ warns about nvcc's code for `number`
    std::string_view name;
    member number;
};

/// A builder with parameters. Semantics: `parameters()` lists all parameters, and each name occurs once.
template <class B> concept has_parameters = requires {
    { B::parameters()[0].number } -> std::convertible_to<std::size_t B::*>;
    { B::parameters()[0].name } -> std::convertible_to<std::string_view>;
};

namespace detail {

template <class Builder> std::string parameter_names() {
    std::string names;
    if constexpr (has_parameters<Builder>)
        for (const auto& one : Builder::parameters())
            names += (names.empty() ? "" : ", ") + std::string{one.name};
    return names;
}

template <class Builder> [[noreturn]] void refuse_parameter(std::string_view setting, const std::string& reason) {
    throw input_error{"method " + std::string{Builder::name}, {{std::string{setting}, reason}}};
}

template <class Builder> void set_parameter(Builder& build, std::string_view setting) {
    const auto equals = setting.find('=');
    const auto name = setting.substr(0, equals);
    const auto text = equals == std::string_view::npos ? std::string_view{} : setting.substr(equals + 1);
    if constexpr (has_parameters<Builder>)
        for (const auto& one : Builder::parameters()) {
            if (one.name != name) continue;
            const auto number = parse_number<std::size_t>(text);
            if (!number)
                refuse_parameter<Builder>(setting, "must be a whole number, as in " + std::string{name} + "=3");
            build.*one.number = *number;
            return;
        }
    const auto names = parameter_names<Builder>();
    refuse_parameter<Builder>(setting, names.empty() ? "it has no parameters" : "its parameters are " + names);
}

} // namespace detail

/// Sets parameters from `settings`, such as "g=3" or "chunks=2,g=4". Throws `input_error` for an unknown name or a
/// value that isn't an integer.
template <class Builder> void set_parameters(Builder& build, std::string_view settings) {
    for (;;) {
        const auto comma = settings.find(',');
        detail::set_parameter(build, settings.substr(0, comma));
        if (comma == std::string_view::npos) return;
        settings.remove_prefix(comma + 1);
    }
}

} // namespace optpipe
