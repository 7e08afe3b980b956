#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/io/escape.hpp"
#include "optpipe/io/json_tree.hpp"
#include "optpipe/io/trace_names.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// A range of a trace that shows an operation. Times are in microseconds.
struct trace_range {
    named_operation of{};
    double start = 0.0;
    double took = 0.0;
    /// Whether the times are those of work on a GPU, and not on the host.
    bool is_on_gpu = false;
    std::string process{};
};

/// Collects the ranges of operations from the events of a trace. Text outside of the events is skipped.
class trace_reader final : public nlohmann::json_sax<json> {
public:
    explicit trace_reader(const std::vector<range_pattern>& patterns) : patterns_{patterns} {}

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(std::int64_t value) override { return number(static_cast<double>(value)); }
    bool number_unsigned(std::uint64_t value) override { return number(static_cast<double>(value)); }
    bool number_float(double value, const std::string&) override { return number(value); }
    bool binary(json::binary_t&) override { return false; }
    bool string(std::string& value) override {
        if (is_in_arguments() && argument_ == "name") event_.argument_name = value;
        if (!is_in_event()) return true;
        if (field_ == "ph") event_.phase = value;
        if (field_ == "name") event_.name = value;
        if (field_ == "cat") event_.category = value;
        if (field_ == "pid") event_.process = value;
        if (field_ == "tid") event_.thread = value;
        return true;
    }
    bool key(std::string& name) override {
        if (depth_ == 1) outer_key_ = name;
        if (is_in_event()) field_ = name;
        if (is_in_arguments()) argument_ = name;
        return true;
    }
    bool start_array(std::size_t) override {
        ++depth_;
        const bool is_list = depth_ == 1 || (depth_ == 2 && is_object_ && outer_key_ == "traceEvents");
        if (is_list) list_depth_ = depth_;
        return true;
    }
    bool end_array() override {
        if (depth_ == list_depth_) list_depth_ = 0;
        --depth_;
        return true;
    }
    bool start_object(std::size_t) override {
        if (++depth_ == 1) is_object_ = true;
        if (is_in_event()) event_ = {};
        return true;
    }
    bool end_object() override {
        const bool is_good = !is_in_event() || finish_event();
        --depth_;
        return is_good;
    }
    bool parse_error(std::size_t position, const std::string&, const json::exception& why) override {
        // In Chrome's format, the bracket at the end of the list of events is optional.
        is_cut_ = list_depth_ == 1 && depth_ == 1 &&
                  std::string_view{why.what()}.find("unexpected end of input") != std::string_view::npos;
        place_ = place_in(why.what()).value_or("byte " + std::to_string(position));
        reason_ = json_reason(why.what());
        return false;
    }

    /// Throws `input_error` unless the text only lacks a closing bracket at its end. The error has the reason why the
    /// text couldn't be read.
    void refuse_unless_cut(const std::string& source) const {
        if (!is_cut_) throw input_error{source, {{place_, reason_}}};
    }
    [[nodiscard]] const std::vector<trace_range>& ranges() const { return ranges_; }
    /// Whether the process shows a plan. A trace may contain a plan next to the measurement.
    [[nodiscard]] bool is_plan(const std::string& process) const { return plans_.contains(process); }
    [[nodiscard]] std::size_t events() const { return events_; }

private:
    struct event {
        std::string phase, name, category, process, thread, argument_name;
        std::optional<double> start, took;
    };

    [[nodiscard]] bool is_in_event() const { return list_depth_ > 0 && depth_ == list_depth_ + 1; }
    [[nodiscard]] bool is_in_arguments() const {
        return list_depth_ > 0 && depth_ == list_depth_ + 2 && field_ == "args";
    }

    bool number(double value) {
        if (!is_in_event()) return true;
        if (field_ == "ts") event_.start = value;
        if (field_ == "dur") event_.took = value;
        if (field_ == "pid") event_.process = std::to_string(value);
        if (field_ == "tid") event_.thread = std::to_string(value);
        return true;
    }

    bool finish_event() {
        ++events_;
        constexpr std::string_view plan = " plan";
        if (event_.phase == "M" && event_.name == "process_name" && event_.argument_name.ends_with(plan))
            plans_.insert(event_.process);
        if (event_.phase == "X") return add_complete();
        if (event_.phase == "B") open_[{event_.process, event_.thread}].push_back(std::move(event_));
        if (event_.phase == "E") return close();
        return true;
    }
    bool add_complete() {
        const auto of = operation_named(event_.name);
        if (!of) return true;
        if (!event_.start || !event_.took || *event_.took < 0.0)
            return refuse("must have numbers ts and dur, with dur not negative");
        return add(*of, event_, *event_.took);
    }
    /// Ends the innermost range of the thread. Returns false if the range has no valid times.
    bool close() {
        auto& open = open_[{event_.process, event_.thread}];
        if (open.empty()) return true;
        const auto begun = std::move(open.back());
        open.pop_back();
        const auto of = operation_named(begun.name);
        if (!of) return true;
        if (!begun.start || !event_.start || *event_.start < *begun.start)
            return refuse("must have a number ts, no less than that of the event that begins it");
        return add(*of, begun, *event_.start - *begun.start);
    }
    bool add(const named_operation& of, const event& begun, double took) {
        ranges_.push_back({of, *begun.start, took, begun.category == "gpu_user_annotation", begun.process});
        return true;
    }
    bool refuse(const std::string& why) {
        place_ = "event " + std::to_string(events_ - 1) + " (" + printable(event_.name, 60) + ")";
        reason_ = why;
        return false;
    }

    [[nodiscard]] std::optional<named_operation> operation_named(std::string_view name) const {
        if (patterns_.empty()) return operation_in_label(name);
        for (const auto& each : patterns_)
            if (auto found = each.match(name)) return found;
        return std::nullopt;
    }
    /// The place in a parser's error message, such as "line 3, column 7".
    [[nodiscard]] static std::optional<std::string> place_in(std::string_view what) {
        constexpr std::string_view before = "parse error at ";
        const auto begin = what.find(before);
        if (begin == std::string_view::npos) return std::nullopt;
        what.remove_prefix(begin + before.size());
        return std::string{what.substr(0, what.find(':'))};
    }

    const std::vector<range_pattern>& patterns_;
    std::vector<trace_range> ranges_;
    std::set<std::string> plans_;
    /// Open ranges, by process and thread.
    std::map<std::pair<std::string, std::string>, std::vector<event>> open_;
    event event_{};
    std::string outer_key_, field_, argument_;
    std::size_t depth_ = 0;
    /// Nesting depth of the list of events; 0 outside of the list.
    std::size_t list_depth_ = 0;
    std::size_t events_ = 0;
    bool is_object_ = false;
    bool is_cut_ = false;
    std::string place_, reason_;
};

} // namespace optpipe::detail
