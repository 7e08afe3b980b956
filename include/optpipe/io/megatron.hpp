#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

struct megatron_options {
    /// Number of transformer layers of each stage. If empty, Megatron divides the layers itself. Contract: empty, or
    /// one number per stage.
    std::vector<std::size_t> layers{};
    /// Modules whose inputs are offloaded, such as `core_attn`.
    std::vector<std::string> offload_modules{};
    /// Number of multi-token prediction layers of each stage, in addition to `layers`. Contract: empty, or one number
    /// per stage.
    std::vector<std::size_t> prediction_layers{};
};

/// Settings of Megatron-Core that come closest to a schedule.
struct megatron_settings {
    /// Command-line arguments: pairs of name and value. The value of a flag is empty.
    std::vector<std::pair<std::string, std::string>> arguments{};
    /// Megatron's schedule with these settings, with all activations kept.
    optpipe::schedule runs{};
    /// One sentence per property that the arguments don't express.
    std::vector<std::string> differences{};
};

/// 1F1B in Megatron-Core's order. A rank runs `group` microbatches on one stage before its next stage
/// (`microbatch_group_size_per_vp_stage`). Contract: stage s is on rank s modulo the number of ranks, and `group` is at
/// least 1. In the interleaved schedule of Narayanan et al., `group` is the number of ranks.
[[nodiscard]] outcome<order> megatron_order(const any_graph& g, std::size_t group);

/// The settings of Megatron-Core that come closest to a schedule, and the remaining differences. Refuses problems with
/// edges, groups, frozen stages, pairs or slices of sequences. Refuses stages that aren't in loop placement. Refuses
/// several stages on a single rank, and too few microbatches to interleave. Refuses multi-token prediction layers in a
/// place that Megatron doesn't allow.
[[nodiscard]] outcome<megatron_settings> to_megatron(const problem& p, const schedule& s,
                                                     const megatron_options& options = {});

/// The settings as lines for a command line. Comments after `#` compare Megatron's schedule with the plan.
[[nodiscard]] std::string to_text(const problem& p, const schedule& s, const megatron_settings& settings);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/container.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/io/beyond_chain.hpp"
#include "optpipe/io/timeline.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/schedule/builders/interleaved.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace optpipe {

OPTPIPE_INLINE outcome<order> megatron_order(const any_graph& g, std::size_t group) {
    OPTPIPE_EXPECT(is_loop_placed(g), "Megatron: needs stage s on rank s mod R");
    OPTPIPE_EXPECT(group > 0, "Megatron: a group has at least one microbatch");
    const auto chunks = g.stages() / g.ranks();
    // `turns` is ordered by group, and within a group by chunk. The last group may be smaller.
    std::vector<std::pair<std::size_t, std::size_t>> turns;
    for (std::size_t first = 0; first < g.microbatches(); first += group)
        for (std::size_t chunk = 0; chunk < chunks; ++chunk)
            for (auto m = first; m < std::min(first + group, g.microbatches()); ++m)
                turns.emplace_back(chunk, m);
    compute_lanes lanes(g.ranks());
    for (const rank r : g.all_ranks()) {
        const auto behind = g.ranks() - 1 - r.position();
        const auto warm_up = std::min(chunks == 1 ? behind : 2 * behind + (chunks - 1) * group, turns.size());
        const auto add = [&](std::size_t turn, operation_kind kind) {
            const auto [place, m] = turns[turn];
            const auto chunk = kind == operation_kind::forward ? place : chunks - 1 - place;
            lanes[r].push_back({stage{chunk * g.ranks() + r.position()}, kind, microbatch{m}});
        };
        for (std::size_t k = 0; k < warm_up; ++k)
            add(k, operation_kind::forward);
        for (std::size_t k = 0; k < turns.size(); ++k) {
            if (warm_up + k < turns.size()) add(warm_up + k, operation_kind::forward);
            add(k, operation_kind::backward);
        }
    }
    return interleave(g, lanes);
}
namespace detail {

class megatron_export {
public:
    megatron_export(const problem& p, const schedule& s, const megatron_options& options)
        : p_{p}, plan_{s}, options_{options}, chunks_{p.graph.stages() / p.graph.ranks()} {}

    [[nodiscard]] outcome<megatron_settings> run() {
        if (const auto refused = refused_layers()) return *refused;
        const auto found = best_group();
        if (!found) return found.why();
        const auto& [group, runs] = *found;
        result_.runs = runs;
        add("pipeline-model-parallel-size", p_.graph.ranks());
        if (!options_.layers.empty())
            add_layout();
        else if (chunks_ > 1)
            add("num-virtual-stages-per-pipeline-rank", chunks_);
        if (chunks_ > 1) add("microbatch-group-size-per-virtual-pipeline-stage", group);
        compare_order();
        add_offloading();
        add_recomputation();
        return std::move(result_);
    }

private:
    struct choice {
        std::size_t group = 0;
        schedule runs{};
    };

    void add(std::string name, std::string value) {
        result_.arguments.emplace_back("--" + std::move(name), std::move(value));
    }
    void add(std::string name, std::size_t value) { add(std::move(name), std::to_string(value)); }
    void differs(std::string sentence) { result_.differences.push_back(std::move(sentence)); }

