#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/pair.hpp"
#include "optpipe/schedule/profile/estimate.hpp"
#include "optpipe/schedule/schedule.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace optpipe {

/// A class of operations that should all take the same time.
struct cost_key {
    optpipe::stage stage{};
    operation_kind kind = operation_kind::forward;
    /// The storage option of a transfer, a recomputation, or a backward that recomputes. Empty for all other
    /// operations, whose duration doesn't depend on the option.
    std::optional<storage_index> storage{};
    /// For a transfer, whether another transfer was running on the same link.
    bool shared = false;
    /// For a pair, the stage of its forward. The members `stage` and `kind` describe the pair's backward.
    std::optional<optpipe::stage> forward{};
    friend auto operator<=>(const cost_key&, const cost_key&) = default;
    friend bool operator==(const cost_key&, const cost_key&) = default; // needed by nvcc, although <=> declares it
};

/// The sender and the receiver of messages.
struct rank_pair {
    rank from{};
    rank to{};
    friend auto operator<=>(const rank_pair&, const rank_pair&) = default;
    friend bool operator==(const rank_pair&, const rank_pair&) = default; // needed by nvcc, although <=> declares it
};

template <class Key> struct cost_sample {
    Key of{};
    duration took{};
    friend bool operator==(const cost_sample&, const cost_sample&) = default;
};
template <class Key> struct cost_estimate {
    Key of{};
    optpipe::estimate estimate{};
};

/// Measurements of one step, on any of its ranks.
struct measured_costs {
    std::vector<cost_sample<cost_key>> operations{};
    std::vector<cost_sample<rank_pair>> messages{};
    friend bool operator==(const measured_costs&, const measured_costs&) = default;
};

/// The highest memory use of a rank.
struct memory_peaks {
    memory_size device{};
    memory_size host{};
    friend bool operator==(const memory_peaks&, const memory_peaks&) = default;
};

/// For example "2F", "0OFFLOAD (full)", "1RELOAD, link shared", "(2F;3B)".
[[nodiscard]] std::string to_string(const problem& p, const cost_key& key);
/// For example "message 0 to 1".
[[nodiscard]] std::string to_string(const problem&, const rank_pair& pair);

/// Durations of a problem's operations and messages in measured steps.
///
/// A step may be measured on some ranks only, and added in several calls with one step number. Warm-up steps are
/// detected and left out, unless their number is given. The profile keeps the latest steps, to follow changes.
/// Estimates are computed on demand from all kept durations, as if the durations were independent. If the operations of
/// a step are slow together, the true confidence of an estimate is lower; `drift` takes this into account.
class cost_profile {
public:
    /// The default number of steps to keep: enough for narrow intervals, and few enough to follow a drift. Not tuned.
    static constexpr std::size_t usual_steps = 100;

    explicit cost_profile(std::size_t most_steps = usual_steps) : most_steps_{std::max<std::size_t>(1, most_steps)} {}

    /// Adds the measured schedule of the next step, in the units of the problem. Durations of messages are derived from
    /// the times of operations as far as possible. Throws `input_error` for operations with invalid times, for unknown
    /// operations, and for repeated operations.
    void add(const problem& p, const schedule& measured);
    void add(const problem& p, std::uint64_t step, const schedule& measured);
    /// Adds a step with measured messages.
    void add(const problem& p, std::uint64_t step, const schedule& measured,
             std::vector<cost_sample<rank_pair>> messages);
    void add(std::uint64_t step, const measured_costs& piece);
    /// Adds memory peaks of a rank. The profile keeps the highest peaks.
    void add_peaks(rank r, const memory_peaks& reached);
    /// Adds the steps of `other`. Steps with equal numbers are one step, measured on different ranks. Keeps this
    /// profile's number of warm-up steps, if set (`set_warm_up`).
    void merge(const cost_profile& other);
    /// Adds the steps of `other` after the existing steps.
    void append(const cost_profile& other);

