#pragma once

#include "execution/quick_adaptive.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/execution/handover.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/builders/gpipe.hpp"
#include "optpipe/schedule/builders/one_forward_one_backward.hpp"
#include "optpipe/schedule/builders/zero_bubble_h1.hpp"
#include "optpipe/schedule/time/evaluate.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Many random handovers, for threads and for processes: a rank refuses some plans, some are published during another
/// handover, and some are late on a rank by a few steps.
namespace handovers {

/// Microbatches of all these plans, which replace each other.
inline constexpr std::size_t microbatches = 8;

/// One stage per rank; the schedules differ in the order of operations, in offloading, and in memory.
inline std::vector<optpipe::per_rank<optpipe::rank_program>> plans(std::size_t ranks,
                                                                   std::size_t count = microbatches) {
    using optpipe::duration;
    using optpipe::memory_size;
    const duration unit{1};
    const optpipe::stage_costs costs{
        unit, unit, unit, memory_size{1}, memory_size{0.5}, optpipe::transfer_times{0.5 * unit, 0.5 * unit}};
    using optpipe::dynamic;
    const optpipe::graph<dynamic, dynamic> graph{ranks, count};
    auto loose = to_problem(make_problem(graph, optpipe::uniform_memory{costs}));
    auto tight = to_problem(make_problem(graph, optpipe::uniform_memory{costs}, memory_size{2.0}));
    loose.transfer.engines = tight.transfer.engines = 2;
    std::vector<optpipe::per_rank<optpipe::rank_program>> all;
    const auto add = [&](const optpipe::problem& p, const auto& build) {
        const auto s = build_schedule(p, build);
        for (const auto lanes :
             {optpipe::message_lanes::separate, optpipe::message_lanes::per_direction, optpipe::message_lanes::single})
            all.push_back(*lower(p, *s, {.bytes_per_unit = 64.0, .message_bytes = 24, .lanes = lanes}));
    };
    add(tight, quick_adaptive);
    add(loose, optpipe::one_forward_one_backward);
    add(loose, optpipe::zero_bubble_h1);
    add(loose, optpipe::gpipe);
    return all;
}

/// The largest arenas that any of the plans needs on this rank.
inline optpipe::execution::arena_sizes room_for(const std::vector<optpipe::per_rank<optpipe::rank_program>>& plans,
                                                optpipe::rank r) {
    optpipe::execution::arena_sizes room;
    for (const auto& each : plans)
        room = largest(room, optpipe::execution::sizes_of(each[r]));
    return room;
}

/// The fault of a plan, on one rank.
enum class trouble : std::uint8_t {
    none,
    not_lowered, ///< its programs can't be made
    too_large,   ///< it needs more than the arena
    deadlock,    ///< the check rejects it, on all ranks
    no_lane,     ///< the executor has no more lanes
};
inline constexpr std::size_t troubles = 5;

/// The text of a plan: a number, its fault, the rank with that fault, and the rank that is late by a number of steps.
struct plan_text {
    std::size_t which = 0;
    trouble what = trouble::none;
    optpipe::rank where{};
    optpipe::rank late{};
    std::uint64_t steps = 0;

