#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/online/options.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/planner/background_planner.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/profile/cost_profile.hpp"
#include "optpipe/schedule/profile/drift.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace optpipe {

/// A plan, and the costs for which it was made.
struct online_plan {
    optpipe::problem problem{};
    std::shared_ptr<const optpipe::schedule> schedule{};
    /// Step times of this plan and of the plan in use, in the problem's unit.
    duration objective{};
    duration present{};
    std::string method{};
};

/// Makes the decisions of rank 0 during training. Maintains the costs of operations, and decides when to plan again and
/// when to switch. The controller has no access to ranks or clocks.
///
/// The controller plans from the first step on, at first with the given costs. If the given costs are guesses, they are
/// compared with measured costs before a plan is offered. After `warm_up` and at least `window` measured steps, the
/// controller plans again if costs have changed. After each further measured step, a statistical test (`drift`) looks
/// for changed costs. If the changes may be worth a switch, a new window is measured. A search with the new costs
/// starts from the plan in use. Rare transfers and pairs are compared over more steps. Transfers that the plan doesn't
/// use are probed by the ranks (`probe_rounds`).
class online_controller {
public:
    /// `first` is the schedule with which training starts.
    online_controller(problem p, const schedule& first, online_options options);

    /// Reports the end of a step that took `seconds`.
    void add_step(double seconds);
    /// Reports what all ranks have measured in a step of the plan in use.
    void add_measured(std::uint64_t step, const schedule& measured, std::vector<cost_sample<rank_pair>> messages);

    /// Reports the probed times of a transfer that the plan in use doesn't have. `offload` names the transfer's stage
    /// and storage option. Costs that have changed in two consecutive probes lead to a new plan at once.
    void add_probe(std::uint64_t step, const operation& offload, const transfer_times& took);

    /// Returns the next plan that is worth a switch, if any. Returns no further plan until the last plan is `settled`.
    [[nodiscard]] std::optional<online_plan> next_plan();
    /// Reports whether the published plan was accepted, and the reasons for a refusal. `seconds` is the duration of the
    /// exchange.
    void settled(bool accepted, const std::vector<std::string>& refusals, double seconds);

    [[nodiscard]] const std::vector<online_event>& log() const { return log_; }
    /// The problem with the costs currently used for planning.
    [[nodiscard]] const problem& present_problem() const { return problem_; }
    [[nodiscard]] const schedule& present_schedule() const { return *present_; }
    [[nodiscard]] const background_planner& planner() const { return planner_; }
    [[nodiscard]] std::uint64_t steps() const { return step_; }

private:
    /// Number of recent steps from which the duration of a step is estimated.
    static constexpr std::size_t most_recent = 20;
    /// Number of steps after a switch until its gain is reported. The first steps after a switch are slower. The median
    /// of only three steps didn't show a gain of 10 % (bench_online).
    static constexpr std::size_t gain_steps = 10;

