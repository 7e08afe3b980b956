#include "changes.hpp"

#include <optpipe/core/error.hpp>
#include <optpipe/core/parse_number.hpp>
#include <optpipe/io/escape.hpp>
#include <optpipe/io/json_tree.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace program {
namespace {

using optpipe::detail::json;

/// A step on the way to a value: the name of a field, or the position in a list.
using field_step = std::variant<std::string, std::size_t>;

/// A field and its value.
struct change {
    std::string text;
    std::vector<field_step> way;
    json value;
};

[[noreturn]] void refuse_change(const std::string& text, const std::string& why) {
    throw optpipe::error{"--set " + optpipe::printable(text, 60) + ": " + why};
}

constexpr const char* usual_form = "must be FIELD=VALUE, as in microbatches=64, memory_limit[3]=40 or "
                                   "stages[2].forward=12";

/// Removes "[3]" from the start of the text.
std::size_t take_position(std::string_view& rest, const std::string& text) {
    const auto end = rest.find(']');
    if (end == std::string_view::npos) refuse_change(text, usual_form);
    const auto position = optpipe::parse_number<std::size_t>(rest.substr(1, end - 1));
    if (!position) refuse_change(text, usual_form);
    rest.remove_prefix(end + 1);
    return *position;
}

change parse_change(const std::string& text) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) refuse_change(text, usual_form);
    change parsed{text, {}, json::parse(text.substr(equals + 1), nullptr, false)};
    if (parsed.value.is_discarded()) parsed.value = text.substr(equals + 1);
    for (auto rest = std::string_view{text}.substr(0, equals); !rest.empty();) {
        if (rest.front() == '[') {
            parsed.way.emplace_back(take_position(rest, text));
            continue;
        }
        if (!parsed.way.empty() && rest.front() == '.') rest.remove_prefix(1);
        const auto name = rest.substr(0, rest.find_first_of(".["));
        if (name.empty()) refuse_change(text, usual_form);
        parsed.way.emplace_back(std::string{name});
        rest.remove_prefix(name.size());
    }
    return parsed;
}

/// Turns one value for all ranks into a list with a value for each.
void list_by_rank(json& at, std::size_t ranks) {
    if (at.is_number() || at.is_null()) at = json(ranks, at);
}

void assign(json& at, std::span<const field_step> way, const change& c, std::size_t ranks) {
    if (way.empty()) {
        at = c.value;
        return;
    }
    const auto further = way.subspan(1);
    if (const auto* position = std::get_if<std::size_t>(&way.front())) {
        list_by_rank(at, ranks);
        if (!at.is_array()) refuse_change(c.text, "there is no list to take [" + std::to_string(*position) + "] of");
        if (*position >= at.size())
            refuse_change(c.text, "there is no [" + std::to_string(*position) + "], the list has " +
                                      std::to_string(at.size()) + (at.size() == 1 ? " entry" : " entries"));
        return assign(at[*position], further, c, ranks);
    }
    if (at.is_array()) { // a field of each element
        for (auto& each : at)
            assign(each, way, c, ranks);
        return;
    }
    const auto& name = std::get<std::string>(way.front());
    if (!at.is_object() && !at.is_null()) refuse_change(c.text, "there is no object with the field " + name);
    assign(at[name], further, c, ranks);
}

} // namespace

std::string with_changes(const std::string& text, const std::string& source, const std::vector<std::string>& changes) {
    auto root = optpipe::detail::parse_json(text, source);
    if (!root.is_object()) return text;
    for (const auto& each : changes) {
        const auto parsed = parse_change(each);
        // The reader refuses a number of ranks that is missing or too large.
        constexpr std::size_t most_ranks = 4096;
        const auto given = root.find("ranks");
        const auto ranks = given != root.end() && given->is_number_unsigned() ? given->get<std::size_t>() : 0;
        assign(root, parsed.way, parsed, std::min(ranks, most_ranks));
    }
    return root.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace program
