#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// The operation that a range of a trace shows. Stage and microbatch are empty if the range's name lacks them.
struct named_operation {
    operation_kind kind = operation_kind::forward;
    std::optional<std::uint32_t> stage{};
    std::optional<std::uint32_t> microbatch{};
    friend bool operator==(const named_operation&, const named_operation&) = default;
};

/// Matches the names of ranges for one kind of operation. In the pattern, `{stage}` and `{microbatch}` stand for
/// numbers, and `*` stands for any text.
class range_pattern {
public:
    /// Reads a kind and a pattern for its names, such as "F=forward s{stage} m{microbatch}". Throws `input_error` if
    /// the text can't be read.
    [[nodiscard]] static range_pattern parse(std::string_view text, const std::string& source_name);

    [[nodiscard]] std::optional<named_operation> match(std::string_view name) const;
    [[nodiscard]] bool has_stage() const { return has(piece_kind::stage_number); }

private:
    enum class piece_kind : std::uint8_t { text, stage_number, microbatch_number, anything };
    struct piece {
        piece_kind kind = piece_kind::text;
        std::string text{};
    };

    [[nodiscard]] bool has(piece_kind kind) const;
    /// Whether the pieces from position `at` on match `rest`, the end of a name. `failed` marks combinations of `at`
    /// and `rest` that have already failed to match.
    [[nodiscard]] bool match_from(std::size_t at, std::string_view rest, std::vector<bool>& failed,
                                  named_operation& found) const;
    [[nodiscard]] bool match_piece(std::size_t at, std::string_view rest, std::vector<bool>& failed,
                                   named_operation& found) const;
    [[nodiscard]] static std::vector<piece> pieces_of(std::string_view text, const std::string& source_name);

    operation_kind kind_ = operation_kind::forward;
    std::vector<piece> pieces_{};
};

/// The operation named in a label such as "PP:2F5".
[[nodiscard]] std::optional<named_operation> operation_in_label(std::string_view name);

struct trace_options {
    /// Patterns for the names of operations. If empty, names must be labels such as "PP:2F5".
    std::vector<range_pattern> patterns{};
    /// The trace's rank, needed if patterns have no `{stage}`. If the patterns have no `{stage}`, all operations belong
    /// to the rank's only stage.
    std::optional<optpipe::rank> rank{};
    /// The executed plan, which determines the storage options. Without a plan, storage options are inferred from the
    /// trace's operations.
    const schedule* plan = nullptr;
};

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/error.hpp"
#include "optpipe/io/escape.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE std::optional<named_operation> operation_in_label(std::string_view name) {
    constexpr std::string_view prefix = "PP:";
    if (!name.starts_with(prefix)) return std::nullopt;
    const auto op = parse_operation(name.substr(prefix.size()));
    if (!op) return std::nullopt;
    return named_operation{op->kind, op->stage.value(), op->microbatch.value()};
}

OPTPIPE_INLINE range_pattern range_pattern::parse(std::string_view text, const std::string& source_name) {
    const auto equals = text.find('=');
    const auto spelled = text.substr(0, equals);
    const auto kind = std::find_if(all_operation_kinds.begin(), all_operation_kinds.end(),
                                   [&](operation_kind each) { return spelling(each) == spelled; });
    if (equals == std::string_view::npos || kind == all_operation_kinds.end())
        throw input_error{
            source_name,
            {{printable(text),
              "must be a kind (F, I, W, B, OFFLOAD, RELOAD or RECOMPUTE), =, and the name of its ranges"}}};
    range_pattern pattern;
    pattern.kind_ = *kind;
    pattern.pieces_ = pieces_of(text.substr(equals + 1), source_name);
    return pattern;
}

OPTPIPE_INLINE std::vector<range_pattern::piece> range_pattern::pieces_of(std::string_view text,
                                                                          const std::string& source_name) {
    if (text.empty()) throw input_error{source_name, {{"", "the name of the ranges is empty"}}};
    std::vector<piece> pieces;
    while (!text.empty()) {
        if (text.front() == '*') {
            pieces.push_back({piece_kind::anything, ""});
            text.remove_prefix(1);
            continue;
        }
        if (text.front() != '{') {
            const auto end = std::min(text.find_first_of("{*"), text.size());
            pieces.push_back({piece_kind::text, std::string{text.substr(0, end)}});
            text.remove_prefix(end);
            continue;
        }
        const auto end = text.find('}');
        const auto name = text.substr(0, end == std::string_view::npos ? end : end + 1);
        if (name != "{stage}" && name != "{microbatch}")
            throw input_error{source_name, {{printable(name), "must be {stage} or {microbatch}"}}};
        pieces.push_back({name == "{stage}" ? piece_kind::stage_number : piece_kind::microbatch_number, ""});
        text.remove_prefix(name.size());
    }
    return pieces;
}

OPTPIPE_INLINE std::optional<named_operation> range_pattern::match(std::string_view name) const {
    constexpr std::size_t most = 1000; // longer names don't match
    named_operation found;
    found.kind = kind_;
    if (name.size() > most) return std::nullopt;
    std::vector<bool> failed((pieces_.size() + 1) * (name.size() + 1), false);
    if (!match_from(0, name, failed, found)) return std::nullopt;
    return found;
}

OPTPIPE_INLINE bool range_pattern::has(piece_kind kind) const {
    return std::any_of(pieces_.begin(), pieces_.end(), [kind](const piece& each) { return each.kind == kind; });
}

OPTPIPE_INLINE bool range_pattern::match_from(std::size_t at, std::string_view rest, std::vector<bool>& failed,
                                              named_operation& found) const {
    if (at == pieces_.size()) return rest.empty();
    const auto state = at * (failed.size() / (pieces_.size() + 1)) + rest.size();
    if (failed[state]) return false;
    const bool is_match = match_piece(at, rest, failed, found);
    if (!is_match) failed[state] = true;
    return is_match;
}

OPTPIPE_INLINE bool range_pattern::match_piece(std::size_t at, std::string_view rest, std::vector<bool>& failed,
                                               named_operation& found) const {
    const auto& now = pieces_[at];
    const auto match_rest = [&](std::size_t length) { return match_from(at + 1, rest.substr(length), failed, found); };
    switch (now.kind) {
    case piece_kind::text: return rest.starts_with(now.text) && match_rest(now.text.size());
    case piece_kind::anything:
        for (std::size_t length = 0; length <= rest.size(); ++length)
            if (match_rest(length)) return true;
        return false;
    case piece_kind::stage_number:
    case piece_kind::microbatch_number: break;
    }
    std::uint32_t number = 0;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (failure != std::errc{}) return false;
    (now.kind == piece_kind::stage_number ? found.stage : found.microbatch) = number;
    return match_rest(static_cast<std::size_t>(end - rest.data()));
}

} // namespace optpipe
#endif
