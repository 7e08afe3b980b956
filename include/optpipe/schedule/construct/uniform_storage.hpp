#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/stop_check.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/construct/follow_storage.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// For each stage, the index of the storage option of all its microbatches.
template <auto Stages> using storage_by_stage = per_stage<std::size_t, Stages>;

/// The storage option named `name`, if the stage has it.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::optional<std::size_t> find_storage_option(const basic_problem<Graph>& p, stage s,
                                                                       std::string_view name) {
    for (std::size_t i = 0; i < p.storage_options(s); ++i)
        if (p.storage_of(s, i).name.view() == name) return i;
    return std::nullopt;
}

/// The option named `name` on every stage; empty if a stage lacks it.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::optional<storage_by_stage<Graph::stage_extent>>
find_common_option(const basic_problem<Graph>& p, std::string_view name) {
    storage_by_stage<Graph::stage_extent> options(p.graph.stages());
    for (const stage s : p.graph.all_stages()) {
        const auto found = find_storage_option(p, s, name);
        if (!found) return std::nullopt;
        options[s] = *found;
    }
    return options;
}

/// The names of options that every stage has, in the order of the first stage.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::vector<bounded_text<32>> common_option_names(const basic_problem<Graph>& p) {
    std::vector<bounded_text<32>> names;
    if (p.graph.stages() == 0) return names;
    const stage first{0};
    for (std::size_t i = 0; i < p.storage_options(first); ++i) {
        const auto name = p.storage_of(first, i).name;
        if (find_common_option(p, name.view())) names.push_back(name);
    }
    return names;
}

/// How a classic problem represents one storage option of a stage. A classic problem supports only kept and offloaded
/// stashes.
struct uniform_storage {
    /// The indices of the options that stand for kept stashes and for offloaded stashes in the classic problem.
    std::size_t kept = 0;
    std::size_t offloaded = 0;
    /// Whether `offloaded` is `kept` plus a transfer of everything held. The classic problem then has the times of this
    /// transfer.
    bool may_offload = false;
    /// Whether the option has transfers that the classic problem lacks: right after the forward, and right before the
    /// stash is needed.
    bool always_transfers = false;

    friend constexpr bool operator==(const uniform_storage&, const uniform_storage&) = default;
};

/// The representation of option `base` of a stage.
template <pipeline_graph Graph>
[[nodiscard]] constexpr uniform_storage uniform_storage_of(const basic_problem<Graph>& p, stage s, std::size_t base) {
    const auto stored = p.storage_of(s, base);
    const auto moves_all = [](const storage_option& o) { return o.offloads() && o.transfer_size == o.held; };
    const auto differs_by_transfer = [&](const storage_option& o) {
        return o.held == stored.held && o.recompute == stored.recompute && o.backward_extra == stored.backward_extra &&
               (stored.offloads() ? !o.offloads() : moves_all(o));
    };
    uniform_storage how{base, base, false, stored.offloads()};
    if (stored.offloads() && !moves_all(stored)) return how;
    for (std::size_t i = 0; i < p.storage_options(s); ++i) {
        if (!differs_by_transfer(p.storage_of(s, i))) continue;
        return stored.offloads() ? uniform_storage{i, base, true, false} : uniform_storage{base, i, true, false};
    }
    return how;
}

/// A classic problem (`is_described_by_costs`) for builders that only support kept and offloaded stashes. Stage s uses
/// the option `options[s]`. `with_storage` turns any valid order of the classic problem into a valid order of `p`.
/// Operations end no later than in the classic problem, unless a transfer waits for memory.
///
/// - `backward_extra` lengthens the gradient, and `held` becomes the activation. Both replacements are exact.
/// - `recompute` also lengthens the gradient, as it runs right before.
/// - A transfer of everything held becomes the classic transfer if the stage has this option without a transfer, too.
///   The builder then decides for each microbatch whether to offload.
/// - For any other transfer, the moved amount is removed from the activation.
/// - A rank's memory limit falls by the most that a recomputation or reload adds to a stash in use.
///   A negative limit means that not even one microbatch fits.
/// - Host limits are ignored, so `simulate` may refuse the order.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_problem<Graph> uniform_problem(const basic_problem<Graph>& p,
                                                             const storage_by_stage<Graph::stage_extent>& options) {
    auto classic = p;
    per_rank<memory_size, Graph::rank_extent> transient(p.graph.ranks());
    for (const stage s : p.graph.all_stages()) {
        const auto how = uniform_storage_of(p, s, options[s]);
        const auto stored = p.storage_of(s, options[s]);
        auto costs = p.costs[s];
        costs.activation = how.always_transfers ? stored.left_on_device() : stored.held;
        costs.backward_input += stored.extra_work();
        costs.transfer = how.may_offload ? p.storage_of(s, how.offloaded).transfer : std::nullopt;
        auto& most = transient[p.rank_of(s)];
        most = std::max(most, std::max(stored.held, stored.restored(p.costs[s])) - costs.activation);
        classic.set_stage(s, costs);
    }
    for (const rank r : p.graph.all_ranks())
        if (!p.memory_limit[r].is_unlimited()) classic.memory_limit[r] -= transient[r];
    return classic;
}

