#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/io/escape.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::detail {

using json = nlohmann::json;

/// Limits for JSON texts. A text above a limit is refused. The limits are far above the needs of any problem.
struct json_limits {
    std::size_t depth = 64;
    std::size_t values = std::size_t{1} << 22U;
};

/// A list in the outermost object of a JSON text. The list's elements go to `element` one by one, and aren't stored.
struct streamed_list {
    std::string name;
    std::function<void(const json&)> element;
};

/// The reason in an error message of the parser, without the place.
inline std::string json_reason(std::string_view what) {
    if (const auto bracket = what.find("] "); bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
    constexpr std::string_view introduction = "syntax error while parsing ";
    if (const auto at = what.find(introduction); at < 80) what.remove_prefix(at + introduction.size());
    if (const auto dash = what.find(" - "); dash < 20) what.remove_prefix(dash + 3);
    return "isn't JSON: " + printable(what, 160);
}

/// Builds the tree of a JSON text within the limits.
class tree_builder final : public nlohmann::json_sax<json> {
public:
    tree_builder(const json_limits& limits, const streamed_list* streamed) : limits_{limits}, streamed_{streamed} {}

    bool null() override { return scalar(nullptr); }
    bool boolean(bool value) override { return scalar(value); }
    bool number_integer(std::int64_t value) override { return scalar(value); }
    bool number_unsigned(std::uint64_t value) override { return scalar(value); }
    bool number_float(double value, const std::string&) override { return scalar(value); }
    bool string(std::string& value) override { return scalar(std::move(value)); }
    bool binary(json::binary_t&) override { return false; }
    bool start_object(std::size_t) override { return start(json::object()); }
    bool end_object() override { return end(); }
    bool end_array() override { return end(); }
    bool start_array(std::size_t) override { return start(json::array()); }
    bool key(std::string& name) override {
        if (open_.back()->contains(name)) {
            failure_ = "has the field " + printable(name, 60) + " twice in one object" + place_of_open();
            return false;
        }
        key_ = std::move(name);
        if (open_.size() == 1) outer_key_ = key_;
        return true;
    }
    bool parse_error(std::size_t position, const std::string&, const json::exception& why) override {
        failed_at_ = position;
        failure_ = json_reason(why.what());
        return false;
    }

    [[nodiscard]] json& root() { return root_; }
    [[nodiscard]] const std::string& failure() const { return failure_; }
    /// The number of bytes read before the failure; empty if a limit was exceeded.
    [[nodiscard]] std::optional<std::size_t> failed_at() const { return failed_at_; }

private:
    [[nodiscard]] bool in_streamed_list() const {
        return streamed_ && open_.size() == 2 && open_.back()->is_array() && outer_key_ == streamed_->name;
    }

    /// The path of the innermost open object, such as " (stages[3])". Empty for the outermost object.
    [[nodiscard]] std::string place_of_open() const {
        std::string place;
        for (std::size_t level = 0; level + 1 < open_.size(); ++level) {
            const auto& parent = *open_[level];
            if (parent.is_array()) {
                place += "[" + std::to_string(level == 1 ? elements_ : parent.size() - 1) + "]";
                continue;
            }
            for (const auto& [name, value] : parent.items())
                if (&value == open_[level + 1]) place += (place.empty() ? "" : ".") + printable(name, 60);
        }
        return place.empty() ? place : " (" + place + ")";
    }

    json* put(json value) {
        if (open_.empty()) return &(root_ = std::move(value));
        json& parent = *open_.back();
        if (parent.is_object()) return &(parent[key_] = std::move(value));
        parent.push_back(std::move(value));
        return &parent.back();
    }

    bool count() {
        if (++values_ <= limits_.values) return true;
        failure_ = "holds more than " + std::to_string(limits_.values) + " values";
        return false;
    }

    bool scalar(json value) {
        if (!count()) return false;
        put(std::move(value));
        finish_element();
        return true;
    }

    bool start(json container) {
        if (!count()) return false;
        if (open_.size() == limits_.depth) {
            failure_ = "is nested more than " + std::to_string(limits_.depth) + " levels deep";
            return false;
        }
        open_.push_back(put(std::move(container)));
        if (open_.size() == 2) elements_ = 0;
        return true;
    }

    bool end() {
        open_.pop_back();
        finish_element();
        return true;
    }

    void finish_element() {
        if (open_.size() == 2) ++elements_;
        if (!in_streamed_list() || open_.back()->empty()) return;
        streamed_->element(open_.back()->back());
        open_.back()->clear();
        values_ = 0;
    }

    json_limits limits_;
    const streamed_list* streamed_;
    json root_;
    std::vector<json*> open_;
    std::string key_;
    std::string outer_key_;
    std::size_t values_ = 0;
    /// Number of elements read from the current list in the outermost object, including streamed elements.
    std::size_t elements_ = 0;
    std::string failure_;
    std::optional<std::size_t> failed_at_;
};

inline std::string line_and_column(std::string_view text, std::size_t bytes_read) {
    const auto before = text.substr(0, std::min(bytes_read, text.size()));
    const auto last_break = before.substr(0, before.empty() ? 0 : before.size() - 1).rfind('\n');
    const auto line = 1 + std::count(before.begin(), before.end() - (before.empty() ? 0 : 1), '\n');
    const auto column = last_break == std::string_view::npos ? before.size() : before.size() - last_break - 1;
    return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

/// Parses a JSON text. Throws `input_error` with line and column if the text isn't JSON.
inline json parse_json(std::string_view text, const std::string& source, const streamed_list* streamed = nullptr) {
    const auto refuse = [&](std::string place, std::string why) {
        throw input_error{source, {{std::move(place), std::move(why)}}};
    };
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) refuse("", "is empty, not JSON");
    // The parser would take a zero byte for the end of the text.
    if (const auto zero = text.find('\0'); zero != std::string_view::npos)
        refuse(line_and_column(text, zero + 1), "isn't JSON: holds a zero byte");
    tree_builder builder{json_limits{}, streamed};
    if (!json::sax_parse(text.begin(), text.end(), &builder))
        refuse(builder.failed_at() ? line_and_column(text, *builder.failed_at()) : "", builder.failure());
    return std::move(builder.root());
}

} // namespace optpipe::detail