    void take_costs(const std::vector<drifted_cost>& found);
    void plan_with(const cost_profile& measured, const std::vector<drifted_cost>& found);
    /// The measured costs that have drifted. A drifted cost differs both from its planned value and from the
    /// measurement behind this value.
    [[nodiscard]] std::vector<drifted_cost> drifted(const cost_profile& measured) const;
    void submit();
    [[nodiscard]] static background_options planning_of(const online_options& options, const schedule& first);
    [[nodiscard]] duration objective_in(const problem& p) const;
    void forget_measured();
    /// Adds a probed cost that has changed in two consecutive probes (see `least_probed_change`). The probe nearer to
    /// the plan counts: another transfer may have slowed down a probe.
    void add_changed(measured_costs& to, const cost_key& key, duration took);
    /// Collects samples of transfers that are too rare for a window. If the problem has pairs, rare pairs and
    /// operations are collected, too. Transfers that shared their link are left out.
    void add_rare(std::uint64_t step);
    /// All measurements of the current window, with the samples of rare operations from earlier steps.
    [[nodiscard]] cost_profile all_measured() const;
    /// Plans with the costs of rare operations as soon as there are enough samples.
    void compare_rare();
    /// Number of samples for the confidence interval of a comparison. With n samples, the interval from the least to
    /// the largest sample has confidence 1 − 2^(1−n).
    [[nodiscard]] static std::size_t samples_needed(const problem& p, const online_options& options);
    /// Number of measured steps that yield `samples` samples of each operation, at least `online_options::window`
    /// and 2.
    [[nodiscard]] static std::size_t window_steps(const problem& p, const online_options& options, std::size_t samples);
    /// Whether the changes in `found` may be worth a switch. A step's duration changes by at most the sum of the
    /// changes of its operations and messages. A cost change of d can make one schedule shorter by d and another longer
    /// by d.
    [[nodiscard]] bool matters(const std::vector<drifted_cost>& found) const;
    /// The standard error of the step time, relative to the step time. A gain smaller than this noise couldn't be
    /// observed.
    [[nodiscard]] double noise() const;
    /// The reason why a plan isn't worth a switch now. Empty if the plan is worth a switch. The reason may disappear as
    /// noise decreases.
    [[nodiscard]] std::string why_not(duration objective) const;
    /// Logs the reason why a plan is declined, once for each plan. Returns no plan.
    std::optional<online_plan> decline(const background_plan& plan, const std::string& why);
    /// Whether the remaining training saves more time than the slowest switch has taken.
    [[nodiscard]] bool pays_back(double share) const;
    void report_gain();
    [[nodiscard]] static double median(const std::deque<double>& of);
    [[nodiscard]] std::string spelled(duration d) const;
    /// A sentence that states the largest change and the number of other changes.
    [[nodiscard]] static std::string sentence_of(const std::vector<drifted_cost>& found);
    void log(online_event::kind_type kind, std::string text) { log_.push_back({step_, kind, std::move(text)}); }

    static constexpr int digits = 4;

    online_options options_;
    problem problem_;
    std::shared_ptr<const schedule> present_;
    std::size_t samples_;
    std::size_t window_steps_;
    /// Step time of the plan in use, with the costs used for planning.
    duration now_{};
    cost_profile window_;
    /// Samples of transfers and pairs that are too rare for a window.
    cost_profile rare_;
    /// Duration of a transfer in its last probe, if the duration deviated from the plan by more than
    /// `least_probed_change`.
    std::map<cost_key, duration> suspected_{};
    /// Measured times that the costs can't express, indexed by the name of the cost. Example: a full backward in a plan
    /// with split backwards takes longer than I plus W.
    std::map<std::string, duration> unexplained_{};
    std::uint64_t measured_ = 0;
    /// Whether the costs for planning will be taken from the current window.
    bool takes_costs_ = true;
    /// Whether the first costs were measured, or have been compared with measured costs.
    bool has_compared_;
    std::uint64_t step_ = 0;
    /// Durations of the last steps of the plan in use, in seconds.
    std::deque<double> recent_{};
    double before_ = 0.0;
    bool gain_due_ = false;
    double dearest_switch_ = 0.0;
    std::uint64_t planner_version_ = 0;
    /// Versions of the last published plan and of the last declined plan.
    std::uint64_t considered_ = 0;
    std::uint64_t declined_ = 0;
    std::size_t calm_ = 0;
    bool has_failed_ = false;
    std::optional<online_plan> published_{};
    std::vector<online_event> log_{};
    background_planner planner_;
};

} // namespace optpipe

#if OPTPIPE_DEFINES(online)
#include "optpipe/core/contract.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/schedule/construct/accumulation_order.hpp"
#include "optpipe/schedule/profile/estimate.hpp"
#include "optpipe/schedule/profile/measured_costs.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace optpipe {

OPTPIPE_INLINE online_controller::online_controller(problem p, const schedule& first, online_options options)
    : options_{std::move(options)}, problem_{std::move(p)}, present_{std::make_shared<const schedule>(first)},
      samples_{samples_needed(problem_, options_)},
      window_steps_{window_steps(problem_, options_, samples_)}, window_{window_steps_}, rare_{samples_},
      has_compared_{options_.costs_are_measured}, planner_{planning_of(options_, first)} {
    rare_.set_warm_up(0);
    submit();
}

