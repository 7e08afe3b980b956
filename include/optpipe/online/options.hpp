#pragma once

#include "optpipe/planner/background_planner.hpp"
#include "optpipe/schedule/profile/drift.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace optpipe {

/// When costs are measured again, and when another plan is worth a switch.
struct online_options {
    /// How rank 0 plans beside the training. Contract: not for a percentile (`plan_options::robust`).
    background_options planning{};
    /// Whether the costs that it begins with were measured, here or in a run before, so that plans for them are offered
    /// at once. If not, they may be a guess, and none is offered before they have been compared.
    bool costs_are_measured = false;
    /// Every so many steps are measured. Fewer find drift later; each costs a text per rank.
    std::size_t measure_every = 2;
    /// Measured steps that are left out at first: what is used for the first time is slower.
    std::size_t warm_up = 1;
    /// Measured steps, at least, whose costs are taken and compared with those of the plan; with few microbatches as
    /// many more as `drift` needs samples. More tell smaller changes from noise, and later.
    std::size_t window = 3;
    /// As costs are compared at every measured step, false alarms must be rarer than in a single comparison.
    drift_options drift{.confidence = 0.99};
    /// The share of the training time for transfers that are measured although the plan has none of them
    /// (`probe_rounds`); 0: none. A link that the plan avoids, and that has become faster, is found sooner with more:
    /// with 0.005 a rank probes before every 29th step where a step takes seven times as long as the longest transfer
    /// to the host and back.
    double probe_share = 0.005;
    /// The least change of a probed transfer that counts, relative to what was planned with, twice in a row. Less
    /// follows smaller changes; but where durations vary by 10 % (their standard deviation) one probe in eighty is
    /// further off than this.
    double least_probed_change = 0.25;
    /// The least share of the step time that a better plan must save. Below it the next one is waited for.
    double least_gain = 0.01;
    /// A plan is taken when the search has ended, or found nothing better for so many steps: a search improves quickly
    /// at first.
    std::size_t calm_steps = 5;
    /// Only plans that add up the weight gradients of each stage in the order of the first schedule: the training goes
    /// on to the last bit as it would have without a switch. Where stashes are offloaded, the best plans often can't:
    /// microbatches overtake each other. Takes the place of `background_options::adapt`.
    bool keep_accumulation_order = false;
    /// How long the training is, if known: near its end no switch pays back what the dearest one so far took.
    std::optional<std::uint64_t> steps{};
};

/// What happened, and when.
struct online_event {
    enum class kind_type : std::uint8_t {
        costs,    ///< the measured costs that are planned with from here on
        drift,    ///< measured times have left those of the plan
        publish,  ///< a plan is worth a switch
        declined, ///< the best plan isn't worth a switch, or not yet: why
        accepted, ///< all ranks run it
        refused,  ///< a rank can't take it; all go on with the old one
        gain,     ///< what a switch brought
        failure,  ///< no plan could be made
    };
    /// Steps that had ended.
    std::uint64_t step = 0;
    kind_type kind = kind_type::costs;
    std::string text{};
};

[[nodiscard]] constexpr std::string_view spelling(online_event::kind_type kind) {
    switch (kind) {
    case online_event::kind_type::costs: return "costs";
    case online_event::kind_type::drift: return "drift";
    case online_event::kind_type::publish: return "publish";
    case online_event::kind_type::declined: return "declined";
    case online_event::kind_type::accepted: return "accepted";
    case online_event::kind_type::refused: return "refused";
    case online_event::kind_type::gain: return "gain";
    case online_event::kind_type::failure: return "failure";
    }
    return "";
}

} // namespace optpipe