    /// The problem with all activations kept and no limits, because Megatron's schedule doesn't wait for memory.
    [[nodiscard]] problem unlimited() const {
        auto p = p_;
        for (const stage s : p.graph.all_stages())
            p.set_stage(s, p.costs[s]);
        for (const rank r : p.graph.all_ranks())
            p.memory_limit[r] = memory_size::unlimited();
        return p;
    }

    /// The forwards and backwards of each rank. An input gradient counts as a full backward.
    [[nodiscard]] static compute_lanes gradient_order(const schedule& s) {
        compute_lanes lanes(s.graph.ranks());
        for (const auto& op : order_of(s).operations)
            if (op.kind == operation_kind::forward || is_gradient(op.kind))
                lanes[s.graph.rank_of(op.stage)].push_back(is_gradient(op.kind) ? backward(op.stage, op.microbatch)
                                                                                : forward(op.stage, op.microbatch));
        return lanes;
    }
    [[nodiscard]] bool same_order(const schedule& s) const {
        const auto ours = gradient_order(plan_);
        const auto theirs = gradient_order(s);
        return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end());
    }

    [[nodiscard]] double excess(const schedule& s) const {
        const auto m = measure(unlimited(), s);
        double most = 0.0;
        for (const rank r : p_.graph.all_ranks())
            if (!p_.memory_limit[r].is_unlimited())
                most = std::max(most, (m.peak_memory[r] - p_.memory_limit[r]).value());
        return most;
    }

    /// The group size with which Megatron runs the plan's order. If no size gives this order, returns the fastest size
    /// that fits in memory. If no size fits in memory, returns the size that exceeds the limits least. Megatron's
    /// groups, including the last, have at least as many microbatches as ranks.
    [[nodiscard]] outcome<choice> best_group() const {
        const auto ranks = p_.graph.ranks();
        const auto microbatches = p_.graph.microbatches();
        const auto plain = unlimited();
        std::optional<choice> best;
        for (auto group = ranks; group <= std::max(ranks, chunks_ > 1 ? microbatches : ranks); ++group) {
            const auto rest = microbatches % group;
            if (chunks_ > 1 && rest != 0 && rest < ranks) continue;
            const auto given = megatron_order(p_.graph, group);
            if (!given) return given.why();
            const auto timed = simulate(plain, *given);
            if (!timed) return timed.why();
            if (same_order(*timed)) return choice{group, *timed};
            const auto key = [&](const schedule& s) { return std::pair{excess(s), objective_of(p_, s)}; };
            if (!best || key(*timed) < key(best->runs)) best = choice{group, *timed};
        }
        if (best) return *best;
        return refusal{
            refusal_reason::does_not_apply,
            {"Megatron interleaves groups of at least ", ranks, " microbatches, and there are ", microbatches}};
    }

    [[nodiscard]] std::size_t prediction_layers(std::size_t s) const {
        return options_.prediction_layers.empty() ? 0 : options_.prediction_layers[s];
    }

    /// The refusal for multi-token prediction layers in a place that Megatron doesn't allow.
    [[nodiscard]] std::optional<refusal> refused_layers() const {
        const auto stages = options_.layers.size();
        std::optional<std::size_t> found;
        for (std::size_t s = 0; s < stages; ++s) {
            if (found && options_.layers[s] > 0)
                return does_not_apply("Megatron has layers of multi-token prediction behind all others");
            if (prediction_layers(s) == 0) continue;
            if (found) return does_not_apply("Megatron has all layers of multi-token prediction in one stage");
            found = s;
        }
        if (found && *found + p_.graph.ranks() < stages)
            return does_not_apply("Megatron has layers of multi-token prediction in the last stage of a rank");
        return std::nullopt;
    }

    void add_layout() {
        const auto repeated = [](char layer, std::size_t count) {
            return count > 1 ? std::string{layer} + '*' + std::to_string(count) : std::string(count, layer);
        };
        std::vector<std::string> stages;
        for (std::size_t s = 0; s < options_.layers.size(); ++s)
            stages.push_back(repeated('t', options_.layers[s]) + repeated('m', prediction_layers(s)));
        stages.front().insert(0, "E");
        stages.back() += "L";
        add("num-layers", std::accumulate(options_.layers.begin(), options_.layers.end(), std::size_t{0}));
        const auto& more = options_.prediction_layers;
        const auto predicting = std::accumulate(more.begin(), more.end(), std::size_t{0});
        if (predicting > 0) add("mtp-num-layers", predicting);
        add("pipeline-model-parallel-layout", "\"" + joined(stages, "|") + "\"");
    }

    void compare_order() {
        std::size_t split = 0;
        for (const auto& timed : plan_.operations)
            split += timed.op.kind == operation_kind::backward_input ? 1 : 0;
        if (split > 0)
            differs(std::to_string(split) + " of " + std::to_string(cells()) +
                    " backwards are split into I and W; Megatron runs each as one");
        if (const auto missing = excess(result_.runs); missing > 0.0)
            differs("the memory limit: with everything kept, Megatron's schedule needs " + format_number(missing) +
                    with_space(p_.memory_unit) + " more than a rank has");
        if (!same_order(result_.runs))
            differs("the plan has another order of forwards and backwards; Megatron's is 1F1B" +
                    std::string{chunks_ > 1 ? ", interleaved" : ""});
    }