    [[nodiscard]] std::string text() const {
        std::ostringstream out;
        out << which << ' ' << static_cast<int>(what) << ' ' << where.value() << ' ' << late.value() << ' ' << steps;
        return out.str();
    }
    [[nodiscard]] static plan_text read(const std::string& text) {
        std::istringstream in{text};
        plan_text p;
        int what = 0;
        std::size_t where = 0;
        std::size_t late = 0;
        in >> p.which >> what >> where >> late >> p.steps;
        p.what = static_cast<trouble>(what);
        p.where = optpipe::rank{where};
        p.late = optpipe::rank{late};
        return p;
    }
    [[nodiscard]] static plan_text random(optpipe::random_numbers& from, std::size_t plans, std::size_t ranks) {
        plan_text p;
        p.which = from.below(plans);
        if (from.chance(40)) p.what = static_cast<trouble>(1 + from.below(troubles - 1));
        p.where = optpipe::rank{from.below(ranks)};
        p.late = optpipe::rank{from.below(ranks)};
        if (from.chance(40)) p.steps = 1 + from.below(3);
        return p;
    }
};

/// Counts memory and lanes of an executor, and refuses lanes if requested.
template <class Executor> class counting_executor {
public:
    using lane_type = typename Executor::lane_type;

    explicit counting_executor(Executor& in) : in_{in} {}

    [[nodiscard]] lane_type open_lane(optpipe::lane_kind kind, std::size_t commands) {
        if (without_lanes.load()) throw std::bad_alloc{};
        ++lanes;
        return in_.open_lane(kind, commands);
    }
    [[nodiscard]] auto make_marker() { return in_.make_marker(); }
    [[nodiscard]] auto& copies() { return in_.copies(); }
    [[nodiscard]] auto& transport() { return in_.transport(); }
    [[nodiscard]] counting_executor& memory() { return *this; }
    [[nodiscard]] auto device(std::size_t bytes) {
        ++slabs;
        return in_.memory().device(bytes);
    }
    [[nodiscard]] auto host(std::size_t bytes) {
        ++slabs;
        return in_.memory().host(bytes);
    }
    [[nodiscard]] optpipe::rank self() const { return in_.self(); }
    [[nodiscard]] std::size_t ranks() const { return in_.ranks(); }
    void finish() { in_.finish(); }
    void cancel(std::string_view what_it_did, std::string_view reason) { in_.cancel(what_it_did, reason); }

    std::size_t slabs = 0;
    std::size_t lanes = 0;
    std::atomic<bool> without_lanes{false};

private:
    Executor& in_;
};

/// The most lanes that a rank opens for all of its plans: one of each kind, and a larger one if that is too small.
inline constexpr std::size_t most_lanes = 2 * (static_cast<std::size_t>(optpipe::lane_kind::communication) + 1);

/// The record of one rank.
struct record {
    /// The program that each step ran.
    std::vector<std::uint64_t> versions;
    std::vector<optpipe::handover_result> results;
    std::size_t weights = 0;
    std::size_t slabs = 0;
    std::size_t lanes = 0;
    /// The plans given to this rank, in their order.
    std::vector<plan_text> plans;
};

/// Runs steps on one rank until `handovers` plans have been settled, with a model that counts its weight gradients.
template <class Executor, class Channel, class Model>
record run_rank(Executor& real, Channel& channel, Model& model,
                const std::vector<optpipe::per_rank<optpipe::rank_program>>& plans, std::size_t handovers,
                std::uint64_t seed) {
    const auto self = real.self();
    counting_executor<Executor> on{real};
    optpipe::random_numbers random{seed};
    record seen;
    std::atomic<std::uint64_t> steps{0};
    const auto make = [&](const std::string& text) {
        const auto plan = plan_text::read(text);
        seen.plans.push_back(plan);
        if (plan.late == self) { // the training thread continues in the meantime
            const auto until = steps.load() + plan.steps;
            for (auto now = steps.load(); now < until; now = steps.load())
                steps.wait(now);
        }
        auto programs = plans[plan.which];
        const bool here = plan.where == self;
        on.without_lanes.store(here && plan.what == trouble::no_lane);
        if (here && plan.what == trouble::not_lowered) throw std::runtime_error{"can't be lowered"};
        // A kind that no plan has, so it isn't open.
        if (here && plan.what == trouble::no_lane) programs[self].lanes.push_back(optpipe::lane_kind::copy);
        if (here && plan.what == trouble::too_large) programs[self].device_bytes += std::size_t{1} << 20U;
        if (plan.what == trouble::deadlock) programs[plan.where].instructions.pop_back();
        return programs;
    };
    optpipe::handover run{plans[0][self], on, model, channel, optpipe::program_maker{make}, room_for(plans, self)};
    while (run.settled() < handovers) {
        if (self == optpipe::rank{0} && random.chance(70))
            run.publish(plan_text::random(random, plans.size(), real.ranks()).text());
        seen.versions.push_back(run.version());
        const auto before = run.settled();
        try {
            run.step();
        } catch (...) {
            steps.store(std::numeric_limits<std::uint64_t>::max() / 2);
            steps.notify_all();
            throw;
        }
        steps.fetch_add(1);
        steps.notify_all();
        if (run.settled() > before) seen.results.push_back(run.last_result());
    }
    steps.store(std::numeric_limits<std::uint64_t>::max() / 2);
    steps.notify_all();
    seen.weights = model.weights();
    seen.slabs = on.slabs;
    seen.lanes = on.lanes;
    return seen;
}

/// The expected refusals of a plan; none if all ranks accept it.
inline std::vector<std::string> expected_refusals(const plan_text& plan, std::uint64_t version, std::size_t ranks) {
    std::vector<std::string> all;
    for (const optpipe::rank r : optpipe::index_range<optpipe::rank>{ranks})
        if (plan.what != trouble::none && (r == plan.where || plan.what == trouble::deadlock))
            all.push_back("rank " + std::to_string(r.value()) + " refuses plan " + std::to_string(version) + ": ");
    return all;
}

/// The fault in rank 0's results of the plans; empty if there is none.
inline std::string wrong_results(const record& first, std::size_t wanted, std::size_t ranks) {
    if (first.results.size() != wanted || first.plans.size() < wanted) return "another number of plans";
    for (std::size_t i = 0; i < wanted; ++i) {
        const auto& plan = first.plans[i];
        const auto& result = first.results[i];
        const auto place = "plan " + std::to_string(i + 1) + " (" + plan.text() + "): ";
        if (result.version != i + 1) return place + "counted as " + std::to_string(result.version);
        if (result.accepted != (plan.what == trouble::none)) return place + "accepted, or refused";
        auto refusals = result.refusals;
        std::sort(refusals.begin(), refusals.end());
        const auto expected = expected_refusals(plan, result.version, ranks);
        if (refusals.size() != expected.size()) return place + "another number of refusals";
        for (std::size_t k = 0; k < expected.size(); ++k)
            if (!refusals[k].starts_with(expected[k])) return place + refusals[k];
    }
    return {};
}
inline std::size_t accepted(const record& seen) {
    return static_cast<std::size_t>(
        std::count_if(seen.results.begin(), seen.results.end(), [](const auto& r) { return r.accepted; }));
}

} // namespace handovers
