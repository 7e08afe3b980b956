#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/microbatches.hpp"
#include "optpipe/pipeline/overlaps.hpp"
#include "optpipe/pipeline/stage_groups.hpp"
#include "optpipe/pipeline/storage.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace optpipe {

/// The quantity to minimize.
enum class objective_kind {
    makespan, ///< the time at which the last operation ends
    span,     ///< the longest time from the first start to the last end on any rank
};

enum class duplex_kind {
    full, ///< a link carries one transfer per direction at a time
    half, ///< a link carries one transfer at a time
};

/// The time from the end of an operation until a dependent operation on another rank may start. One number for all
/// ranks, or one number per ordered pair of ranks.
template <auto Ranks> class basic_hop_times {
public:
    constexpr basic_hop_times() = default;
    constexpr explicit basic_hop_times(duration uniform) : uniform_{uniform} {}
    /// `matrix` is R×R in row-major order; [a·R + b] is the time from rank a to rank b.
    constexpr basic_hop_times(std::size_t ranks,
                              bounded_vector<duration, extent_product(std::size_t{Ranks}, std::size_t{Ranks})> matrix)
        : ranks_{ranks}, matrix_{std::move(matrix)} {
        OPTPIPE_EXPECT(matrix_.size() == ranks * ranks, "hop_times: the matrix must have one entry per pair of ranks");
    }

    template <std::same_as<std::vector<duration>> Matrix>
    constexpr basic_hop_times(std::size_t ranks, const Matrix& matrix) : ranks_{ranks} {
        OPTPIPE_EXPECT(matrix.size() == ranks * ranks, "hop_times: the matrix must have one entry per pair of ranks");
        for (const auto each : matrix)
            matrix_.push_back(each);
    }

    [[nodiscard]] constexpr duration operator()(rank from, rank to) const {
        if (from == to) return duration{};
        return is_uniform() ? uniform_ : matrix_[from.position() * ranks_ + to.position()];
    }
    [[nodiscard]] constexpr bool is_uniform() const { return matrix_.empty(); }
    /// The time between any two ranks. Contract: the times are uniform (`is_uniform()`).
    [[nodiscard]] constexpr duration uniform() const {
        OPTPIPE_EXPECT(is_uniform(), "hop_times: ranks are apart by a matrix");
        return uniform_;
    }
    /// Number of ranks of the matrix; 0 if uniform.
    [[nodiscard]] constexpr std::size_t ranks() const { return ranks_; }

private:
    duration uniform_{};
    std::size_t ranks_ = 0;
    bounded_vector<duration, extent_product(std::size_t{Ranks}, std::size_t{Ranks})> matrix_{};
};
template <std::size_t Ranks = dynamic> using hop_times = basic_hop_times<named_extent<Ranks>()>;

/// Which transfers may run at the same time.
template <auto Ranks> struct basic_transfer_rules {
    /// Number of transfers that a rank can run at once, 1 or 2. With 2 engines, each direction has its own engine.
    int engines = 1;
    duplex_kind duplex = duplex_kind::full;
    /// The index of each rank's host link. Ranks with the same index share one link. Indices are below the number of
    /// ranks.
    per_rank<std::uint32_t, Ranks> link{};

    constexpr basic_transfer_rules() = default;
    /// Gives every rank a link of its own.
    constexpr explicit basic_transfer_rules(std::size_t ranks) : link(ranks) {
        for (const rank r : link.indices())
            link[r] = r.value();
    }
    /// Makes ranks `a` and `b` share one host link. The new link joins all ranks of the links of `a` and `b`.
    constexpr void share_link(rank a, rank b) {
        OPTPIPE_EXPECT(a.position() < link.size() && b.position() < link.size(), "share_link: no such rank");
        const auto from = link[b];
        const auto to = link[a];
        for (auto& l : link)
            if (l == from) l = to;
    }
};
template <std::size_t Ranks = dynamic> using transfer_rules = basic_transfer_rules<named_extent<Ranks>()>;

template <pipeline_graph Graph> struct basic_problem;

/// Whether every stage has exactly the options that its costs describe. Costs describe the option `keep`. Costs with
/// transfer times also describe the option `offload`.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool is_described_by_costs(const basic_problem<Graph>& p) {
    for (const stage s : p.graph.all_stages())
        if (!is_described_by_costs(p.costs[s], p.storage[s])) return false;
    return true;
}