OPTPIPE_INLINE void online_controller::add_step(double seconds) {
    ++step_;
    recent_.push_back(seconds);
    if (recent_.size() > most_recent) recent_.pop_front();
    if (gain_due_ && recent_.size() == gain_steps) report_gain();
    const auto latest = planner_.poll().version;
    calm_ = latest == std::exchange(planner_version_, latest) ? calm_ + 1 : 0;
}

OPTPIPE_INLINE void online_controller::add_measured(std::uint64_t step, const schedule& measured,
                                                    std::vector<cost_sample<rank_pair>> messages) {
    if (++measured_ <= options_.warm_up) return;
    window_.add(problem_, step, measured, std::move(messages));
    window_.set_warm_up(0);
    add_rare(step);
    if (window_.steps() < window_steps_) return;
    const auto found = drifted(window_);
    if (takes_costs_) return take_costs(found);
    if (!matters(found)) return compare_rare();
    log(online_event::kind_type::drift, sentence_of(found));
    forget_measured();
    takes_costs_ = true;
    recent_.clear(); // the recent steps were measured with other costs
}

OPTPIPE_INLINE void online_controller::add_probe(std::uint64_t step, const operation& offload,
                                                 const transfer_times& took) {
    auto reload = offload;
    reload.kind = operation_kind::reload;
    measured_costs changed;
    add_changed(changed, detail::key_of(problem_, offload), took.offload);
    add_changed(changed, detail::key_of(problem_, reload), took.reload);
    if (changed.operations.empty()) return;
    cost_profile seen;
    seen.add(step, changed);
    std::vector<drifted_cost> found;
    for (const auto& [key, e] : seen.operations())
        found.push_back({to_string(problem_, key), detail::planned_time(problem_, key), e});
    if (!matters(found)) return;
    log(online_event::kind_type::drift, sentence_of(found) + ", probed");
    plan_with(seen, found);
}

OPTPIPE_INLINE std::optional<online_plan> online_controller::next_plan() {
    if (published_) return std::nullopt;
    const auto best = planner_.poll();
    if (!best.failure.empty() && !std::exchange(has_failed_, true)) log(online_event::kind_type::failure, best.failure);
    if (!has_compared_ || !best.schedule || best.version == considered_) return std::nullopt;
    if (!best.finished && calm_ < options_.calm_steps) return std::nullopt;
    if (const auto why = why_not(best.objective); !why.empty()) return decline(best, why);
    considered_ = best.version;
    published_.emplace(online_plan{problem_, best.schedule, best.objective, now_, best.method});
    log(online_event::kind_type::publish, best.method + ": " + spelled(now_) + " to " + spelled(best.objective) +
                                              " as planned, bound " + spelled(best.bound));
    return published_;
}

OPTPIPE_INLINE void online_controller::settled(bool accepted, const std::vector<std::string>& refusals,
                                               double seconds) {
    if (!published_) return;
    if (accepted) {
        dearest_switch_ = std::max(dearest_switch_, seconds);
        before_ = median(recent_);
        gain_due_ = true;
        recent_.clear();
        present_ = published_->schedule;
        // The measured costs are still valid after the switch: durations don't depend on the order.
        now_ = objective_in(problem_);
        log(online_event::kind_type::accepted, published_->method);
    } else {
        std::string why;
        for (const auto& each : refusals)
            why += (why.empty() ? "" : "; ") + each;
        log(online_event::kind_type::refused, why);
    }
    published_.reset();
}

OPTPIPE_INLINE void online_controller::take_costs(const std::vector<drifted_cost>& found) {
    takes_costs_ = false;
    has_compared_ = true;
    if (!found.empty()) plan_with(window_, found); // without changes, the plan's costs are right
}

OPTPIPE_INLINE void online_controller::plan_with(const cost_profile& measured, const std::vector<drifted_cost>& found) {
    problem_ = with_measured_costs(std::move(problem_), measured);
    for (const auto& each : found)
        unexplained_.erase(each.name);
    for (const auto* profile : {&measured, &std::as_const(rare_)}) // with fewer costs to compare, fewer samples suffice
        for (const auto& each : drift(problem_, *profile, options_.drift))
            unexplained_[each.name] = each.measured.median;
    log(online_event::kind_type::costs, sentence_of(found));
    submit();
}

