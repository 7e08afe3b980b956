#pragma once

#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/rules/needed_options.hpp"
#include "optpipe/schedule/rules/overtaking.hpp"

namespace optpipe::cp {

/// Whether stashes of two options differ only in their transfers.
[[nodiscard]] inline bool differ_only_in_transfers(const storage_option& a, const storage_option& b) {
    return a.held == b.held && a.recompute == b.recompute && a.backward_extra == b.backward_extra;
}

/// The form of the model that proves bounds. The form is `pooled` (a relaxation) for plain problems in which a stage's
/// options differ only in transfers. For all other problems, the form is exact.
[[nodiscard]] inline overtaking bounding_form(const problem& p) {
    if (!is_plain(p)) return overtaking::allowed;
    const needed_options needed{p};
    for (const stage s : p.graph.all_stages())
        for (const auto o : needed.of(s))
            if (!differ_only_in_transfers(p.storage_of(s, needed.of(s).front()), p.storage_of(s, o)))
                return overtaking::allowed;
    return overtaking::pooled;
}

} // namespace optpipe::cp