    void add_offloading() {
        per_rank<std::size_t> offloads(p_.graph.ranks(), 0);
        for (const auto& timed : plan_.operations)
            if (timed.op.kind == operation_kind::offload) ++offloads[p_.rank_of(timed.op.stage)];
        const auto [least, most] = std::minmax_element(offloads.begin(), offloads.end());
        if (*most == 0) return;
        const auto of_rank = chunks_ * p_.graph.microbatches();
        add("fine-grained-activation-offloading", "");
        if (!options_.offload_modules.empty())
            add("offload-modules", joined(options_.offload_modules, " "));
        else
            differs("which modules are offloaded: --offload-modules names them, the plan knows whole stashes");
        add("activation-offload-fraction", format_number(static_cast<double>(*most) / static_cast<double>(of_rank), 3));
        if (*least != *most) {
            std::vector<std::string> shares;
            for (const auto each : offloads)
                shares.push_back(std::to_string(each));
            differs("the ranks offload " + joined(shares, ", ") + " of " + std::to_string(of_rank) +
                    " stashes; Megatron takes one fraction for all, here the largest, less as many bytes per rank as "
                    "--delta-offload-bytes-across-pp-ranks says");
        }
        differs(
            "which microbatches are offloaded, and when they come back: Megatron offloads the first groups of every "
            "microbatch, and reloads each one group ahead");
    }

    void add_recomputation() {
        std::size_t recomputed = 0;
        for (const auto& timed : plan_.operations)
            if (timed.op.kind == operation_kind::forward && storage_of(p_, timed.op).extra_work() > duration{})
                ++recomputed;
        if (recomputed > 0)
            differs(std::to_string(recomputed) + " of " + std::to_string(cells()) +
                    " stashes are recomputed; Megatron recomputes layers of every microbatch alike "
                    "(--recompute-granularity)");
    }

    [[nodiscard]] std::size_t cells() const { return p_.graph.cells(); }

    const problem& p_;
    const schedule& plan_;
    const megatron_options& options_;
    std::size_t chunks_;
    megatron_settings result_{};
};

} // namespace detail

OPTPIPE_INLINE outcome<megatron_settings> to_megatron(const problem& p, const schedule& s,
                                                      const megatron_options& options) {
    OPTPIPE_EXPECT(options.layers.empty() || options.layers.size() == p.graph.stages(),
                   "Megatron: layers must be given for each stage");
    OPTPIPE_EXPECT(options.prediction_layers.empty() || options.prediction_layers.size() == options.layers.size(),
                   "Megatron: layers of multi-token prediction must be given for each stage, beside the others");
    if (const auto beyond = detail::beyond_chain(p, "Megatron")) return *beyond;
    if (!p.overlaps.empty())
        return refusal{refusal_reason::does_not_apply,
                       "settings of Megatron for pairs of a forward and a backward aren't written"};
    if (p.microbatches.has_slices())
        return refusal{refusal_reason::does_not_apply,
                       "Megatron doesn't cut sequences into slices that pass the pipeline one by one"};
    if (!is_loop_placed(p.graph))
        return refusal{refusal_reason::does_not_apply,
                       "Megatron has stage s on rank s mod R, as many on each rank; this placement is another"};
    if (p.graph.ranks() == 1 && p.graph.stages() > 1)
        return refusal{refusal_reason::does_not_apply,
                       "Megatron interleaves stages on more than one rank only (pipeline-model-parallel size should be "
                       "greater than 1)"};
    return detail::megatron_export{p, s, options}.run();
}

OPTPIPE_INLINE std::string to_text(const problem& p, const schedule& s, const megatron_settings& settings) {
    std::string text =
        "# " + std::to_string(p.graph.microbatches()) +
        " microbatches: --global-batch-size is so many times --micro-batch-size and the data-parallel size\n";
    for (const auto& [name, value] : settings.arguments)
        text += name + (value.empty() ? "" : " " + value) + "\n";
    const auto line = [&](const char* name, const measures& m) {
        text += std::string{"# "} + name + ": " + format_number(m.objective) + detail::with_space(p.time_unit) +
                ", at most " + format_number(*std::max_element(m.peak_memory.begin(), m.peak_memory.end())) +
                detail::with_space(p.memory_unit) + " on a rank\n";
    };
    auto kept = p;
    for (const stage each : kept.graph.all_stages())
        kept.set_stage(each, kept.costs[each]);
    line("the plan", measure(p, s));
    line("Megatron's schedule by these costs, with everything kept", measure(kept, settings.runs));
    if (settings.differences.empty()) text += "# nothing of the plan is left out\n";
    for (const auto& each : settings.differences)
        text += "# not expressed: " + each + "\n";
    return text;
}

} // namespace optpipe
#endif
