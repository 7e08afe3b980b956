#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/exact_search.hpp"
#include "optpipe/planner/local_search.hpp"
#include "optpipe/planner/milp_search.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/planner/periodic_core.hpp"
#include "optpipe/planner/widened_builders.hpp"
#include "optpipe/planner/window_search.hpp"
#include "optpipe/schedule/bounds/propagation.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

namespace optpipe {
namespace detail {

[[nodiscard]] inline std::size_t cells_of(const problem& p) { return p.graph.stages() * p.graph.microbatches(); }

} // namespace detail

/// `propagation_bound` as a part: once in the life of the part, as it finds the same whenever it is run. It can't be
/// interrupted, so it isn't begun when it would take several times as long as there is time for its turn.
class propagation_part {
public:
    static constexpr std::string_view name = "propagation";
    [[nodiscard]] static bool suits(const problem& p) { return detail::cells_of(p) <= 10'000; }

    void operator()(search_board& board, const part_options&) const {
        const auto cells = static_cast<double>(detail::cells_of(board.to_solve()));
        constexpr double seconds_per_square = 1.5e-7; // two or three seconds for 32 ranks and 128 microbatches
        const std::chrono::duration<double> expected{seconds_per_square * cells * cells};
        constexpr double patience = 4.0; // of who gives turns
        const auto left = board.limits().deadline - std::chrono::steady_clock::now();
        if (patience * left < expected || done_->exchange(true)) return;
        board.raise_bound(std::min(propagation_bound(board.to_solve(), board.bound()), board.objective()), name);
    }

private:
    std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(false);
};

/// `exact_search` as a part.
struct exact_part {
    static constexpr std::string_view name = "exact";
    static constexpr double share = 2.0;
    [[nodiscard]] static bool suits(const problem& p) { return detail::cells_of(p) <= 400; }
    /// In large problems the first propagation alone takes seconds.
    [[nodiscard]] static std::size_t first_effort(const problem& p) {
        const auto cells = detail::cells_of(p);
        return cells > 130 ? 0 : std::max<std::size_t>(10, 800 / cells);
    }
    [[nodiscard]] static bool steady(const problem& p) { return detail::cells_of(p) <= 130; }
    void operator()(search_board& board, const part_options& options) const {
        exact_search(board, {.seed = options.seed, .conflicts = options.effort});
    }
};

/// `local_search` as a part.
struct local_search_part {
    static constexpr std::string_view name = "local-search";
    static constexpr bool draws = true;
    [[nodiscard]] static std::size_t first_effort(const problem& p) {
        const auto cells = detail::cells_of(p);
        return std::max<std::size_t>(10, std::min(400'000 / cells, 32'000'000 / (cells * cells)));
    }
    void operator()(search_board& board, const part_options& options) const {
        local_search(board, {.seed = options.seed, .moves = options.effort});
    }
};

/// `periodic_core` as a part, for steps that are longer than their ends.
struct periodic_part {
    static constexpr std::string_view name = "periodic";
    static constexpr double share = 0.5;
    [[nodiscard]] static bool suits(const problem& p) { return p.graph.microbatches() >= 2 * p.graph.ranks(); }
    [[nodiscard]] static std::size_t first_effort(const problem&) { return 50'000; }
    void operator()(search_board& board, const part_options& options) const {
        const auto moves = options.effort / 10;
        const auto seed = options.seed;
        periodic_core(board, {.seed = seed, .effort = options.effort, .improve = [moves, seed](search_board& shorter) {
                                  local_search(shorter, {.seed = seed, .moves = moves});
                              }});
    }
};

/// `window_search` as a part.
struct window_part {
    static constexpr std::string_view name = "windows";
    static constexpr bool draws = true;
    /// A single window may take a tenth of a second.
    [[nodiscard]] static std::size_t first_effort(const problem&) { return 0; }
    void operator()(search_board& board, const part_options& options) const {
        window_search(board, {.seed = options.seed, .windows = options.effort});
    }
};

/// `milp_part`, whose effort is time.
struct timed_milp_part : milp_part {
    static constexpr bool timed = true;
    static constexpr double share = 0.5;
};

static_assert(check_search_part<timed_milp_part>() && has_timed<timed_milp_part>);
static_assert(check_search_part<propagation_part>() && check_search_part<exact_part>() &&
              check_search_part<local_search_part>() && check_search_part<periodic_part>() &&
              check_search_part<window_part>());

} // namespace optpipe
