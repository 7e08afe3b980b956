#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/suggestion.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// Collects violations, at most 1000.
class violation_list {
public:
    void add(std::string place, std::string reason) {
        constexpr std::size_t most = 1000;
        if (found_.size() < most) found_.push_back({std::move(place), std::move(reason)});
    }
    [[nodiscard]] bool empty() const { return found_.empty(); }
    [[nodiscard]] const std::vector<violation>& found() const { return found_; }

private:
    std::vector<violation> found_;
};

/// Adds violations found by validation, except those in objects with an unreadable field. Validation would see default
/// values in objects with unreadable fields.
inline void add_validated(violation_list& found, const std::vector<violation>& wrong) {
    std::vector<std::string> unread;
    for (const auto& v : found.found()) {
        const auto dot = v.place.rfind('.');
        unread.push_back(dot == std::string::npos ? v.place : v.place.substr(0, dot + 1));
    }
    for (const auto& v : wrong)
        if (std::none_of(unread.begin(), unread.end(), [&](const auto& place) { return v.place.starts_with(place); }))
            found.add(v.place, v.reason);
}

inline std::string shown(const json& value) {
    switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
    case json::value_t::number_float: return format_number(value.get<double>(), 10);
    case json::value_t::string: return "\"" + printable(value.get_ref<const std::string&>(), 60) + "\"";
    case json::value_t::array: return "a list";
    case json::value_t::object: return "an object";
    case json::value_t::binary:
    case json::value_t::discarded: break;
    }
    return "no value";
}

inline std::string element_of(const std::string& list, std::size_t at) { return list + "[" + std::to_string(at) + "]"; }

inline void refuse_type(violation_list& found, const std::string& place, const char* wanted, const json& value) {
    found.add(place, "must be " + std::string{wanted} + ", is " + shown(value));
}

inline std::optional<double> read_number(const json& value, const std::string& place, violation_list& found) {
    if (value.is_number()) return value.get<double>();
    refuse_type(found, place, "a number", value);
    return std::nullopt;
}

/// Reads an integer from 0 to `most`.
inline std::optional<std::size_t> read_count(const json& value, const std::string& place, std::size_t most,
                                             violation_list& found) {
    if (!value.is_number()) {
        refuse_type(found, place, "a whole number", value);
        return std::nullopt;
    }
    const auto number = value.get<double>();
    if (number != std::floor(number)) {
        refuse_type(found, place, "a whole number", value);
    } else if (number < 0) {
        found.add(place, "must not be negative, is " + shown(value));
    } else if (number > static_cast<double>(most)) {
        found.add(place, "must be at most " + std::to_string(most) + ", is " + shown(value));
    } else {
        return static_cast<std::size_t>(number);
    }
    return std::nullopt;
}

/// The fields of one JSON object. Missing fields, and fields of the wrong type, are reported and replaced by defaults.
class fields {
public:
    fields(const json& object, std::string prefix, violation_list& found)
        : object_{&object}, prefix_{std::move(prefix)}, found_{&found} {}

    [[nodiscard]] std::string place(const char* name) const { return prefix_ + name; }
    [[nodiscard]] const json* find(const char* name) const {
        const auto at = object_->find(name);
        return at == object_->end() ? nullptr : &*at;
    }
    [[nodiscard]] const json* required(const char* name) const {
        const auto* value = find(name);
        if (!value) found_->add(place(name), "is missing");
        return value;
    }

    /// Reports unknown fields, except `note` and names that begin with "x-". `later` gives a special reason for some of
    /// the names.
    void refuse_unknown(std::initializer_list<const char*> known,
                        std::initializer_list<std::pair<const char*, const char*>> later = {}) const {
        for (auto at = object_->begin(); at != object_->end(); ++at) {
            const std::string& name = at.key();
            const auto is_known = [&](const char* other) { return name == other; };
            if (name == "note" || name.starts_with("x-") || std::any_of(known.begin(), known.end(), is_known)) continue;
            const auto* reason =
                std::find_if(later.begin(), later.end(), [&](auto each) { return name == each.first; });
            const std::vector<std::string> names{known.begin(), known.end()};
            found_->add(prefix_ + (name.empty() ? "\"\"" : printable(name, 60)),
                        reason != later.end() ? std::string{reason->second}
                                              : "is no field of this format" + suggestion(name, names));
        }
    }

