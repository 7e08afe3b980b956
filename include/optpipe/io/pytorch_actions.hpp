#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace optpipe {

/// The actions of PyTorch's pipeline schedules (`torch.distributed.pipelining.schedules._ComputationType`, 2.15).
enum class pytorch_action_kind : std::uint8_t {
    forward,               ///< F
    backward_input,        ///< I
    backward_weight,       ///< W
    backward,              ///< B
    overlap,               ///< OVERLAP_F_B: runs the actions in the parentheses
    send_forward,          ///< SEND_F
    receive_forward,       ///< RECV_F
    send_backward,         ///< SEND_B
    receive_backward,      ///< RECV_B
    wait_send_forward,     ///< WAIT_SEND_F
    wait_send_backward,    ///< WAIT_SEND_B
    unshard,               ///< UNSHARD: gathers the stage's parameters under FSDP
    reshard,               ///< RESHARD
    reduce_gradients,      ///< REDUCE_GRAD: scales the gradients by the number of microbatches, and reduces them across
                           ///< data-parallel ranks
    wait_reduce_gradients, ///< WAIT_REDUCE_GRAD
};

inline constexpr std::array<std::pair<pytorch_action_kind, std::string_view>, 15> pytorch_spellings{
    {{pytorch_action_kind::forward, "F"},
     {pytorch_action_kind::backward_input, "I"},
     {pytorch_action_kind::backward_weight, "W"},
     {pytorch_action_kind::backward, "B"},
     {pytorch_action_kind::overlap, "OVERLAP_F_B"},
     {pytorch_action_kind::send_forward, "SEND_F"},
     {pytorch_action_kind::receive_forward, "RECV_F"},
     {pytorch_action_kind::send_backward, "SEND_B"},
     {pytorch_action_kind::receive_backward, "RECV_B"},
     {pytorch_action_kind::wait_send_forward, "WAIT_SEND_F"},
     {pytorch_action_kind::wait_send_backward, "WAIT_SEND_B"},
     {pytorch_action_kind::unshard, "UNSHARD"},
     {pytorch_action_kind::reshard, "RESHARD"},
     {pytorch_action_kind::reduce_gradients, "REDUCE_GRAD"},
     {pytorch_action_kind::wait_reduce_gradients, "WAIT_REDUCE_GRAD"}}};

[[nodiscard]] constexpr std::string_view spelling(pytorch_action_kind kind) {
    for (const auto& [each, text] : pytorch_spellings)
        if (each == kind) return text;
    return "?";
}

/// Whether the action is a computation. Sends, receives, waits, and actions without a microbatch aren't computations.
[[nodiscard]] constexpr bool is_compute(pytorch_action_kind kind) { return kind <= pytorch_action_kind::overlap; }

/// Whether the action concerns an entire stage, and so has no microbatch.
[[nodiscard]] constexpr bool is_of_stage(pytorch_action_kind kind) { return kind >= pytorch_action_kind::unshard; }

/// One cell of a schedule file, such as `2F0`, `3SEND_F1`, `0REDUCE_GRAD` or `(0F5;3B1)OVERLAP_F_B`.
struct pytorch_action {
    optpipe::stage stage{};
    pytorch_action_kind kind = pytorch_action_kind::forward;
    std::optional<optpipe::microbatch> microbatch{};
    /// The actions of an overlap. The overlap itself has neither stage nor microbatch.
    std::vector<pytorch_action> overlapped{};
    friend bool operator==(const pytorch_action&, const pytorch_action&) = default;
};

/// A schedule file, with one row per rank. Cells may be empty, as in PyTorch's own files.
struct pytorch_schedule {
    using row = std::vector<std::optional<pytorch_action>>;
    std::vector<row> rows{};
    friend bool operator==(const pytorch_schedule&, const pytorch_schedule&) = default;
};

namespace detail {

/// Calls `visit(action)` for each action of a row. For an overlap, calls `visit` for the actions inside it.
template <class Visit> void for_each_action(const pytorch_schedule::row& row, Visit visit) {
    for (const auto& cell : row) {
        if (!cell) continue;
        if (cell->kind == pytorch_action_kind::overlap)
            std::for_each(cell->overlapped.begin(), cell->overlapped.end(), visit);
        else
            visit(*cell);
    }
}

} // namespace detail