/// A pipeline with its costs and limits (io/README.md). Times and sizes are in the units that the problem names.
template <pipeline_graph Graph> struct basic_problem {
    using graph_type = Graph;
    static constexpr std::size_t ranks_extent = Graph::rank_extent;
    static constexpr std::size_t stages_extent = Graph::stage_extent;
    using label = std::conditional_t<Graph::is_static, std::string_view, std::string>;

    Graph graph{};
    /// The costs of each stage. The transfer times are in `storage`. `set_stage` changes `costs` and `storage`.
    per_stage<stage_costs, stages_extent> costs{};
    /// The storage options of each stage. Every stage has at least one option.
    per_stage<storage_list<Graph::is_static>, stages_extent> storage{};
    /// How the microbatches differ. By default, all microbatches are equal.
    microbatch_list<stages_extent, Graph::microbatch_extent> microbatches{};
    /// Groups of stages that hold shards of one layer.
    stage_groups<stages_extent> groups{};
    /// The pairs of a forward and a backward that can run as one operation.
    overlap_list<Graph::is_static> overlaps{};
    hop_times<ranks_extent> p2p{};
    /// If false, only full backwards may be used.
    bool split_backward = true;
    /// Whether a schedule may have full backwards (B). Set this to false if your system runs B as I and then W. If
    /// false, a B in an order is timed as I and W.
    bool full_backward = true;
    per_rank<memory_size, ranks_extent> memory_limit{};
    per_rank<memory_size, ranks_extent> host_memory_limit{};
    transfer_rules<ranks_extent> transfer{};
    objective_kind objective = objective_kind::makespan;
    label name{};
    label time_unit{};
    label memory_unit{};

    constexpr basic_problem() = default;
    /// Starts with unlimited memory, no communication time, and a host link per rank.
    constexpr basic_problem(Graph shape, const per_stage<stage_costs, stages_extent>& described)
        : graph{std::move(shape)}, costs{described}, storage(graph.stages()),
          memory_limit(graph.ranks(), memory_size::unlimited()),
          host_memory_limit(graph.ranks(), memory_size::unlimited()), transfer(graph.ranks()) {
        OPTPIPE_EXPECT(costs.size() == graph.stages(), "problem: one entry of costs per stage");
        for (const stage s : graph.all_stages())
            set_stage(s, described[s]);
    }

    /// Gives the stage these costs, and the options that the costs describe. Costs describe the option `keep`. Costs
    /// with transfer times also describe the option `offload`.
    constexpr void set_stage(stage s, const stage_costs& described) {
        set_stage(s, described, described_storage(described));
    }
    /// Gives the stage these costs and options. Transfer times in the costs are ignored.
    template <class List> constexpr void set_stage(stage s, const stage_costs& of, const List& options) {
        costs[s] = of;
        // clang 14 can't copy an optional in a constant expression after a reset()
        costs[s].transfer = std::optional<transfer_times>{};
        set_storage(s, options);
    }
    /// Calls `change(stage_costs&)` on the costs of a stage. If the costs describe the options
    /// (`is_described_by_costs`), `change` sees the transfer times, and the options are made again. If the costs don't
    /// describe the options, the options don't change.
    template <class Change> constexpr void change_stage(stage s, const Change& change) {
        const bool is_described = is_described_by_costs(costs[s], storage[s]);
        auto changed = costs[s];
        if (is_described) changed.transfer = storage[s].back().transfer;
        change(changed);
        if (is_described)
            set_stage(s, changed);
        else
            set_stage(s, changed, storage[s]);
    }
    template <class Change> constexpr void change_stages(const Change& change) {
        for (const stage s : graph.all_stages())
            change_stage(s, change);
    }
    template <class List> constexpr void set_storage(stage s, const List& options) {
        storage_list<Graph::is_static> own;
        for (const storage_option& each : options)
            own.push_back(each);
        storage[s] = own;
    }

    [[nodiscard]] constexpr rank rank_of(stage s) const { return graph.rank_of(s); }
    /// Time from the end of an operation of stage `from` to the earliest start of a dependent operation of stage `to`.
    [[nodiscard]] constexpr duration hop(stage from, stage to) const { return p2p(rank_of(from), rank_of(to)); }
    /// Time from the end of F of (`e.from`, m) to the earliest start of F of (`e.to`, m).
    [[nodiscard]] constexpr duration message_time(const edge& e, microbatch m) const {
        return e.size * microbatches.factors(e.from, m).message * hop(e.from, e.to);
    }
    /// Time from the end of the gradient of (`e.to`, m) to the earliest start of the gradient of (`e.from`, m).
    [[nodiscard]] constexpr duration gradient_message_time(const edge& e, microbatch m) const {
        return e.size * microbatches.factors(e.from, m).message * hop(e.to, e.from);
    }
    /// Whether the edge carries gradients: both of its stages compute gradients.
    [[nodiscard]] constexpr bool carries_gradients(const edge& e) const {
        return costs[e.from].gradients != gradient_kind::none && costs[e.to].gradients != gradient_kind::none;
    }
    /// The costs of a stage for one microbatch, multiplied by the microbatch's factors.
    [[nodiscard]] constexpr stage_costs cost(stage s, microbatch m) const {
        return microbatches.has_factors() ? scaled(costs[s], microbatches.factors(s, m)) : costs[s];
    }
    [[nodiscard]] constexpr bool is_first(stage s) const { return s.value() == 0; }
    [[nodiscard]] constexpr bool is_last(stage s) const { return s.position() + 1 == graph.stages(); }
    [[nodiscard]] constexpr std::size_t storage_options(stage s) const { return storage[s].size(); }
    /// One of the stage's storage options. Contract: `option` is below `storage_options(s)`.
    [[nodiscard]] constexpr const storage_option& storage_of(stage s, std::size_t option) const {
        OPTPIPE_EXPECT(option < storage_options(s), "no such storage option");
        return storage[s][option];
    }
    /// The stage's first option that moves the whole stash to the host and recomputes nothing. If the transfers of a
    /// stash in a schedule name no option, the stash has this option.
    [[nodiscard]] constexpr std::optional<storage_index> whole_offload(stage s) const {
        for (std::size_t i = 0; i < storage[s].size(); ++i)
            if (offloads_all(storage[s][i])) return static_cast<storage_index>(i);
        return std::nullopt;
    }
    /// The most device memory of a stage during a backward in which W directly follows I. The backward starts with the
    /// memory `restored`. A full backward never holds more memory than at its start.
    [[nodiscard]] constexpr memory_size held_in_backward(stage s, memory_size restored) const {
        return full_backward ? restored : std::max(restored, costs[s].weight_stash);
    }
    /// Duration of I, or of B if the backward isn't split.
    [[nodiscard]] constexpr duration gradient_time(stage s) const {
        return split_backward ? costs[s].backward_input : costs[s].backward();
    }
    /// Duration of all computations of a rank in a step, without recomputation.
    [[nodiscard]] constexpr duration load(rank r) const {
        duration work{};
        for (const stage s : graph.all_stages())
            if (rank_of(s) == r) work += mean_work(s);
        return static_cast<double>(graph.microbatches()) * work;
    }
    /// Mean duration of a stage's computations for a microbatch, without recomputation.
    [[nodiscard]] constexpr duration mean_work(stage s) const {
        if (!microbatches.has_factors()) return costs[s].work();
        duration work{};
        for (const microbatch m : graph.all_microbatches())
            work += cost(s, m).work();
        return work / static_cast<double>(graph.microbatches());
    }
    /// The mean time that the busiest rank needs for one microbatch. A lower bound on the interval between two equal
    /// microbatches.
    [[nodiscard]] constexpr duration busiest_work() const {
        per_rank<duration, Graph::rank_extent> work(graph.ranks());
        for (const stage s : graph.all_stages())
            work[rank_of(s)] += mean_work(s);
        duration most{};
        for (const auto each : work)
            most = std::max(most, each);
        return most;
    }
    /// Duration of a step in which nothing overlaps, all transfers included.
    [[nodiscard]] constexpr duration serial_time() const {
        if (microbatches.are_equal()) return static_cast<double>(graph.microbatches()) * serial_time_of(microbatch{0});
        duration total{};
        for (const microbatch m : graph.all_microbatches())
            total += serial_time_of(m);
        return total;
    }
    /// Whether stages form a chain without groups, and all microbatches are equal. Stages may be frozen.
    [[nodiscard]] constexpr bool is_simple() const {
        if constexpr (!Graph::is_always_chain)
            if (!graph.is_chain()) return false;
        return microbatches.are_equal() && groups.empty();
    }
    /// The longest time that any of the stage's storage options adds, for recomputation and transfers.
    [[nodiscard]] constexpr duration longest_storage(stage s) const {
        duration longest{};
        for (std::size_t i = 0; i < storage_options(s); ++i)
            longest = std::max(longest, storage_of(s, i).extra_time());
        return longest;
    }
    /// The scale for comparisons of memory. The largest of the stashes, `kv`, the edges' `held`, the memory of the
    /// pairs, and the limits of device memory. A rank's limit counts up to the sum of its stashes, as a huge limit may
    /// mean "no limit".
    [[nodiscard]] constexpr memory_size memory_scale() const {
        memory_size largest{};
        per_rank<memory_size, Graph::rank_extent> all(graph.ranks());
        for (const stage s : graph.all_stages()) {
            const auto stash = std::max(costs[s].activation, costs[s].weight_stash);
            auto one = microbatches.has_slices() ? std::max(stash, costs[s].kv) : stash;
            graph.for_each_edge_out_of(s, [&](const edge& e) { one = std::max(one, e.held); });
            largest = std::max(largest, largest_memory_factor(s) * one);
            all[rank_of(s)] += memory_factor_sum(s) * stash;
        }
        for (const rank r : graph.all_ranks())
            if (!memory_limit[r].is_unlimited()) largest = std::max(largest, std::min(memory_limit[r], all[r]));
        for (const overlap& each : overlaps)
            largest = std::max(largest, each.memory);
        return largest;
    }

private:
    /// Duration of all operations, transfers and messages of one microbatch, one after the other.
    [[nodiscard]] constexpr duration serial_time_of(microbatch m) const {
        duration total{};
        for (const stage s : graph.all_stages()) {
            const auto& f = microbatches.factors(s, m);
            total += cost(s, m).work();
            total += std::max(f.forward, f.memory) * longest_storage(s);
            graph.for_each_edge_out_of(
                s, [&](const edge& e) { total += message_time(e, m) + gradient_message_time(e, m); });
            groups.for_each_member(s, [&](stage member, duration delay) {
                if (member == s) total += delay;
            });
        }
        return total;
    }
    /// The largest memory factor of the microbatches on a stage.
    [[nodiscard]] constexpr double largest_memory_factor(stage s) const {
        double largest = microbatches.has_factors() ? 0.0 : 1.0;
        if (microbatches.has_factors())
            for (const microbatch m : graph.all_microbatches())
                largest = std::max(largest, microbatches.factors(s, m).memory);
        return largest;
    }
    /// The sum of the memory factors of the microbatches on a stage.
    [[nodiscard]] constexpr double memory_factor_sum(stage s) const {
        if (!microbatches.has_factors()) return static_cast<double>(graph.microbatches());
        double sum = 0.0;
        for (const microbatch m : graph.all_microbatches())
            sum += microbatches.factors(s, m).memory;
        return sum;
    }
};

