#pragma once

#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <string_view>

/// Plans that offload, for tests of running programs: they need not be good, so they are made with little effort.
/// Compiled once, together with the builders (schedule/compiled).
struct quick_adaptive_builder {
    static constexpr std::string_view name = "adaptive";
    [[nodiscard]] optpipe::outcome<optpipe::order> operator()(const optpipe::problem& p) const;
};
inline constexpr quick_adaptive_builder quick_adaptive{};
