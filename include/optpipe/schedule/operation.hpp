#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <array>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace optpipe {

enum class operation_kind : std::uint8_t {
    forward,         ///< F
    backward_input,  ///< I
    backward_weight, ///< W
    backward,        ///< B: I and W in one operation
    offload,         ///< OFFLOAD: copies the stash to the host
    reload,          ///< RELOAD: copies it back
};

inline constexpr std::array all_operation_kinds{operation_kind::forward,         operation_kind::backward_input,
                                                operation_kind::backward_weight, operation_kind::backward,
                                                operation_kind::offload,         operation_kind::reload};

[[nodiscard]] constexpr bool is_transfer(operation_kind kind) {
    switch (kind) {
    case operation_kind::offload:
    case operation_kind::reload: return true;
    case operation_kind::forward:
    case operation_kind::backward_input:
    case operation_kind::backward_weight:
    case operation_kind::backward: return false;
    }
    return false;
}

/// Whether it hands the gradient to the stage before.
[[nodiscard]] constexpr bool is_gradient(operation_kind kind) {
    return kind == operation_kind::backward_input || kind == operation_kind::backward;
}

/// PyTorch's letters, and OFFLOAD and RELOAD.
[[nodiscard]] constexpr std::string_view spelling(operation_kind kind) {
    switch (kind) {
    case operation_kind::forward: return "F";
    case operation_kind::backward_input: return "I";
    case operation_kind::backward_weight: return "W";
    case operation_kind::backward: return "B";
    case operation_kind::offload: return "OFFLOAD";
    case operation_kind::reload: return "RELOAD";
    }
    return "?";
}

/// What runs: one kind of work of one stage on one microbatch. Spelled `<stage><KIND><microbatch>`, as `2F0`.
struct operation {
    optpipe::stage stage{};
    operation_kind kind = operation_kind::forward;
    optpipe::microbatch microbatch{};
    friend constexpr auto operator<=>(const operation&, const operation&) = default;
    friend constexpr bool operator==(const operation&,
                                     const operation&) = default; // which <=> declares, but not for nvcc
};

constexpr operation forward(stage s, microbatch m) { return {s, operation_kind::forward, m}; }
constexpr operation backward_input(stage s, microbatch m) { return {s, operation_kind::backward_input, m}; }
constexpr operation backward_weight(stage s, microbatch m) { return {s, operation_kind::backward_weight, m}; }
constexpr operation backward(stage s, microbatch m) { return {s, operation_kind::backward, m}; }
constexpr operation offload_of(stage s, microbatch m) { return {s, operation_kind::offload, m}; }
constexpr operation reload_of(stage s, microbatch m) { return {s, operation_kind::reload, m}; }

[[nodiscard]] inline std::string to_string(const operation& op) {
    return std::to_string(op.stage.value()).append(spelling(op.kind)).append(std::to_string(op.microbatch.value()));
}

/// The same, usable in constant expressions.
[[nodiscard]] constexpr bounded_text<32> spelling(const operation& op) {
    return {op.stage.value(), spelling(op.kind), op.microbatch.value()};
}

/// The inverse of `to_string`; empty for any other text.
[[nodiscard]] inline std::optional<operation> parse_operation(std::string_view text) {
    const auto* const end = text.data() + text.size();
    std::uint32_t s = 0;
    std::uint32_t m = 0;
    const auto after_stage = std::from_chars(text.data(), end, s);
    if (after_stage.ec != std::errc{}) return std::nullopt;
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto* letter_end = after_stage.ptr;
    while (letter_end != end && !is_digit(*letter_end))
        ++letter_end;
    const auto after_microbatch = std::from_chars(letter_end, end, m);
    if (after_microbatch.ec != std::errc{} || after_microbatch.ptr != end) return std::nullopt;
    const std::string_view letters(after_stage.ptr, static_cast<std::size_t>(letter_end - after_stage.ptr));
    for (const auto kind : all_operation_kinds)
        if (letters == spelling(kind)) return operation{stage{s}, kind, microbatch{m}};
    return std::nullopt;
}

/// How long it takes. A transfer of a stage that can't be offloaded has no duration: a contract.
template <pipeline_graph Graph>
[[nodiscard]] constexpr duration duration_of(const basic_problem<Graph>& p, const operation& op) {
    const auto& c = p.costs[op.stage];
    switch (op.kind) {
    case operation_kind::forward: return c.forward;
    case operation_kind::backward_input: return c.backward_input;
    case operation_kind::backward_weight: return c.backward_weight;
    case operation_kind::backward: return c.backward();
    case operation_kind::offload:
        OPTPIPE_EXPECT(c.can_offload(), "this stage can't be offloaded");
        return c.transfer->offload;
    case operation_kind::reload:
        OPTPIPE_EXPECT(c.can_offload(), "this stage can't be offloaded");
        return c.transfer->reload;
    }
    return {};
}

/// What an operation does to the memory of its rank (io/README.md, rules 7 and 8). Amounts are not negative.
struct memory_effect {
    memory_size acquired_at_start{};
    memory_size released_at_end{};
    memory_size host_acquired_at_start{};
    memory_size host_released_at_end{};
};

[[nodiscard]] constexpr memory_effect memory_effect_of(const stage_costs& c, operation_kind kind) {
    constexpr memory_size none{};
    switch (kind) {
    case operation_kind::forward: return {c.activation, none, none, none};
    case operation_kind::backward_input:
        return c.weight_stash > c.activation ? memory_effect{c.weight_stash - c.activation, none, none, none}
                                             : memory_effect{none, c.activation - c.weight_stash, none, none};
    case operation_kind::backward_weight: return {none, c.weight_stash, none, none};
    case operation_kind::backward: return {none, c.activation, none, none};
    case operation_kind::offload: return {none, c.activation, c.activation, none};
    case operation_kind::reload: return {c.activation, none, none, c.activation};
    }
    return {};
}

} // namespace optpipe