/// A problem with all extents dynamic, as read from a file.
using problem = basic_problem<any_graph>;

namespace detail {

/// A problem with the graph `shape` and these costs, and no storage options yet.
[[nodiscard]] problem without_storage(any_graph shape, const per_stage<stage_costs>& costs);
void add_storage(problem& to, stage s, const storage_option& option);
void add_group(problem& to, const std::vector<stage>& members, duration delay);
/// `sequence[m]` is the index of the sequence of microbatch m.
void set_microbatches(problem& to, const std::vector<cost_factors>& factors, bool by_stage,
                      const std::vector<std::uint32_t>& sequence);
/// `matrix` has the same form as for `hop_times`.
void set_hop_times(problem& to, const std::vector<duration>& matrix);

template <pipeline_graph Graph> void copy_microbatches(const basic_problem<Graph>& p, problem& to) {
    if (p.microbatches.are_equal()) return;
    std::vector<cost_factors> factors;
    if (p.microbatches.has_factors())
        for (const stage s : p.graph.all_stages())
            for (const microbatch m : p.graph.all_microbatches())
                if (p.microbatches.is_by_stage() || s == stage{}) factors.push_back(p.microbatches.factors(s, m));
    std::vector<std::uint32_t> sequence;
    for (const microbatch m : p.graph.all_microbatches())
        sequence.push_back(p.microbatches.slice_before(m) ? sequence.back() : m.value());
    set_microbatches(to, factors, p.microbatches.is_by_stage(), sequence);
}

template <pipeline_graph Graph> void copy_hop_times(const basic_problem<Graph>& p, problem& to) {
    if (p.p2p.is_uniform()) {
        to.p2p = hop_times<>{p.p2p.uniform()};
        return;
    }
    std::vector<duration> matrix;
    for (const rank a : p.graph.all_ranks())
        for (const rank b : p.graph.all_ranks())
            matrix.push_back(p.p2p(a, b));
    set_hop_times(to, matrix);
}

} // namespace detail

