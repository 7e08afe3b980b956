#pragma once

#include "optpipe/planner/background_planner.hpp"
#include "optpipe/schedule/profile/drift.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace optpipe {

/// Options for measuring costs again and for switching plans. Defaults without a reason or measurement in their comment
/// are not tuned.
struct online_options {
    /// How rank 0 plans during training. Contract: `plan_options::robust` isn't set.
    background_options planning{};
    /// Whether the initial costs were measured, here or in an earlier run. Plans for measured costs are offered at
    /// once. If false, plans are only offered after a comparison of the costs with measurements.
    bool costs_are_measured = false;
    /// Every n-th step is measured, n ≥ 1. With a larger number, drift is found later, but ranks send fewer reports.
    std::size_t measure_every = 2;
    /// Number of measured steps ignored at the start: the first steps are slower.
    std::size_t warm_up = 1;
    /// Least number of measured steps for taking and comparing costs, at least 2. With few microbatches, more steps are
    /// needed until `drift` has enough samples. With a larger window, smaller changes are found, but later: with steps
    /// that vary by 1 %, three steps show changes of 23 %, and six of 3 % (`drift`).
    std::size_t window = 6;
    /// Confidence of comparisons. False alarms must be rare: costs are compared after every measured step.
    drift_options drift{.confidence = 0.99};
    /// Share of the training time spent on measuring transfers outside the plan (`probe_rounds`), from 0 to 1. With a
    /// share of 0, no transfers outside the plan are measured. With a larger share, ranks notice faster links sooner.
    /// Example: 0.005 means a probe every 29 steps if a step takes seven times the longest round trip to the host.
    double probe_share = 0.005;
    /// A transfer has changed if two consecutive probes deviate by more than this share, in the same direction. With a
    /// smaller value, smaller changes lead to new plans. If durations have a standard deviation of 10 %, one probe in
    /// 80 deviates by more than 0.25.
    double least_probed_change = 0.25;
    /// The least share of the step time that a better plan must save.
    double least_gain = 0.01;
    /// A plan is used when the search ends or has found no better plan for this number of steps. Plans aren't used
    /// earlier, because a search improves quickly at first.
    std::size_t calm_steps = 5;
    /// Whether plans must add up each stage's weight gradients in the order of the first schedule. If true, training is
    /// bitwise the same as without switches. In the best plans with offloading, microbatches overtake each other.
    /// `keep_accumulation_order` often excludes the best plans. If true, `background_options::adapt` is replaced.
    bool keep_accumulation_order = false;
    /// Total number of training steps, if known. Near the end, a switch takes more time than it saves.
    std::optional<std::uint64_t> steps{};
};

/// A decision, and the time at which it was made.
struct online_event {
    enum class kind_type : std::uint8_t {
        costs,    ///< measured costs that are used for planning from now on
        drift,    ///< measured times differ from the times of the plan
        publish,  ///< a plan is worth a switch
        declined, ///< the best plan isn't worth a switch, or not yet (the log gives the reason)
        accepted, ///< all ranks run the plan
        refused,  ///< a rank can't run the plan, so all ranks keep the old plan
        gain,     ///< the gain of a switch is known
        failure,  ///< no plan could be made
    };
    /// Number of steps that had ended when the decision was made.
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
