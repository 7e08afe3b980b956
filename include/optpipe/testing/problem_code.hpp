#pragma once

#include "optpipe/core/format.hpp"
#include "optpipe/pipeline/problem.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace optpipe::testing {
namespace detail {

inline std::string code_of(duration d) { return "duration{" + exact_number(d.value()) + "}"; }
inline std::string code_of(memory_size m) { return "memory_size{" + exact_number(m.value()) + "}"; }
inline std::string code_of(const std::optional<transfer_times>& t) {
    return t ? "transfer_times{" + code_of(t->offload) + ", " + code_of(t->reload) + "}" : "{}";
}
inline std::string code_of(const stage_costs& c) {
    return "{" + code_of(c.forward) + ", " + code_of(c.backward_input) + ", " + code_of(c.backward_weight) + ", " +
           code_of(c.activation) + ", " + code_of(c.weight_stash) + ", " + code_of(c.transfer) + "}";
}
inline std::string code_of_storage(const problem& p) {
    std::string text;
    for (const stage s : p.graph.all_stages()) {
        if (is_described_by_costs(p.costs[s], p.storage[s])) continue;
        const auto list = "p.storage[stage{" + std::to_string(s.value()) + "}]";
        text += list + ".clear();\n";
        for (const auto& o : p.storage[s])
            text += list + ".push_back({\"" + std::string{o.name.view()} + "\", " + code_of(o.held) + ", " +
                    code_of(o.recompute) + ", " + code_of(o.backward_extra) + ", " + code_of(o.transfer_size) + ", " +
                    code_of(o.transfer) + "});\n";
    }
    return text;
}
inline std::string code_of_hops(const problem& p) {
    if (p.p2p.is_uniform()) {
        const auto hop = p.p2p.uniform();
        return hop == duration{} ? "" : "p.p2p = hop_times<>{duration{" + exact_number(hop.value()) + "}};\n";
    }
    std::string text = "p.p2p = hop_times<>{" + std::to_string(p.graph.ranks()) + ", {";
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            text +=
                (a.value() + b.value() == 0 ? "duration{" : ", duration{") + exact_number(p.p2p(a, b).value()) + "}";
    return text + "}};\n";
}
inline std::string code_of_limits(const char* field, const per_rank<memory_size>& limits) {
    std::string text;
    for (const rank r : limits.indices())
        if (!limits[r].is_unlimited())
            text += "p." + std::string{field} + "[rank{" + std::to_string(r.value()) + "}] = memory_size{" +
                    exact_number(limits[r].value()) + "};\n";
    return text;
}
inline std::string code_of_transfer(const problem& p) {
    std::string text;
    if (p.transfer.engines != 1) text += "p.transfer.engines = " + std::to_string(p.transfer.engines) + ";\n";
    if (p.transfer.duplex == duplex_kind::half) text += "p.transfer.duplex = duplex_kind::half;\n";
    for (const rank r : p.graph.all_ranks())
        for (const rank before : index_range<rank>{r.position()})
            if (p.transfer.link[before] == p.transfer.link[r]) {
                text += "p.transfer.share_link(rank{" + std::to_string(before.value()) + "}, rank{" +
                        std::to_string(r.value()) + "});\n";
                break;
            }
    return text;
}

} // namespace detail

/// The C++ code that makes a problem. The code is readable, and can be pasted into a test. Default values and names are
/// left out.
[[nodiscard]] inline std::string code_of(const problem& p) {
    const auto stages = std::to_string(p.graph.stages());
    std::string text = "per_stage<rank> placed(" + stages + ");\n";
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s).value() != 0)
            text += "placed[stage{" + std::to_string(s.value()) + "}] = rank{" + std::to_string(p.rank_of(s).value()) +
                    "};\n";
    const auto described = [&](stage s) {
        auto costs = p.costs[s];
        if (is_described_by_costs(costs, p.storage[s])) costs.transfer = p.storage[s].back().transfer;
        return costs;
    };
    const auto first = described(stage{0});
    text += "per_stage<stage_costs> costs(" + stages + ", " + detail::code_of(first) + ");\n";
    for (const stage s : p.graph.all_stages())
        if (!(described(s) == first))
            text += "costs[stage{" + std::to_string(s.value()) + "}] = " + detail::code_of(described(s)) + ";\n";
    text += "problem p{any_graph{" + std::to_string(p.graph.ranks()) + ", " + std::to_string(p.graph.microbatches()) +
            ", placement::map<>{placed}}, costs};\n";
    text += detail::code_of_storage(p);
    text += detail::code_of_hops(p);
    if (!p.split_backward) text += "p.split_backward = false;\n";
    if (!p.full_backward) text += "p.full_backward = false;\n";
    text += detail::code_of_limits("memory_limit", p.memory_limit);
    text += detail::code_of_limits("host_memory_limit", p.host_memory_limit);
    text += detail::code_of_transfer(p);
    if (p.objective == objective_kind::span) text += "p.objective = objective_kind::span;\n";
    return text;
}

} // namespace optpipe::testing
