#pragma once

#include "optpipe/core/index.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace optpipe::libtorch {

/// The planned number of bytes, and the largest measured number.
struct planned_bytes {
    std::size_t planned = 0, measured = 0;
};
/// The largest number of bytes in a rank's stashes at the same time.
struct rank_bytes {
    optpipe::rank rank{};
    planned_bytes device{}, host{};
};
/// Bytes of a stash on the device after forward, recomputation and input gradient.
struct stash_bytes {
    optpipe::stage stage{};
    std::string option{};
    planned_bytes after_forward{}, after_recompute{}, after_input_gradient{};
};
/// The measured and planned sizes of the saved tensors.
struct stash_report {
    std::vector<rank_bytes> ranks;
    /// One entry per stage and storage option of the plan.
    std::vector<stash_bytes> stashes;
};

/// Returns one line per rank, and one per stage and storage option.
[[nodiscard]] inline std::string describe(const stash_report& of) {
    const auto both = [](const planned_bytes& each) {
        return std::to_string(each.measured) + " of " + std::to_string(each.planned);
    };
    std::string text;
    for (const auto& each : of.ranks)
        text += "rank " + std::to_string(each.rank.value()) + ": " + both(each.device) + " planned bytes at once, " +
                both(each.host) + " on the host\n";
    for (const auto& each : of.stashes) {
        text += "stage " + std::to_string(each.stage.value()) + ", " + each.option + ": " + both(each.after_forward) +
                " bytes after F, ";
        if (each.after_recompute.measured > 0) text += both(each.after_recompute) + " after RECOMPUTE, ";
        text += both(each.after_input_gradient) + " after I\n";
    }
    return text;
}

} // namespace optpipe::libtorch
