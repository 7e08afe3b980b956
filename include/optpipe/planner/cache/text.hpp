#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/core/parse_number.hpp"
#include "optpipe/pipeline/storage.hpp"
#include "optpipe/planner/cache/canonical.hpp"
#include "optpipe/planner/cache/entry.hpp"
#include "optpipe/planner/cache/fingerprint.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The version of the format of entries. An entry has two blocks. The first block has the version, one line per field,
/// and a checksum. The second block has the operations and their checksum. The first block is enough to tell whether an
/// entry is useful.
inline constexpr std::string_view cache_format = "optpipe.plan/3";

namespace detail {

inline std::string cache_numbers(std::string_view name, const std::vector<double>& values) {
    std::string line{name};
    for (const double value : values)
        line += ' ' + exact_number(value);
    return line + '\n';
}

/// A line of an entry, with a list of counts.
inline std::string cache_counts(std::string_view name, const std::vector<std::size_t>& values) {
    std::string line{name};
    for (const auto value : values)
        line += ' ' + std::to_string(value);
    return line + '\n';
}

/// The numbers of all storage options. Each stage has the number of its options, and then the numbers of each option.
inline std::vector<double> numbers_of(const std::vector<canonical_options>& storage) {
    std::vector<double> numbers;
    for (const auto& options : storage) {
        numbers.push_back(static_cast<double>(options.size()));
        for (const auto& option : options)
            for (const double value : option.numbers())
                numbers.push_back(value);
    }
    return numbers;
}
/// The inverse of `numbers_of`. Empty for all lists that `numbers_of` can't return.
inline std::optional<std::vector<canonical_options>> storage_of_numbers(const std::vector<double>& numbers) {
    std::vector<canonical_options> storage;
    for (auto rest = std::span{numbers}; !rest.empty();) {
        const double count = rest.front();
        rest = rest.subspan(1);
        if (!(count <= static_cast<double>(most_storage_options)) || count != std::floor(count)) return std::nullopt;
        auto& options = storage.emplace_back(static_cast<std::size_t>(count));
        if (rest.size() < options.size() * canonical_option::size) return std::nullopt;
        for (auto& option : options) {
            option = {rest[0], rest[1], rest[2], rest[3], rest[4], rest[5]};
            rest = rest.subspan(canonical_option::size);
        }
    }
    return storage;
}

/// Examples: "0F0", "0F0:2" with storage option 2, and "0F0+" and "0F0+:2" for a part of a pair.
inline std::string cache_word(const operation& op) {
    const auto word = op.is_paired ? to_string(op) + '+' : to_string(op);
    return op.storage == 0 ? word : word + ':' + std::to_string(op.storage);
}
/// The inverse of `cache_word`. Empty if the problem has no operation and option with this word.
inline std::optional<operation> parse_cache_word(std::string_view word, const canonical_problem& of) {
    const auto colon = std::min(word.find(':'), word.size());
    auto name = word.substr(0, colon);
    const bool is_paired = name.ends_with('+') && of.has_pairs();
    if (is_paired) name.remove_suffix(1);
    auto op = parse_operation(name);
    if (op) op->is_paired = is_paired;
    if (!op || op->stage.position() >= of.stages || op->microbatch.position() >= of.microbatches) return std::nullopt;
    if (colon == word.size()) return op;
    op->storage = parse_number<storage_index>(word.substr(colon + 1)).value_or(0);
    return op->storage > 0 && op->storage < of.storage[op->stage.position()].size() ? op : std::nullopt;
}

inline std::string with_checksum(std::string block) {
    fingerprint print;
    print.add(block);
    return std::move(block) + "checksum " + print.text() + '\n';
}

/// Reads lines of words. After the first error, all further reads fail.
class cache_reader {
public:
    explicit cache_reader(std::string_view text) : all_{text}, rest_{text} {}

    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] std::size_t position() const { return all_.size() - rest_.size(); }
    [[nodiscard]] bool at_end() const { return rest_.empty(); }

