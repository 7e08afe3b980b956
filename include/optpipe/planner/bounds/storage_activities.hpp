#pragma once

#include "optpipe/core/quantity.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/bounds/memory_packing.hpp"
#include "optpipe/schedule/bounds/time_windows.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace optpipe::detail {

/// The activities of one microbatch on one stage.
enum activity : std::size_t {
    run_forward,
    run_gradient,
    run_weight,
    run_recompute,
    run_offload,
    run_reload,
    activities,
};
[[nodiscard]] constexpr bool is_copy(std::size_t kind) { return kind == run_offload || kind == run_reload; }

/// The part of a rank's window in which an activity can take place. The activity starts at least `head` after the
/// window's start, and ends at least `tail` before the window's end.
struct activity_window {
    double head = 0.0;
    double tail = 0.0;
};

/// The least time and memory of a microbatch with one storage option of a stage. Sizes are in cells of the rank's
/// memory. `cells` has the size of the stash during each activity. If backwards may be split, a B counts as an I
/// followed at once by its W. An option has a second entry, with the full B, if I and W hold more memory than a full B.
/// The full B counts as a gradient without W.
struct option_needs {
    /// The index of the rank in `group_needs`.
    std::size_t rank = 0;
    std::size_t stage = 0;
    /// Durations of the activities. An activity that doesn't occur has duration 0.
    std::array<double, activities> length{};
    std::array<std::size_t, activities> cells{};
    std::array<activity_window, activities> window{};
    bool offloads = false;
    /// Whether the host has room for a stash, if the option offloads.
    bool fits_host = true;
    /// The least time from the end of F to the start of I.
    double wait = 0.0;
    activity_window waiting{};
    std::size_t held = 0;
    std::size_t left = 0;
    std::size_t restored = 0;
    /// Memory of the weight stash between I and W, in cells of the memory grid.
    std::size_t pending = 0;
};

/// All options of the stages of one rank, or of the ranks that share a link.
struct group_needs {
    std::vector<option_needs> options{};
    std::vector<std::size_t> stages{};
    /// The cells of each rank's memory.
    std::vector<std::size_t> cells{};
};

/// Adds the needs of rank `r`. `relaxed` is a relaxation of `p` (`without_storage`). `windows` are the time windows of
/// `relaxed`, for the complete step or for rank `r`.
template <pipeline_graph Graph>
void add_needs(group_needs& group, const basic_problem<Graph>& p, const basic_problem<Graph>& relaxed, rank r,
               const time_windows<Graph>& windows) {
    const auto slack = tolerance{}.at(p.memory_scale());
    const bool limited = !p.memory_limit[r].is_unlimited();
    std::vector<double> sizes;
    for (const stage s : p.graph.all_stages())
        if (p.rank_of(s) == r)
            for (std::size_t i = 0; i < p.storage_options(s); ++i) {
                const auto o = p.storage_of(s, i);
                const memory_size levels[] = {o.held, o.left_on_device(), o.restored(p.costs[s]),
                                              p.costs[s].weight_stash};
                for (const auto size : levels)
                    sizes.push_back(size.value());
            }
    const memory_grid grid = limited ? memory_grid{sizes, p.memory_limit[r].value(), slack.value()} : memory_grid{};
    const auto cells = [&](memory_size size) { return limited ? grid.cells_of(size.value()) : std::size_t{0}; };
    const auto paths = paths_of(relaxed);
    const auto last = p.graph.microbatches() - 1;
    const auto place = group.cells.size();
    group.cells.push_back(grid.cells());
    bool is_first = true;
    for (const stage s : p.graph.all_stages()) {
        if (p.rank_of(s) != r) continue;
        group.stages.push_back(s.position());
        const auto& c = p.costs[s];
        const auto gradient = relaxed.gradient_time(s);
        const auto& f = windows.forward(s);
        const auto& g = windows.gradient(s);
        const activity_window inner{(f.head[0] + c.forward).value(), (g.tail[last] + gradient).value()};
        // The least time from the end of a full B to the end of the window. No W follows a full B.
        const bool hands_on = !p.is_first(s) && !(is_first && p.objective == objective_kind::span);
        is_first = false;
        const double after_whole = hands_on ? (relaxed.hop(s, s.previous()) + relaxed.gradient_time(s.previous()) +
                                               windows.gradient(s.previous()).tail[last])
                                                  .value()
                                            : 0.0;
        for (std::size_t i = 0; i < p.storage_options(s); ++i) {
            const auto o = p.storage_of(s, i);
            option_needs n;
            n.rank = place;
            n.stage = s.position();
            n.held = cells(o.held);
            n.left = cells(o.left_on_device());
            n.restored = cells(o.restored(c));
            n.pending = cells(c.weight_stash);
            n.wait = (paths.lifespan[s] - c.forward - gradient).value();
            n.waiting = inner;
            n.offloads = o.offloads();
            n.fits_host = !n.offloads || o.transfer_size <= p.host_memory_limit[r] + slack;
            n.length[run_forward] = c.forward.value();
            n.cells[run_forward] = n.held;
            n.window[run_forward] = {f.head[0].value(), f.tail[last].value()};
            n.length[run_gradient] = (p.gradient_time(s) + o.backward_extra).value();
            n.cells[run_gradient] = p.split_backward ? std::max(n.restored, n.pending) : n.restored;
            n.window[run_gradient] = {g.head[0].value(), g.tail[last].value()};
            if (p.split_backward) {
                n.length[run_weight] = c.backward_weight.value();
                n.cells[run_weight] = n.pending;
                n.window[run_weight] = {(g.head[0] + gradient).value(), 0.0};
            }
            n.length[run_recompute] = o.recompute.value();
            n.cells[run_recompute] = n.restored;
            n.window[run_recompute] = inner;
            if (o.transfer) {
                n.length[run_offload] = o.transfer->offload.value();
                n.length[run_reload] = o.transfer->reload.value();
                n.cells[run_offload] = n.cells[run_reload] = n.held;
                n.window[run_offload] = n.window[run_reload] = inner;
            }
            group.options.push_back(n);
            if (!p.split_backward || o.restored(c) >= c.weight_stash) continue;
            n.length[run_gradient] += n.length[run_weight];
            n.length[run_weight] = 0.0;
            n.cells[run_gradient] = n.restored;
            n.window[run_gradient].tail = after_whole;
            group.options.push_back(n);
        }
    }
}

} // namespace optpipe::detail
