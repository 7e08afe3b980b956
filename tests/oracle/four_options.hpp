#pragma once

#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>

namespace oracle {

/// Keep, recompute a half ahead, recompute nearly all inside the backward, offload.
inline optpipe::problem four_options(std::size_t ranks, std::size_t microbatches, optpipe::memory_size limit) {
    using namespace optpipe::literals;
    const optpipe::graph<optpipe::dynamic, optpipe::dynamic> g{ranks, microbatches};
    const optpipe::stage_costs each{10_ms, 11_ms, 6_ms, 1_gb, 0.5_gb, {}};
    auto p = make_problem(to_any_graph(g), optpipe::uniform_memory{each}, limit);
    p.p2p = optpipe::hop_times<>{0.5_ms};
    for (auto& list : p.storage) {
        list.push_back({"ahead", 0.55_gb, 3_ms, {}, {}, {}});
        list.push_back({"full", 0.1_gb, {}, 10_ms, {}, {}});
        list.push_back({"offload", 1_gb, {}, {}, 1_gb, optpipe::transfer_times{13.5_ms, 13.5_ms}});
    }
    return p;
}

} // namespace oracle