    /// Sets the number of first steps to leave out. If the argument is empty, the number is detected.
    void set_warm_up(std::optional<std::size_t> steps) { given_warm_up_ = steps; }
    [[nodiscard]] std::optional<std::size_t> given_warm_up() const { return given_warm_up_; }
    /// The number of first steps that are left out. At least one step is always used.
    [[nodiscard]] std::size_t warm_up_steps() const;
    [[nodiscard]] std::size_t steps() const { return steps_.size(); }
    [[nodiscard]] bool empty() const { return steps_.empty(); }

    /// The estimates for operations, one for each stage, kind and storage option.
    [[nodiscard]] std::vector<cost_estimate<cost_key>> operations(double confidence = usual_confidence) const;
    /// The estimates for messages, one for each pair of a sender and a receiver.
    [[nodiscard]] std::vector<cost_estimate<rank_pair>> messages(double confidence = usual_confidence) const;
    /// The total number of estimates, of operations and of messages.
    [[nodiscard]] std::size_t numbers() const;
    [[nodiscard]] const std::map<rank, memory_peaks>& peaks() const { return peaks_; }
    /// All measurements kept, indexed by step number.
    [[nodiscard]] const std::map<std::uint64_t, measured_costs>& measured_steps() const { return steps_; }

    static constexpr double usual_confidence = 0.95;

private:
    template <class Key> using by_key = std::map<Key, std::vector<duration>>;

    [[nodiscard]] std::uint64_t next_step() const;

    static void check(const problem& p, const schedule& measured);
    static std::vector<cost_sample<cost_key>> costs_in(const problem& p, const schedule& s);

    template <class Key>
    by_key<Key> samples(std::vector<cost_sample<Key>> measured_costs::*which, std::size_t left_out) const {
        by_key<Key> found;
        for (const auto& [step, piece] : steps_) {
            if (left_out > 0) {
                --left_out;
                continue;
            }
            for (const auto& sample : piece.*which)
                found[sample.of].push_back(sample.took);
        }
        return found;
    }
    /// The slowness of each step. The slowness is the median ratio of the operations in the step. An operation's ratio
    /// is its duration in this step over its median duration in all steps.
    [[nodiscard]] std::vector<double> pace_of_steps() const;

    std::size_t most_steps_;
    std::map<std::uint64_t, measured_costs> steps_{};
    std::map<rank, memory_peaks> peaks_{};
    std::optional<std::size_t> given_warm_up_{};
};

namespace detail {

/// The class of an operation in a measured step: its stage, kind and storage option.
[[nodiscard]] cost_key key_of(const problem& p, const operation& op);
/// Whether the problem has an operation of this class. Contract: the problem has the stage.
[[nodiscard]] bool is_key_of_some(const problem& p, const cost_key& key);
/// The problem's pair with this key; null if there is none.
[[nodiscard]] const overlap* overlap_of(const problem& p, const cost_key& key);

} // namespace detail

/// Reports stages, ranks and storage options of the profile that the problem doesn't have.
[[nodiscard]] std::vector<violation> profile_violations(const problem& p, const cost_profile& profile);

} // namespace optpipe

#if OPTPIPE_DEFINES(schedule)
#include "optpipe/core/container.hpp"
#include "optpipe/schedule/rules/cells.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/rules/transfer_resources.hpp"
#include "optpipe/schedule/time/differences.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/simulate.hpp"

#include <cmath>

