#pragma once

#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/program/ir.hpp"
#include "optpipe/program/lower/options.hpp"
#include "optpipe/schedule/operation.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// Number of bytes in each part of a stash (`buffer_role`).
struct stash_bytes {
    std::size_t kept = 0;
    std::size_t freed = 0;
    std::size_t resident_kept = 0;
    std::size_t resident_freed = 0;
    std::size_t restored_kept = 0;
    std::size_t restored_freed = 0;
    std::size_t added = 0;

    [[nodiscard]] std::size_t moved() const { return kept + freed; }
    [[nodiscard]] std::size_t held() const { return moved() + resident_kept + resident_freed; }
    [[nodiscard]] std::size_t restored() const { return restored_kept + restored_freed; }
    /// Number of bytes that are unused after I.
    [[nodiscard]] std::size_t all_freed() const { return freed + resident_freed + restored_freed; }
    [[nodiscard]] std::size_t all_kept() const { return kept + resident_kept + restored_kept; }
};

/// The parts of a stage's stash under the storage option `stored`, each rounded by `bytes_of`. F holds at most
/// `most_kept` of the memory that W needs. F holds more only if RECOMPUTE can't restore enough.
template <class BytesOf>
[[nodiscard]] stash_bytes divide_stash(const stage_costs& c, const storage_option& stored, memory_size most_kept,
                                       const BytesOf& bytes_of) {
    const auto restored = stored.restored(c);
    const auto kept = std::min(restored, c.weight_stash);
    const auto least_kept = std::max(memory_size{}, kept - (restored - stored.held));
    const auto held_kept = std::max(least_kept, std::min({stored.held, kept, most_kept}));
    const auto held_freed = stored.held - held_kept;
    const bool in_part = stored.offloads() && stored.transfer_size < stored.held;
    const auto moved_kept = in_part ? std::min(stored.transfer_size, held_kept) : held_kept;
    const auto moved_freed = in_part ? stored.transfer_size - moved_kept : held_freed;
    return {bytes_of(moved_kept),
            bytes_of(moved_freed),
            bytes_of(held_kept - moved_kept),
            bytes_of(held_freed - moved_freed),
            bytes_of(kept - held_kept),
            bytes_of(restored - kept - held_freed),
            bytes_of(c.weight_stash - kept)};
}

/// Bytes that each operation allocates and frees in each arena. The numbers depend on the storage option of the stash.
/// For a program of forwards only, all numbers are 0.
class stash_parts {
public:
    stash_parts(const problem& p, const lowering_options& options)
        : has_factors_{p.microbatches.has_factors()}, of_(p.graph.stages()), keeps_(p.graph.stages()) {
        for (const stage at : p.graph.all_stages()) {
            keeps_[at] = p.costs[at].gradients != gradient_kind::none;
            for (const microbatch m : p.graph.all_microbatches())
                if (has_factors_ || m == microbatch{0}) find(p, options, at, p.microbatches.factors(at, m).memory);
        }
    }

    [[nodiscard]] const stash_bytes& operator()(const operation& op) const {
        const auto& of_stage = of_[op.stage];
        return of_stage[has_factors_ ? op.microbatch.position() : 0][op.storage];
    }
    /// Whether the stash is kept until a backward. If false, F frees the stash at its end.
    [[nodiscard]] bool keeps(stage s) const { return keeps_[s] != 0; }

    /// Size in bytes of the part `role` of the stash of `op`.
    [[nodiscard]] std::size_t part(const operation& op, buffer_role role) const {
        const auto& stash = (*this)(op);
        switch (role) {
        case buffer_role::kept: return stash.kept;
        case buffer_role::freed: return stash.freed;
        case buffer_role::resident_kept: return stash.resident_kept;
        case buffer_role::resident_freed: return stash.resident_freed;
        case buffer_role::restored_kept: return stash.restored_kept;
        case buffer_role::restored_freed: return stash.restored_freed;
        case buffer_role::added: return stash.added;
        case buffer_role::host: return stash.moved();
        }
        return 0;
    }
    /// Bytes that an operation allocates in an arena at its start.
    [[nodiscard]] std::size_t acquired(const operation& op, memory_arena from) const {
        const auto& stash = (*this)(op);
        const bool on_host = from == memory_arena::host;
        switch (op.kind) {
        case operation_kind::forward: return on_host ? 0 : stash.held();
        case operation_kind::reload: return on_host ? 0 : stash.moved();
        case operation_kind::recompute: return on_host ? 0 : stash.restored();
        case operation_kind::backward_input: return on_host ? 0 : stash.added;
        case operation_kind::offload: return on_host ? stash.moved() : 0;
        case operation_kind::backward_weight:
        case operation_kind::backward: return 0;
        }
        return 0;
    }
    /// Bytes that an operation frees in an arena at its end.
    [[nodiscard]] std::size_t released(const operation& op, memory_arena to) const {
        const auto& stash = (*this)(op);
        const bool on_host = to == memory_arena::host;
        switch (op.kind) {
        case operation_kind::backward_input: return on_host ? 0 : stash.all_freed();
        case operation_kind::backward_weight: return on_host ? 0 : stash.all_kept() + stash.added;
        case operation_kind::backward: return on_host ? 0 : stash.all_kept() + stash.all_freed();
        case operation_kind::offload: return on_host ? 0 : stash.moved();
        case operation_kind::reload: return on_host ? stash.moved() : 0;
        case operation_kind::forward: return on_host || keeps(op.stage) ? 0 : stash.held();
        case operation_kind::recompute: return 0;
        }
        return 0;
    }

private:
    /// Adds the parts for all storage options of stage `at`, for the memory factor `factor`.
    void find(const problem& p, const lowering_options& options, stage at, double factor) {
        const auto rounded = [&](memory_size size) { return options.rounded_bytes(factor * size); };
        auto& own = of_[at].emplace_back();
        const auto count = p.storage_options(at);
        if (options.forward_only) return own.resize(count);
        for (std::size_t i = 0; i < count; ++i) {
            auto most_kept = memory_size::unlimited();
            for (const auto& each : options.kept)
                if (each.stage == at && each.storage == i) most_kept = each.kept;
            own.push_back(divide_stash(p.costs[at], p.storage_of(at, i), most_kept, rounded));
        }
    }

    bool has_factors_;
    /// Indexed by stage, microbatch (0 if microbatches have no factors) and storage option.
    per_stage<std::vector<std::vector<stash_bytes>>> of_;
    per_stage<unsigned char> keeps_;
};

} // namespace optpipe::detail
