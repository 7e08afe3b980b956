#pragma once

#include "optpipe/planner/board.hpp"
#include "optpipe/planner/local_search/annealer.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace optpipe {

struct local_search_options {
    std::uint64_t seed = 1;
    /// How many moves are tried at most. Where this ends the search and nobody else offers, the result follows from
    /// problem and seed.
    std::size_t moves = std::numeric_limits<std::size_t>::max();
};

/// Improves the best schedule on the board by small changes of the ranks' sequences and of what is offloaded
/// (simulated annealing), until the board is done or the moves are spent. Starts from an own simple schedule where
/// there is none, and offers whatever is better than all that is known.
///
/// Single-threaded. Several may run on one board at once, best with different seeds.
inline void local_search(search_board& board, const local_search_options& options = {}) {
    if (!board.incumbent()) {
        const adaptive_builder<> quick{.effort = 1};
        const auto built = quick(board.to_solve(), [&] { return board.done(); });
        if (!built) return;
        board.offer(*built, "adaptive");
    }
    if (!board.incumbent() || board.done()) return;
    detail::annealer{board, options.seed, options.moves}.run();
}

} // namespace optpipe