/// A storage option for all microbatches of each stage, and its name.
template <auto Stages> struct uniform_choice {
    bounded_text<32> name{};
    storage_by_stage<Stages> options{};
};

/// The options that all stages have and that give different results of `uniform_problem`. If options differ only by a
/// transfer, the first is listed, and the builder decides about the transfer. If builders support the problem as it is,
/// the only choice is `keep`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::vector<uniform_choice<Graph::stage_extent>>
uniform_choices(const basic_problem<Graph>& p) {
    std::vector<uniform_choice<Graph::stage_extent>> choices;
    for (const auto& name : common_option_names(p)) {
        const auto options = *find_common_option(p, name.view());
        const auto is_same = [&](const auto& other) {
            for (const stage s : p.graph.all_stages())
                if (uniform_storage_of(p, s, other.options[s]) != uniform_storage_of(p, s, options[s])) return false;
            return true;
        };
        if (std::none_of(choices.begin(), choices.end(), is_same)) choices.push_back({name, options});
    }
    return choices;
}

/// Converts an order of `uniform_problem(p, options)` to an order of `p`.
template <pipeline_graph Graph>
[[nodiscard]] constexpr basic_order<Graph> with_storage(const basic_problem<Graph>& p,
                                                        const storage_by_stage<Graph::stage_extent>& options,
                                                        const basic_order<Graph>& classic) {
    const cell_numbering cell{p.graph};
    std::vector<std::size_t> used(cell.size(), 0);
    for (const auto& op : classic.operations)
        if (op.kind == operation_kind::offload) used[cell(op)] = 1;
    for (const stage s : p.graph.all_stages()) {
        const auto how = uniform_storage_of(p, s, options[s]);
        for (const microbatch m : p.graph.all_microbatches()) {
            auto& own = used[cell(s, m)];
            own = own == 0 ? how.kept : how.offloaded;
        }
    }
    return {classic.graph, follow_storage(p, classic.operations, used)};
}

/// The schedule of a builder with one storage option per stage, such as 1F1B with full recomputation. The builder gets
/// `uniform_problem` instead of `p`.
template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr outcome<basic_schedule<Graph>>
build_uniform_schedule(const basic_problem<Graph>& p, const Builder& build,
                       const storage_by_stage<Graph::stage_extent>& options, stop_check stop = {}) {
    const auto classic = uniform_problem(p, options);
    const auto built = build_schedule(classic, build, stop);
    if (built) return time_order(p, with_storage(p, options, order_of(*built)));
    auto why = built.why();
    // The refusal names the memory limits of `p`, because the builder saw lower limits.
    if (why.reason == refusal_reason::over_memory) {
        why.needed += p.memory_limit[why.rank] - classic.memory_limit[why.rank];
        why.limit = p.memory_limit[why.rank];
        // Other options may still give a schedule.
        if (!why.sentence.empty())
            why.sentence = {why.sentence.view(), ", with this storage option for all microbatches"};
    }
    return why;
}

/// A schedule, and the storage option that all its stages use.
template <pipeline_graph Graph> struct uniform_schedule {
    bounded_text<32> option{};
    outcome<basic_schedule<Graph>> result{};
};

/// The builder's best schedule with one storage option for all stages. If no option gives a schedule, returns the
/// refusal with the smallest lack of memory. After a stop request, returns the best schedule found by then.
template <pipeline_graph Graph, class Builder>
[[nodiscard]] constexpr uniform_schedule<Graph>
build_best_uniform_schedule(const basic_problem<Graph>& p, const Builder& build, stop_check stop = {}) {
    uniform_schedule<Graph> best;
    best.result = does_not_apply("no storage option is common to all stages");
    const auto lack = [](const refusal& why) {
        return why.reason == refusal_reason::over_memory ? why.needed - why.limit : memory_size::unlimited();
    };
    const auto is_better = [&](const outcome<basic_schedule<Graph>>& made) {
        if (made && best.result) return objective_of(p, *made) < objective_of(p, *best.result);
        if (made || best.result) return made.has_value();
        return lack(made.why()) < lack(best.result.why());
    };
    for (const auto& [name, options] : uniform_choices(p)) {
        auto made = build_uniform_schedule(p, build, options, stop);
        if (stop.is_requested() && !made) {
            if (!best.result) best.result = was_stopped();
            break;
        }
        if (best.option.empty() || is_better(made)) best = {name, std::move(made)};
    }
    return best;
}

} // namespace optpipe