namespace optpipe {

OPTPIPE_INLINE std::string to_string(const problem& p, const cost_key& key) {
    std::string text = std::to_string(key.stage.value()).append(spelling(key.kind));
    if (key.forward) return "(" + std::to_string(key.forward->value()) + "F;" + text + ")";
    if (key.storage && p.storage_options(key.stage) > 1)
        text += " (" + std::string{p.storage_of(key.stage, *key.storage).name.view()} + ")";
    return text + (key.shared ? ", link shared" : "");
}

OPTPIPE_INLINE std::string to_string(const problem&, const rank_pair& pair) {
    return "message " + std::to_string(pair.from.value()) + " to " + std::to_string(pair.to.value());
}

namespace detail {

OPTPIPE_INLINE cost_key key_of(const problem& p, const operation& op) {
    const bool recomputes = is_gradient(op.kind) && storage_of(p, op).backward_extra > duration{};
    const bool depends = is_transfer(op.kind) || op.kind == operation_kind::recompute || recomputes;
    return {op.stage, op.kind, depends ? std::optional{op.storage} : std::nullopt, false};
}

OPTPIPE_INLINE const overlap* overlap_of(const problem& p, const cost_key& key) {
    if (!key.forward) return nullptr;
    return optpipe::overlap_of(p, forward(*key.forward, {}), {key.stage, key.kind, {}});
}

OPTPIPE_INLINE bool is_key_of_some(const problem& p, const cost_key& key) {
    if (key.forward) return overlap_of(p, key) != nullptr && !key.storage && !key.shared;
    for (std::size_t o = 0; o < p.storage_options(key.stage); ++o) {
        const operation op{key.stage, key.kind, {}, static_cast<storage_index>(o)};
        if (is_possible(p, op) && key_of(p, op).storage == key.storage) return true;
    }
    return false;
}

/// Marks transfers that overlap another transfer on their channel for a substantial share of their duration.
inline std::vector<bool> shared_transfers(const problem& p, const schedule& s) {
    constexpr double least_overlap = 0.05; // a share of the duration; smaller overlaps come from inexact clocks
    std::vector<bool> shared(s.operations.size(), false);
    std::map<std::size_t, std::vector<std::size_t>> by_channel;
    for (std::size_t i = 0; i < s.operations.size(); ++i)
        if (const auto& op = s.operations[i].op; is_transfer(op.kind))
            by_channel[host_channel_of(p.transfer, p.rank_of(op.stage), is_inward(op.kind))].push_back(i);
    for (auto& [channel, own] : by_channel) {
        std::sort(own.begin(), own.end(),
                  [&](std::size_t a, std::size_t b) { return s.operations[a].start < s.operations[b].start; });
        for (std::size_t i = 0; i < own.size(); ++i) {
            const auto& one = s.operations[own[i]];
            for (std::size_t j = i + 1; j < own.size() && s.operations[own[j]].start < one.end; ++j) {
                const auto& other = s.operations[own[j]];
                const auto both = std::min(one.end, other.end) - other.start;
                if (both > least_overlap * (one.end - one.start)) shared[own[i]] = true;
                if (both > least_overlap * (other.end - other.start)) shared[own[j]] = true;
            }
        }
    }
    return shared;
}

/// Durations of messages along edges, divided by their planned factor. A message is assumed to last from the end of the
/// sending operation to the start of the receiving operation. A message counts only if the receiving rank was idle and
/// waited for nothing else.
inline std::vector<cost_sample<rank_pair>> messages_in(const problem& p, const schedule& s) {
    const operation_numbering<any_graph> number{p.graph};
    std::vector<duration> end_of(number.size(), duration::unlimited());
    for (const auto& timed : s.operations)
        end_of[number(timed.op)] = timed.end;
    const bool is_simple = p.is_simple();
    std::vector<cost_sample<rank_pair>> found;
    for (const auto& own : operations_by_rank(s)) {
        duration free{};
        for (const auto& timed : own) {
            const auto& op = timed.op;
            if (is_transfer(op.kind)) continue;
            std::optional<rank> from;
            duration sent{};
            duration here = free;
            double factor = 1.0;
            for_each_dependency(p, op, stash_way_of(p, op), [&](const operation& before, duration delay) {
                auto ended = end_of[number(before)];
                if (before.stage != op.stage && is_gradient(before.kind))
                    ended = std::min(ended, end_of[number(backward(before.stage, before.microbatch))]);
                if (p.rank_of(before.stage) == p.rank_of(op.stage)) {
                    here = std::max(here, ended);
                } else {
                    const bool is_along_edge = is_gradient(before.kind) == is_gradient(op.kind);
                    const auto hop = p.hop(before.stage, op.stage);
                    const bool is_only_one = !from;
                    from = p.rank_of(before.stage);
                    sent = ended;
                    if (is_simple) return;
                    factor = is_along_edge && is_only_one && hop > duration{} ? delay / hop : 0.0;
                }
            });
            if (from && here <= sent && sent <= timed.start && factor > 0.0)
                found.push_back({{*from, p.rank_of(op.stage)}, (timed.start - sent) / factor});
            free = timed.end;
        }
    }
    return found;
}

template <class Key>
std::vector<cost_estimate<Key>> estimates_of(const std::map<Key, std::vector<duration>>& samples, double confidence) {
    std::vector<cost_estimate<Key>> found;
    for (const auto& [key, durations] : samples)
        found.push_back({key, estimate_of(durations, confidence)});
    return found;
}

} // namespace detail

OPTPIPE_INLINE std::uint64_t cost_profile::next_step() const { return steps_.empty() ? 0 : steps_.rbegin()->first + 1; }

OPTPIPE_INLINE void cost_profile::add(const problem& p, const schedule& measured) { add(p, next_step(), measured); }

OPTPIPE_INLINE void cost_profile::add(const problem& p, std::uint64_t step, const schedule& measured) {
    check(p, measured);
    add(step, {costs_in(p, measured), detail::messages_in(p, measured)});
    const auto reached = optpipe::measure(p, measured);
    for (const rank r : p.graph.all_ranks())
        add_peaks(r, {reached.peak_memory[r], reached.peak_host_memory[r]});
}

OPTPIPE_INLINE void cost_profile::add(const problem& p, std::uint64_t step, const schedule& measured,
                                      std::vector<cost_sample<rank_pair>> messages) {
    check(p, measured);
    add(step, {costs_in(p, measured), std::move(messages)});
}

OPTPIPE_INLINE void cost_profile::add(std::uint64_t step, const measured_costs& piece) {
    auto& now = steps_[step];
    now.operations.insert(now.operations.end(), piece.operations.begin(), piece.operations.end());
    now.messages.insert(now.messages.end(), piece.messages.begin(), piece.messages.end());
    while (steps_.size() > most_steps_)
        steps_.erase(steps_.begin());
}

OPTPIPE_INLINE void cost_profile::add_peaks(rank r, const memory_peaks& reached) {
    auto& most = peaks_[r];
    most = {std::max(most.device, reached.device), std::max(most.host, reached.host)};
}

OPTPIPE_INLINE void cost_profile::merge(const cost_profile& other) {
    for (const auto& [step, piece] : other.steps_)
        add(step, piece);
    for (const auto& [r, peaks] : other.peaks_)
        add_peaks(r, peaks);
    if (!given_warm_up_) given_warm_up_ = other.given_warm_up_;
}

OPTPIPE_INLINE void cost_profile::append(const cost_profile& other) {
    auto step = next_step();
    cost_profile later{other.most_steps_};
    for (const auto& [number, piece] : other.steps_)
        later.add(step++, piece);
    later.peaks_ = other.peaks_;
    later.given_warm_up_ = other.given_warm_up_;
    merge(later);
}

OPTPIPE_INLINE std::size_t cost_profile::warm_up_steps() const {
    if (steps_.empty()) return 0;
    return std::min(given_warm_up_ ? *given_warm_up_ : warm_up_length(pace_of_steps()), steps_.size() - 1);
}

OPTPIPE_INLINE std::vector<cost_estimate<cost_key>> cost_profile::operations(double confidence) const {
    return detail::estimates_of(samples(&measured_costs::operations, warm_up_steps()), confidence);
}

OPTPIPE_INLINE std::vector<cost_estimate<rank_pair>> cost_profile::messages(double confidence) const {
    return detail::estimates_of(samples(&measured_costs::messages, warm_up_steps()), confidence);
}

OPTPIPE_INLINE std::size_t cost_profile::numbers() const {
    const auto left_out = warm_up_steps();
    return samples(&measured_costs::operations, left_out).size() + samples(&measured_costs::messages, left_out).size();
}

OPTPIPE_INLINE void cost_profile::check(const problem& p, const schedule& measured) {
    std::vector<violation> found;
    static_cast<void>(detail::operations_in(measured, operation_numbering<any_graph>{p.graph}, found));
    if (found.empty())
        for (const auto& timed : measured.operations)
            if (!is_possible(p, timed.op))
                found.push_back({"operations", to_string(timed.op) + ": its stage has no such storage option"});
    if (!found.empty()) throw input_error{"measured step", std::move(found)};
}

namespace detail {

/// (planned duration of an operation) / (its duration for a microbatch without factors)
inline double planned_factor(const problem& p, const operation& op) {
    if (!p.microbatches.has_factors()) return 1.0;
    const auto usual = usual_duration(p, op);
    return usual > duration{} ? duration_of(p, op) / usual : 1.0;
}

/// The measured duration of a pair, converted to microbatches whose factors are all 1. The planned time of
/// recomputation inside the pair's backward is subtracted.
inline duration pair_sample(const problem& p, const operation& f, const operation& b, duration took) {
    const auto extra = p.microbatches.factors(b.stage, b.microbatch).forward * storage_of(p, b).backward_extra;
    const auto back = sibling(b, b.kind);
    const auto parts = duration_of(p, sibling(f, f.kind)) + duration_of(p, back) - extra;
    const auto& c = p.costs[b.stage];
    const auto usual =
        p.costs[f.stage].forward + (b.kind == operation_kind::backward ? c.backward() : c.backward_input);
    return std::max(duration{}, took - extra) / (parts / usual);
}

} // namespace detail

OPTPIPE_INLINE std::vector<cost_sample<cost_key>> cost_profile::costs_in(const problem& p, const schedule& s) {
    const auto shared = detail::shared_transfers(p, s);
    std::vector<cost_sample<cost_key>> found;
    for (std::size_t i = 0; i < s.operations.size(); ++i) {
        if (s.operations[i].op.is_paired) continue; // handled below
        auto key = detail::key_of(p, s.operations[i].op);
        key.shared = shared[i];
        const auto took = s.operations[i].end - s.operations[i].start;
        found.push_back({key, took / detail::planned_factor(p, s.operations[i].op)});
    }
    for_each_pair(s, [&](const timed_operation& f, const timed_operation& b) {
        const cost_key key{b.op.stage, b.op.kind, {}, false, f.op.stage};
        if (detail::overlap_of(p, key)) found.push_back({key, detail::pair_sample(p, f.op, b.op, f.end - f.start)});
    });
    return found;
}

OPTPIPE_INLINE std::vector<double> cost_profile::pace_of_steps() const {
    std::map<cost_key, duration> usual;
    for (const auto& [key, durations] : samples(&measured_costs::operations, 0))
        usual[key] = detail::median_of(durations);
    std::vector<double> pace;
    for (const auto& [step, piece] : steps_) {
        std::vector<double> ratios;
        for (const auto& sample : piece.operations)
            if (usual[sample.of] > duration{}) ratios.push_back(sample.took / usual[sample.of]);
        pace.push_back(ratios.empty() ? 1.0 : detail::median_of(std::move(ratios)));
    }
    return pace;
}

OPTPIPE_INLINE std::vector<violation> profile_violations(const problem& p, const cost_profile& profile) {
    std::vector<violation> found;
    const auto ranks = "there are " + std::to_string(p.graph.ranks()) + " ranks";
    for (const auto& [key, e] : profile.operations()) {
        const bool is_known = key.stage.position() < p.graph.stages();
        const auto name = std::to_string(key.stage.value()).append(spelling(key.kind));
        if (!is_known)
            found.push_back({"operations", name + ": there are " + std::to_string(p.graph.stages()) + " stages"});
        else if (!detail::is_key_of_some(p, key))
            found.push_back({"operations", name + ": its stage has no such operation or storage option"});
    }
    for (const auto& [pair, e] : profile.messages())
        if (std::max(pair.from, pair.to).position() >= p.graph.ranks())
            found.push_back({"messages", to_string(p, pair) + ": " + ranks});
    for (const auto& [r, most] : profile.peaks())
        if (r.position() >= p.graph.ranks())
            found.push_back({"memory", "rank " + std::to_string(r.value()) + ": " + ranks});
    return found;
}

} // namespace optpipe
#endif
