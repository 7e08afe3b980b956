#pragma once

#include "optpipe/io/svg_canvas.hpp"
#include "optpipe/io/svg_layout.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe::detail {

/// How operations are labelled in their boxes.
enum class label_manner { none, microbatch, spelled };

inline std::string label_of(const operation& op, label_manner manner) {
    switch (manner) {
    case label_manner::none: return "";
    case label_manner::microbatch: return std::to_string(op.microbatch.value());
    case label_manner::spelled: return short_spelling(op); // the full spelling, except for RECOMPUTE
    }
    return "";
}

inline std::string_view legend_name(operation_kind kind) {
    switch (kind) {
    case operation_kind::forward: return "F forward";
    case operation_kind::backward_input: return "I backward, input";
    case operation_kind::backward_weight: return "W backward, weight";
    case operation_kind::backward: return "B backward";
    case operation_kind::offload: return "offload";
    case operation_kind::reload: return "reload";
    case operation_kind::recompute: return "C recompute";
    }
    return "";
}

/// The kind and size of all labels in the figure.
struct svg_labels {
    label_manner manner = label_manner::none;
    double size = 0.0;

    [[nodiscard]] bool fit(std::string_view text, double width) const {
        constexpr double rounding = 1e-9;
        return label_size_for(width, text.size()) >= size - rounding;
    }
};

/// Chooses labels that fit into at least three quarters of the boxes.
inline svg_labels labels_of(const problem& p, const timeline& t, const svg_layout& layout, const svg_options& options) {
    std::vector<double> widths;
    std::size_t spelled = 1;
    for (const auto& lists : t.ranks)
        for (const auto& timed : lists.compute) {
            widths.push_back(layout.width_of(timed.end - timed.start));
            spelled = std::max(spelled, short_spelling(timed.op).size());
        }
    if (!options.labels || widths.empty()) return {};
    const auto quarter = widths.begin() + static_cast<std::ptrdiff_t>(widths.size() / 4);
    std::nth_element(widths.begin(), quarter, widths.end());
    const auto largest = [&](std::size_t characters) {
        return std::min(layout.most_label_size(), label_size_for(*quarter, characters));
    };
    constexpr double least_spelled = 8.5;
    constexpr double least_number = 6.0;
    if (largest(spelled) >= least_spelled) return {label_manner::spelled, largest(spelled)};
    const auto number = std::to_string(p.graph.microbatches() - 1).size();
    if (largest(number) >= least_number) return {label_manner::microbatch, largest(number)};
    return {};
}

} // namespace optpipe::detail