OPTPIPE_INLINE std::vector<drifted_cost> online_controller::drifted(const cost_profile& measured) const {
    auto found = drift(problem_, measured, options_.drift);
    std::erase_if(found, [&](const drifted_cost& each) {
        const auto before = unexplained_.find(each.name);
        return before != unexplained_.end() &&
               std::abs(each.measured.median / before->second - 1.0) <= options_.drift.least_change;
    });
    return found;
}

OPTPIPE_INLINE void online_controller::submit() {
    now_ = objective_in(problem_);
    planner_.submit(problem_, *present_);
    calm_ = 0;
    has_failed_ = false;
}

OPTPIPE_INLINE background_options online_controller::planning_of(const online_options& options, const schedule& first) {
    OPTPIPE_EXPECT(!options.planning.how.robust, "online_controller: compares plans by their objectives alone");
    OPTPIPE_EXPECT(options.drift.confidence > 0.0 && options.drift.confidence < 1.0,
                   "online_controller: the confidence is between 0 and 1");
    auto how = options.planning;
    if (options.keep_accumulation_order)
        how.adapt = [wanted = accumulation_order_of(first)](const problem& p,
                                                            const std::shared_ptr<const schedule>& found) {
            auto alike = with_accumulation_order(p, *found, wanted);
            return alike ? std::make_shared<const schedule>(*std::move(alike)) : nullptr;
        };
    return how;
}

OPTPIPE_INLINE duration online_controller::objective_in(const problem& p) const {
    const auto timed = retime(p, *present_);
    return timed ? objective_of(p, *timed) : duration::unlimited();
}

OPTPIPE_INLINE void online_controller::forget_measured() {
    window_ = cost_profile{window_steps_};
    rare_ = cost_profile{samples_};
    rare_.set_warm_up(0);
}

OPTPIPE_INLINE void online_controller::add_changed(measured_costs& to, const cost_key& key, duration took) {
    const auto planned = detail::planned_time(problem_, key);
    const auto before = suspected_.find(key);
    if (took == planned || std::abs(took / planned - 1.0) <= options_.least_probed_change) {
        suspected_.erase(key);
    } else if (before == suspected_.end() || (before->second < planned) != (took < planned)) {
        suspected_[key] = took;
    } else {
        to.operations.push_back(
            {key, took < planned ? std::max(took, before->second) : std::min(took, before->second)});
        suspected_.erase(before);
    }
}

OPTPIPE_INLINE void online_controller::add_rare(std::uint64_t step) {
    const auto measured = window_.measured_steps().find(step);
    if (measured == window_.measured_steps().end()) return; // the step is older than the window
    const auto& all = measured->second.operations;
    // Transfers may be too rare for a window. If the problem has pairs, any kind of operation and any pair may be too
    // rare.
    const auto may_be_rare = [&](const auto& sample) {
        return (is_transfer(sample.of.kind) || !problem_.overlaps.empty()) && !sample.of.shared;
    };
    std::map<cost_key, std::size_t> count;
    for (const auto& sample : all)
        if (may_be_rare(sample)) ++count[sample.of];
    measured_costs few;
    for (const auto& sample : all)
        if (may_be_rare(sample) && count[sample.of] * window_steps_ < samples_) few.operations.push_back(sample);
    if (!few.operations.empty()) rare_.add(step, few);
}

OPTPIPE_INLINE cost_profile online_controller::all_measured() const {
    cost_profile all{samples_ + window_steps_};
    all.set_warm_up(0);
    all.merge(window_);
    for (const auto& [step, few] : rare_.measured_steps())
        if (!window_.measured_steps().contains(step)) all.add(step, few);
    return all;
}

OPTPIPE_INLINE void online_controller::compare_rare() {
    const auto found = drifted(rare_);
    if (!matters(found)) return;
    log(online_event::kind_type::drift, sentence_of(found));
    plan_with(all_measured(), found);
    forget_measured();
    recent_.clear(); // the recent steps were measured with other costs
}