/// The problem `p` with all extents dynamic.
template <pipeline_graph Graph> [[nodiscard]] problem to_problem(const basic_problem<Graph>& p) {
    per_stage<stage_costs> costs(p.graph.stages());
    for (const stage s : p.graph.all_stages())
        costs[s] = p.costs[s];
    problem result = detail::without_storage(to_any_graph(p.graph), costs);
    detail::copy_microbatches(p, result);
    p.groups.for_each_group(
        [&](const std::vector<stage>& members, duration delay) { detail::add_group(result, members, delay); });
    for (const overlap& each : p.overlaps)
        result.overlaps.add(each);
    detail::copy_hop_times(p, result);
    for (const stage s : p.graph.all_stages())
        for (const storage_option& each : p.storage[s])
            detail::add_storage(result, s, each);
    result.split_backward = p.split_backward;
    result.full_backward = p.full_backward;
    for (const rank r : p.graph.all_ranks()) {
        result.memory_limit[r] = p.memory_limit[r];
        result.host_memory_limit[r] = p.host_memory_limit[r];
        result.transfer.link[r] = p.transfer.link[r];
    }
    result.transfer.engines = p.transfer.engines;
    result.transfer.duplex = p.transfer.duplex;
    result.objective = p.objective;
    result.name = p.name;
    result.time_unit = p.time_unit;
    result.memory_unit = p.memory_unit;
    return result;
}