    std::string_view line() {
        const auto end = rest_.find('\n');
        if (end == std::string_view::npos) return fail();
        const auto result = rest_.substr(0, end);
        rest_.remove_prefix(end + 1);
        return result;
    }
    /// Reads a line that begins with `name`, and returns the rest of the line.
    std::string_view field(std::string_view name) {
        const auto text = line();
        if (text.size() < name.size() || text.substr(0, name.size()) != name) return fail();
        if (text.size() == name.size()) return text.substr(name.size());
        return text[name.size()] == ' ' ? text.substr(name.size() + 1) : fail();
    }
    /// Reads a nonnegative number, which may be infinite.
    double number(std::string_view word) {
        const auto value = parse_number<double>(word);
        if (!value || !(*value >= 0.0)) fail();
        return value.value_or(0.0);
    }
    std::size_t count(std::string_view word) {
        const auto value = parse_number<std::size_t>(word);
        if (!value) fail();
        return value.value_or(0);
    }
    std::vector<double> numbers(std::string_view name) {
        std::vector<double> values;
        for (auto words = field(name); !words.empty() && !failed_;)
            values.push_back(number(next_word(words)));
        return values;
    }
    std::vector<std::size_t> counts(std::string_view name) {
        std::vector<std::size_t> values;
        for (auto words = field(name); !words.empty() && !failed_;)
            values.push_back(count(next_word(words)));
        return values;
    }
    static std::string_view next_word(std::string_view& words) {
        const auto space = words.find(' ');
        const auto word = words.substr(0, space);
        words.remove_prefix(space == std::string_view::npos ? words.size() : space + 1);
        return word;
    }
    /// Reads the checksum line of the block that starts at `from`.
    void checksum(std::size_t from) {
        fingerprint print;
        print.add(all_.substr(from, position() - from));
        if (field("checksum") != print.text()) fail();
    }
    std::string_view fail() {
        failed_ = true;
        rest_ = {};
        return {};
    }

private:
    std::string_view all_;
    std::string_view rest_;
    bool failed_ = false;
};

inline bool is_printable(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

inline bool makes_sense(const canonical_option& o) {
    return std::isfinite(o.held + o.transfer_size + o.recompute + o.backward_extra) &&
           std::isfinite(o.offload) == std::isfinite(o.reload);
}
/// Whether the data about differing microbatches fits the numbers of stages and microbatches.
inline bool draw_makes_sense(const canonical_problem& of) {
    std::size_t slices = 0;
    for (const auto count : of.slices)
        slices += std::min(count, of.microbatches + 1);
    const bool has_none = std::find(of.slices.begin(), of.slices.end(), std::size_t{0}) != of.slices.end();
    if (!of.slices.empty() && (has_none || slices != of.microbatches)) return false;
    if (of.factor_rows.empty()) return of.factors.empty();
    const auto rows = *std::max_element(of.factor_rows.begin(), of.factor_rows.end()) + 1;
    return of.factor_rows.size() == of.stages && rows <= of.stages &&
           of.factors.size() == factor_tables * rows * of.microbatches &&
           std::all_of(of.factors.begin(), of.factors.end(), [](double f) { return f > 0.0 && std::isfinite(f); });
}
/// Whether the fields of an entry make sense. The agreement of the shape with the other fields isn't checked. The shape
/// is wrong only in a forged file, whose plan `validate` rejects.
inline bool makes_sense(const cache_entry& e) {
    constexpr std::size_t most = 1U << 24U;
    const bool counts = e.of.stages > 0 && e.of.stages <= most && e.of.microbatches > 0 && e.of.microbatches <= most;
    const bool times = std::none_of(e.of.times.begin(), e.of.times.end(), [](double t) { return std::isinf(t); });
    const bool stashes = std::none_of(e.of.stashes.begin(), e.of.stashes.end(), [](double s) { return std::isinf(s); });
    bool storage = e.of.storage.size() == e.of.stages;
    for (const auto& options : e.of.storage)
        storage = storage && !options.empty() &&
                  std::all_of(options.begin(), options.end(), [](const auto& option) { return makes_sense(option); });
    return counts && times && stashes && storage && draw_makes_sense(e.of) && e.of.times.size() >= 3 * e.of.stages &&
           e.of.stashes.size() >= 2 * e.of.stages && e.of.host_limits.size() == e.of.limits.size() &&
           std::isfinite(e.objective) && e.bound <= e.objective && is_printable(e.of.shape) && is_printable(e.method);
}

} // namespace detail

