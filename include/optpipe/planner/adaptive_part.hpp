#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/board.hpp"
#include "optpipe/planner/part.hpp"
#include "optpipe/schedule/builders/adaptive.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace optpipe {

/// The constructive planner as a part of the search. It always begins anew, and never takes more than the builder's own
/// effort: others do better from there. With that and the same seed it finds what the builder finds.
struct adaptive_part {
    static constexpr std::string_view name = adaptive_builder<>::name;
    static constexpr double share = 0.25;
    static constexpr std::size_t most_effort = adaptive_builder<>{}.effort;
    /// The next round's is the builder's.
    [[nodiscard]] static std::size_t first_effort(const problem&) { return most_effort / 4; }

    void operator()(search_board& board, const part_options& options) const {
        adaptive_builder<> build;
        build.effort = std::min(options.effort, most_effort);
        build.seed = options.seed;
        if (const auto built = build(board.to_solve(), [&] { return board.done(); })) board.offer(*built, name);
    }
};
static_assert(check_search_part<adaptive_part>());

} // namespace optpipe