OPTPIPE_INLINE std::size_t online_controller::samples_needed(const problem& p, const online_options& options) {
    // Estimate of the number of costs per stage that `drift` compares. An estimate suffices: the number of samples
    // grows only with its logarithm.
    constexpr double numbers_per_stage = 7.0;
    const double numbers =
        numbers_per_stage * static_cast<double>(p.graph.stages()) + static_cast<double>(p.overlaps.size());
    return 1 + static_cast<std::size_t>(std::ceil(std::log2(numbers / (1.0 - options.drift.confidence))));
}

OPTPIPE_INLINE std::size_t online_controller::window_steps(const problem& p, const online_options& options,
                                                           std::size_t samples) {
    const auto each = p.graph.microbatches();
    constexpr std::size_t least = 2; // for `drift`
    return std::max({options.window, least, (samples + each - 1) / each});
}

OPTPIPE_INLINE bool online_controller::matters(const std::vector<drifted_cost>& found) const {
    if (found.empty() || now_.is_unlimited()) return !found.empty();
    duration apart{};
    for (const auto& each : found)
        apart += each.change();
    // For each of its stages and each microbatch, a rank has at most one changed operation or two changed messages.
    const auto& graph = problem_.graph;
    const auto stages_on_rank = (graph.stages() + graph.ranks() - 1) / graph.ranks();
    const auto most = 2.0 * static_cast<double>(stages_on_rank * graph.microbatches());
    return 2.0 * most * apart > options_.least_gain * now_;
}

OPTPIPE_INLINE double online_controller::noise() const {
    if (recent_.size() < 2) return 0.0;
    const std::vector<double> all(recent_.begin(), recent_.end());
    const double center = detail::median_of(all);
    return center > 0.0 ? detail::spread_of(all, center) / center / std::sqrt(static_cast<double>(all.size())) : 0.0;
}

OPTPIPE_INLINE std::string online_controller::why_not(duration objective) const {
    if (now_.is_unlimited()) return {};
    const auto share = (now_ - objective) / now_;
    const auto percent = [](double of) { return format_number(100.0 * of, digits) + " %"; };
    if (!(share > options_.least_gain))
        return "it saves " + percent(share) + ", less than " + percent(options_.least_gain);
    if (const auto hidden = noise(); !(share > hidden))
        return "it saves " + percent(share) + ", and steps vary so much that less than " + percent(hidden) +
               " can't be seen";
    if (!pays_back(share)) return "too few steps are left to pay for the switch";
    return {};
}

OPTPIPE_INLINE std::optional<online_plan> online_controller::decline(const background_plan& plan,
                                                                     const std::string& why) {
    if (std::exchange(declined_, plan.version) != plan.version)
        log(online_event::kind_type::declined, plan.method + ": " + why);
    return std::nullopt;
}

OPTPIPE_INLINE bool online_controller::pays_back(double share) const {
    if (!options_.steps || recent_.empty()) return true;
    const auto left = *options_.steps > step_ ? static_cast<double>(*options_.steps - step_) : 0.0;
    return left * share * median(recent_) > dearest_switch_;
}

OPTPIPE_INLINE void online_controller::report_gain() {
    gain_due_ = false;
    const double after = median(recent_);
    log(online_event::kind_type::gain,
        "measured " + format_number(1e3 * before_, digits) + " to " + format_number(1e3 * after, digits) + " ms");
}

OPTPIPE_INLINE double online_controller::median(const std::deque<double>& of) {
    return of.empty() ? 0.0 : detail::median_of(std::vector<double>(of.begin(), of.end()));
}

OPTPIPE_INLINE std::string online_controller::spelled(duration d) const {
    return format_number(d, digits) + (problem_.time_unit.empty() ? "" : " " + problem_.time_unit);
}

OPTPIPE_INLINE std::string online_controller::sentence_of(const std::vector<drifted_cost>& found) {
    const auto most = std::max_element(found.begin(), found.end(),
                                       [](const auto& a, const auto& b) { return a.change() < b.change(); });
    const auto others = found.size() - 1;
    return describe(*most) + (others == 0 ? "" : " and " + std::to_string(others) + " more");
}

} // namespace optpipe
#endif