[[nodiscard]] inline std::string to_text(const cache_entry& e) {
    std::string head{cache_format};
    head += "\nshape " + e.of.shape + "\nstages " + std::to_string(e.of.stages) + "\nmicrobatches " +
            std::to_string(e.of.microbatches) + '\n';
    head += detail::cache_numbers("times", e.of.times) + detail::cache_numbers("stashes", e.of.stashes) +
            detail::cache_numbers("limits", e.of.limits) + detail::cache_numbers("host_limits", e.of.host_limits);
    head += detail::cache_numbers("storage", detail::numbers_of(e.of.storage));
    head += detail::cache_counts("slices", e.of.slices) + detail::cache_counts("factor_rows", e.of.factor_rows) +
            detail::cache_numbers("factors", e.of.factors);
    head += "memory_scale " + exact_number(e.of.memory_scale) + '\n';
    head += "objective " + exact_number(e.objective) + "\nbound " + exact_number(e.bound) + "\nbudget " +
            exact_number(e.budget) + "\nmethod " + e.method + '\n';
    std::string body = "operations";
    for (const auto& op : e.operations)
        body += ' ' + detail::cache_word(op);
    return detail::with_checksum(std::move(head)) + detail::with_checksum(std::move(body) + '\n');
}

/// The head of an entry. The head has all fields except the operations, and the size of the head's text.
struct cache_entry_head {
    cache_entry entry{};
    std::size_t size = 0;
};
/// Reads the head of an entry. Empty if the text doesn't begin with a valid head.
[[nodiscard]] inline std::optional<cache_entry_head> parse_cache_head(std::string_view text) {
    detail::cache_reader in{text};
    cache_entry_head head;
    auto& e = head.entry;
    const auto format = in.line();
    if (format != cache_format) return std::nullopt;
    e.of.shape = in.field("shape");
    e.of.stages = in.count(in.field("stages"));
    e.of.microbatches = in.count(in.field("microbatches"));
    e.of.times = in.numbers("times");
    e.of.stashes = in.numbers("stashes");
    e.of.limits = in.numbers("limits");
    e.of.host_limits = in.numbers("host_limits");
    auto storage = detail::storage_of_numbers(in.numbers("storage"));
    if (!storage) return std::nullopt;
    e.of.storage = *std::move(storage);
    e.of.slices = in.counts("slices");
    e.of.factor_rows = in.counts("factor_rows");
    e.of.factors = in.numbers("factors");
    e.of.memory_scale = in.number(in.field("memory_scale"));
    e.objective = in.number(in.field("objective"));
    e.bound = in.number(in.field("bound"));
    e.budget = in.number(in.field("budget"));
    e.method = in.field("method");
    if (!in.failed()) in.checksum(0);
    if (in.failed() || !detail::makes_sense(e)) return std::nullopt;
    head.size = in.position();
    return head;
}

/// The inverse of `to_text`. Empty if `text` isn't the text of an entry.
[[nodiscard]] inline std::optional<cache_entry> parse_cache_entry(std::string_view text) {
    auto head = parse_cache_head(text);
    if (!head) return std::nullopt;
    const auto body = text.substr(head->size);
    detail::cache_reader in{body};
    for (auto words = in.field("operations"); !words.empty();) {
        const auto op = detail::parse_cache_word(detail::cache_reader::next_word(words), head->entry.of);
        if (!op) return std::nullopt;
        head->entry.operations.push_back(*op);
    }
    if (!in.failed()) in.checksum(0);
    if (in.failed() || !in.at_end()) return std::nullopt;
    return std::move(head->entry);
}

} // namespace optpipe