    [[nodiscard]] double number(const char* name, double stand_in) const {
        const auto* value = required(name);
        return value ? read_number(*value, place(name), *found_).value_or(stand_in) : stand_in;
    }
    [[nodiscard]] double number_or(const char* name, double fallback) const {
        const auto* value = find(name);
        return value ? read_number(*value, place(name), *found_).value_or(fallback) : fallback;
    }
    /// The number in the field; empty if the field is missing or null.
    [[nodiscard]] std::optional<double> number_if_any(const char* name) const {
        const auto* value = find(name);
        return value && !value->is_null() ? read_number(*value, place(name), *found_) : std::nullopt;
    }
    [[nodiscard]] std::optional<std::size_t> count(const char* name, std::size_t most) const {
        const auto* value = required(name);
        return value ? read_count(*value, place(name), most, *found_) : std::nullopt;
    }
    [[nodiscard]] std::string string_or(const char* name, std::string fallback) const {
        const auto* value = find(name);
        if (!value) return fallback;
        if (value->is_string()) return value->get<std::string>();
        refuse_type(*found_, place(name), "a string", *value);
        return fallback;
    }
    [[nodiscard]] bool bool_or(const char* name, bool fallback) const {
        const auto* value = find(name);
        if (!value) return fallback;
        if (value->is_boolean()) return value->get<bool>();
        refuse_type(*found_, place(name), "true or false", *value);
        return fallback;
    }
    /// The chosen value; the first of `choices` if the field is missing.
    template <class Choice, std::size_t Count = 2>
    [[nodiscard]] Choice choice(const char* name,
                                const std::array<std::pair<const char*, Choice>, Count>& choices) const {
        const auto* value = find(name);
        if (!value) return choices[0].second;
        for (const auto& [text, chosen] : choices)
            if (*value == text) return chosen;
        std::string wanted;
        for (std::size_t i = 0; i < Count; ++i)
            wanted += (i == 0 ? "\"" : i + 1 < Count ? ", \"" : " or \"") + std::string{choices[i].first} + "\"";
        refuse_type(*found_, place(name), wanted.c_str(), *value);
        return choices[0].second;
    }
    /// The list in the field; null if the field is missing or isn't a list.
    [[nodiscard]] const json* list(const char* name) const {
        const auto* value = required(name);
        if (!value || value->is_array()) return value;
        refuse_type(*found_, place(name), "a list", *value);
        return nullptr;
    }

    /// The list in the field. Null if the field is missing, null, or isn't a list.
    [[nodiscard]] const json* list_if_any(const char* name) const {
        const auto* value = find(name);
        return value && !value->is_null() ? list(name) : nullptr;
    }

private:
    const json* object_;
    std::string prefix_;
    violation_list* found_;
};

/// Calls `read(fields, i)` for the object at each position i of a list. Elements that aren't objects are reported, and
/// left out. A null list has no elements.
template <class Read>
void read_objects(const json* list, const std::string& place, violation_list& found, const Read& read) {
    for (std::size_t i = 0; list && i < list->size(); ++i) {
        const auto at = element_of(place, i);
        if ((*list)[i].is_object())
            read(fields{(*list)[i], at + ".", found}, i);
        else
            refuse_type(found, at, "an object", (*list)[i]);
    }
}

/// The version of the document's format, from 1 to `newest`. An unknown format is reported, and counts as 0. A missing
/// format is reported, and counts as `newest`.
inline std::size_t format_version(const fields& top, const std::string& stem, std::size_t newest,
                                  violation_list& found) {
    const auto* value = top.find("format");
    std::string known;
    for (std::size_t version = 1; version <= newest; ++version) {
        const auto name = stem + std::to_string(version);
        if (value && *value == name) return version;
        known += (version > 1 ? " or \"" : "\"") + name + "\"";
    }
    found.add("format", (value ? "is " + shown(*value) : std::string{"is missing"}) + ", must be " + known);
    return value ? 0 : newest;
}

} // namespace optpipe::detail