/// Whether `is_meant(option)` is true for any storage option of any stage.
template <pipeline_graph Graph, class Predicate>
[[nodiscard]] constexpr bool any_storage_option(const basic_problem<Graph>& p, Predicate is_meant) {
    return std::any_of(p.storage.begin(), p.storage.end(),
                       [&](const auto& options) { return std::any_of(options.begin(), options.end(), is_meant); });
}
/// The transfer times of an entire stash. Empty if the stage has no option that offloads entire stashes.
template <pipeline_graph Graph>
[[nodiscard]] constexpr std::optional<transfer_times> stash_transfer(const basic_problem<Graph>& p, stage s) {
    const auto offload = p.whole_offload(s);
    return offload ? p.storage_of(s, *offload).transfer : std::optional<transfer_times>{};
}
/// Whether some option of `p` offloads.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool offloads_anything(const basic_problem<Graph>& p) {
    return any_storage_option(p, [](const storage_option& o) { return o.offloads(); });
}

/// Whether the problem would be plain (`is_plain`) without its pairs.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool is_plain_without_pairs(const basic_problem<Graph>& p) {
    return p.is_simple() && std::all_of(p.costs.begin(), p.costs.end(),
                                        [](const stage_costs& c) { return c.gradients == gradient_kind::full; });
}
/// Whether the problem is plain: its stages form a chain without groups and pairs, all stages compute weight gradients,
/// and all microbatches are equal.
template <pipeline_graph Graph> [[nodiscard]] constexpr bool is_plain(const basic_problem<Graph>& p) {
    return p.overlaps.empty() && is_plain_without_pairs(p);
}

} // namespace optpipe

#if OPTPIPE_DEFINES(pipeline)
namespace optpipe::detail {

OPTPIPE_INLINE problem without_storage(any_graph shape, const per_stage<stage_costs>& costs) {
    problem p{std::move(shape), costs};
    for (auto& options : p.storage)
        options.clear();
    return p;
}

OPTPIPE_INLINE void add_storage(problem& to, stage s, const storage_option& option) { to.storage[s].push_back(option); }

OPTPIPE_INLINE void add_group(problem& to, const std::vector<stage>& members, duration delay) {
    to.groups.add(members, delay, to.graph.stages());
}

OPTPIPE_INLINE void set_microbatches(problem& to, const std::vector<cost_factors>& factors, bool by_stage,
                                     const std::vector<std::uint32_t>& sequence) {
    if (by_stage)
        to.microbatches.set_factors_by_stage(factors, to.graph.microbatches());
    else
        to.microbatches.set_factors(factors);
    to.microbatches.set_sequences(sequence);
}

OPTPIPE_INLINE void set_hop_times(problem& to, const std::vector<duration>& matrix) {
    to.p2p = hop_times<>{to.graph.ranks(), matrix};
}

} // namespace optpipe::detail
#endif
