#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/storage_of_transfers.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace oracle {

/// "0F0", or "0F0:2" with its storage option.
inline optpipe::operation spelled(const std::string& text) {
    const auto colon = text.find(':');
    auto op = optpipe::parse_operation(text.substr(0, colon));
    if (!op) throw std::invalid_argument{"no operation: " + text};
    if (colon != std::string::npos)
        op->storage = static_cast<optpipe::storage_index>(std::atoi(text.c_str() + colon + 1));
    return *op;
}

/// An order, written "0F0 1F0 1B0 0B0".
inline optpipe::order spelled_order(const optpipe::problem& p, const std::string& text) {
    optpipe::order result{p.graph, {}};
    std::istringstream words{text};
    for (std::string word; words >> word;)
        result.operations.push_back(spelled(word));
    return result;
}

/// A schedule, written "0F0@0 0B0@1.5" with the starts; each operation has its full duration. Transfers need not name
/// their storage option.
inline optpipe::schedule spelled_schedule(const optpipe::problem& p, const std::string& text) {
    optpipe::schedule result{p.graph, {}};
    std::istringstream words{text};
    for (std::string word; words >> word;) {
        const auto at = word.find('@');
        const auto op = spelled(word.substr(0, at));
        const optpipe::duration start{std::strtod(word.c_str() + at + 1, nullptr)};
        result.operations.push_back({op, start, {}});
    }
    result = with_storage_of_transfers(p, std::move(result));
    for (auto& timed : result.operations)
        timed.end = timed.start + duration_of(p, timed.op);
    return result;
}

/// The inverse of `spelled_schedule`: in order of the starts, then of stages and kinds.
inline std::string spell(optpipe::schedule s) {
    using optpipe::timed_operation;
    std::sort(s.operations.begin(), s.operations.end(), [](const timed_operation& a, const timed_operation& b) {
        return a.start != b.start ? a.start < b.start : a.op < b.op;
    });
    std::string text;
    for (const auto& timed : s.operations)
        text += (text.empty() ? "" : " ") + to_string(timed.op) +
                (timed.op.storage > 0 ? ":" + std::to_string(timed.op.storage) : "") + "@" +
                optpipe::format_number(timed.start);
    return text;
}
/// The same, without the storage options that transfers imply.
inline std::string spell(const optpipe::problem& p, optpipe::schedule s) {
    auto bare = s;
    for (auto& timed : bare.operations)
        timed.op.storage = 0;
    bare = with_storage_of_transfers(p, std::move(bare));
    for (std::size_t i = 0; i < s.operations.size(); ++i)
        if (s.operations[i].op == bare.operations[i].op) s.operations[i].op.storage = 0;
    return spell(std::move(s));
}

} // namespace oracle
