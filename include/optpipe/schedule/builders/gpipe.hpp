#pragma once

#include "optpipe/schedule/builders/builder.hpp"

#include <cstddef>
#include <string_view>

namespace optpipe {

/// GPipe (Huang et al., 2019): all forwards, then all full backwards, in FIFO order. Supports any placement. A rank
/// with several stages runs one stage after the other. Holds the stashes of all microbatches.
struct gpipe_builder {
    static constexpr std::string_view name = "gpipe";

    template <pipeline_graph Graph> [[nodiscard]] constexpr basic_order<Graph> operator()(const Graph& g) const {
        basic_order<Graph> result{g, {}};
        for (const stage s : g.all_stages())
            for (const microbatch m : g.all_microbatches())
                result.operations.push_back(forward(s, m));
        for (std::size_t i = g.stages(); i-- > 0;)
            for (const microbatch m : g.all_microbatches())
                result.operations.push_back(backward(stage{i}, m));
        return result;
    }
    template <pipeline_graph Graph>
    [[nodiscard]] constexpr outcome<basic_order<Graph>> operator()(const basic_problem<Graph>& p) const {
        return (*this)(p.graph);
    }
};
inline constexpr gpipe_builder gpipe{};

} // namespace optpipe