/// The action in PyTorch's spelling.
[[nodiscard]] std::string to_string(const pytorch_action& action);

/// The inverse of `to_string`. Spaces around the text are allowed. Empty if the text isn't an action, as with `0F0@12`
/// and `0FOO`.
[[nodiscard]] std::optional<pytorch_action> parse_pytorch_action(std::string_view text);

/// Reads a schedule file of PyTorch, with or without messages. Cells may be in quotes, and a UTF-8 byte order mark is
/// skipped. If every B has a W, each B is read as PyTorch's I, as in the papers. Throws `input_error` with the first
/// wrong cell of each row. Throws `input_error` if only some B have a W, or if the file has both an I and a B with a W.
[[nodiscard]] pytorch_schedule parse_pytorch_csv(std::string_view text, const std::string& source_name);

/// The file exactly as PyTorch's `_dump_csv` writes it.
[[nodiscard]] std::string to_csv(const pytorch_schedule& file);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/byte_order_mark.hpp"
#include "optpipe/io/escape.hpp"

#include <charconv>
#include <cstddef>
#include <set>

namespace optpipe {

OPTPIPE_INLINE std::string to_string(const pytorch_action& action) {
    if (action.kind == pytorch_action_kind::overlap) {
        std::string text;
        for (const auto& each : action.overlapped)
            text += (text.empty() ? "(" : ";") + to_string(each);
        return text + ")" + std::string{spelling(action.kind)};
    }
    return std::to_string(action.stage.value()) + std::string{spelling(action.kind)} +
           (action.microbatch ? std::to_string(action.microbatch->value()) : "");
}
namespace detail {

[[nodiscard]] inline std::string_view stripped(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Removes an index from the start of a text. Empty without a valid index at the start.
template <class Index> std::optional<Index> take_index(std::string_view& text) {
    std::uint32_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return Index{value};
}

[[nodiscard]] inline std::optional<pytorch_action> parse_single_action(std::string_view text) {
    const auto stage_index = take_index<stage>(text);
    if (!stage_index) return std::nullopt;
    const auto letters = text.substr(0, text.find_first_of("0123456789"));
    text.remove_prefix(letters.size());
    for (const auto& [kind, name] : pytorch_spellings) {
        if (letters != name || kind == pytorch_action_kind::overlap) continue;
        pytorch_action action{*stage_index, kind, {}, {}};
        if (!text.empty()) {
            action.microbatch = take_index<microbatch>(text);
            if (!action.microbatch || !text.empty()) return std::nullopt;
        } else if (!is_of_stage(kind)) {
            return std::nullopt;
        }
        return action;
    }
    return std::nullopt;
}

} // namespace detail

OPTPIPE_INLINE std::optional<pytorch_action> parse_pytorch_action(std::string_view text) {
    text = detail::stripped(text);
    if (!text.starts_with('(')) return detail::parse_single_action(text);
    const auto close = text.find(')');
    if (close == std::string_view::npos || text.substr(close + 1) != spelling(pytorch_action_kind::overlap))
        return std::nullopt;
    pytorch_action overlap{{}, pytorch_action_kind::overlap, {}, {}};
    for (auto rest = text.substr(1, close - 1);;) {
        const auto end = rest.find(';');
        auto part = detail::parse_single_action(detail::stripped(rest.substr(0, end)));
        if (!part || !is_compute(part->kind)) return std::nullopt;
        overlap.overlapped.push_back(std::move(*part));
        if (end == std::string_view::npos) return overlap;
        rest.remove_prefix(end + 1);
    }
}

namespace detail {

/// A cell without the quotes that some programs write.
[[nodiscard]] inline std::string_view unquoted(std::string_view cell) {
    cell = stripped(cell);
    const bool is_quoted = cell.size() > 1 && cell.front() == '"' && cell.back() == '"';
    return is_quoted ? stripped(cell.substr(1, cell.size() - 2)) : cell;
}

[[nodiscard]] inline std::string place_of_cell(std::size_t row, std::size_t cell) {
    return "row " + std::to_string(row) + ", cell " + std::to_string(cell);
}

/// Reads one line. Reports the first cell that isn't an action.
[[nodiscard]] inline pytorch_schedule::row parse_row(std::string_view line, std::size_t number,
                                                     std::vector<violation>& found) {
    pytorch_schedule::row row;
    for (bool more = !line.empty(); more;) {
        const auto comma = line.find(',');
        const auto cell = unquoted(line.substr(0, comma));
        more = comma != std::string_view::npos;
        if (more) line.remove_prefix(comma + 1);
        row.push_back(parse_pytorch_action(cell));
        if (row.back() || cell.empty()) continue;
        // The files of zero-bubble spell a full backward as BW.
        const bool is_whole = cell.find("BW") != std::string_view::npos;
        found.push_back({place_of_cell(number, row.size()),
                         printable(cell) + " is no action of PyTorch's, as 2F0 is" +
                             (is_whole ? "; PyTorch spells BW as B, and the B beside it as I" : "")});
        break;
    }
    return row;
}

/// Recognizes files in which B is the input gradient, as in the papers. In PyTorch, B is the full backward. A B beside
/// a W of the same stage and microbatch is an input gradient.
class old_letters {
public:
    explicit old_letters(const pytorch_schedule& file) {
        for (const auto& row : file.rows)
            for_each_action(row, [&](const pytorch_action& each) {
                if (each.kind == pytorch_action_kind::backward_weight) weights_.insert(key_of(each));
                if (each.kind == pytorch_action_kind::backward) backwards_.insert(key_of(each));
                has_inputs_ = has_inputs_ || each.kind == pytorch_action_kind::backward_input;
            });
    }

