#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"

#include <cstddef>

namespace optpipe::detail {

/// The lanes of an operation: the rank's compute lane, or a copy engine (`own`) and a channel of the host link
/// (`shared`).
struct occupied_lanes {
    std::size_t own = 0;
    std::size_t shared = 0; ///< for computations, the same lane as `own`
};

/// Numbers the lanes of all ranks from 0: compute lanes first, then copy engines, then channels of host links.
template <pipeline_graph Graph> class lane_numbering {
public:
    constexpr explicit lane_numbering(const basic_problem<Graph>& p)
        : transfer_{&p.transfer}, ranks_{p.graph.ranks()} {}

    [[nodiscard]] constexpr std::size_t size() const { return 5 * ranks_; }
    [[nodiscard]] constexpr occupied_lanes of(operation_kind kind, rank r) const {
        if (!is_transfer(kind)) return {r.position(), r.position()};
        const bool inward = is_inward(kind);
        return {ranks_ + copy_engine_of(*transfer_, r, inward), 3 * ranks_ + host_channel_of(*transfer_, r, inward)};
    }

private:
    const transfer_rules<Graph::rank_extent>* transfer_;
    std::size_t ranks_;
};

} // namespace optpipe::detail
