#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>

namespace optpipe {

/// When everything is there that a compute operation needs, were all stashes on the device. `end_of(operation)` is when
/// another one ends; unlimited if that isn't known, and then so is the result.
template <pipeline_graph Graph, class EndOf>
[[nodiscard]] constexpr duration input_time(const basic_problem<Graph>& p, const operation& op, const EndOf& end_of) {
    const stage s = op.stage;
    const microbatch m = op.microbatch;
    switch (op.kind) {
    case operation_kind::forward:
        return p.is_first(s) ? duration{} : end_of(forward(s.previous(), m)) + p.hop(s.previous(), s);
    case operation_kind::backward_input:
    case operation_kind::backward: {
        const auto own = end_of(forward(s, m));
        if (p.is_last(s)) return own;
        const auto gradient = std::min(end_of(backward_input(s.next(), m)), end_of(backward(s.next(), m)));
        return std::max(own, gradient + p.hop(s.next(), s));
    }
    case operation_kind::backward_weight: return end_of(backward_input(s, m));
    case operation_kind::offload:
    case operation_kind::reload: break;
    }
    return duration::unlimited();
}

} // namespace optpipe