    [[nodiscard]] bool are_used() const {
        return std::any_of(backwards_.begin(), backwards_.end(), [&](const auto& each) { return has_weight(each); });
    }

    /// Replaces the papers' letters by PyTorch's. Only the first B that can't be an input gradient is reported.
    void replace(pytorch_schedule& file, std::vector<violation>& found) const {
        for (std::size_t r = 0; r < file.rows.size(); ++r)
            for (std::size_t c = 0; c < file.rows[r].size(); ++c)
                if (auto& cell = file.rows[r][c]) replace(*cell, {place_of_cell(r + 1, c + 1), {}}, found);
    }

private:
    using key = std::pair<stage, microbatch>;
    [[nodiscard]] static key key_of(const pytorch_action& action) { return {action.stage, *action.microbatch}; }
    [[nodiscard]] bool has_weight(const key& of) const { return weights_.contains(of); }

    void replace(pytorch_action& action, violation place, std::vector<violation>& found) const {
        for (auto& each : action.overlapped)
            replace(each, place, found);
        if (action.kind != pytorch_action_kind::backward) return;
        if (!has_inputs_ && has_weight(key_of(action))) {
            action.kind = pytorch_action_kind::backward_input;
            return;
        }
        place.reason = to_string(action) +
                       ": some B of the file have a W beside them, so B would be the gradient of the input, but " +
                       (has_inputs_ ? "there are I as well" : "this B has no W");
        if (found.empty()) found.push_back(std::move(place));
    }

    std::set<key> weights_{};
    std::set<key> backwards_{};
    bool has_inputs_ = false;
};

} // namespace detail

OPTPIPE_INLINE pytorch_schedule parse_pytorch_csv(std::string_view text, const std::string& source_name) {
    if (is_utf16(text)) throw input_error{source_name, {{"", std::string{utf16_reason}}}};
    text = without_byte_order_mark(text);
    pytorch_schedule file;
    std::vector<violation> found;
    while (!text.empty()) {
        const auto end = text.find('\n');
        auto line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        file.rows.push_back(detail::parse_row(line, file.rows.size() + 1, found));
    }
    if (file.rows.empty()) found.push_back({"", "is empty"});
    const detail::old_letters letters{file};
    if (letters.are_used()) letters.replace(file, found);
    if (!found.empty()) throw input_error{source_name, std::move(found)};
    return file;
}

OPTPIPE_INLINE std::string to_csv(const pytorch_schedule& file) {
    std::string text;
    for (const auto& row : file.rows) {
        for (std::size_t c = 0; c < row.size(); ++c)
            text.append(c == 0 ? "" : ",").append(row[c] ? to_string(*row[c]) : "");
        text += "\r\n";
    }
    return text;
}

} // namespace optpipe
#endif
