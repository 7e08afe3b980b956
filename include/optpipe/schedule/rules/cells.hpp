#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/schedule/operation.hpp"

#include <cstddef>

namespace optpipe {

/// Numbers the cells of a step, stage by stage, from 0. A cell is a pair of a stage and a microbatch.
class cell_numbering {
public:
    template <pipeline_graph Graph>
    constexpr explicit cell_numbering(const Graph& g) : stages_{g.stages()}, microbatches_{g.microbatches()} {}

    [[nodiscard]] constexpr std::size_t size() const { return stages_ * microbatches_; }
    [[nodiscard]] constexpr std::size_t operator()(stage s, microbatch m) const {
        return s.position() * microbatches_ + m.position();
    }
    [[nodiscard]] constexpr std::size_t operator()(const operation& op) const {
        return (*this)(op.stage, op.microbatch);
    }
    [[nodiscard]] constexpr stage stage_of(std::size_t cell) const { return stage{cell / microbatches_}; }

private:
    std::size_t stages_;
    std::size_t microbatches_;
};

} // namespace optpipe
