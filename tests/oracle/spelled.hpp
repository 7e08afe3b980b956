#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>

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

/// A schedule, written "0F0@0 0B0@1.5" with the starts; each operation has its full duration.
inline optpipe::schedule spelled_schedule(const optpipe::problem& p, const std::string& text) {
    optpipe::schedule result{p.graph, {}};
    std::istringstream words{text};
    for (std::string word; words >> word;) {
        const auto at = word.find('@');
        const auto op = spelled(word.substr(0, at));
        const optpipe::duration start{std::strtod(word.c_str() + at + 1, nullptr)};
        result.operations.push_back({op, start, start + duration_of(p, op)});
    }
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

} // namespace oracle
