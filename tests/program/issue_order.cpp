#include "optpipe/program/issue_order.hpp"

#include "optpipe/core/contract.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/program/lower.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/rules/dependencies.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "oracle/random_cases.hpp"
#include "oracle/random_problem.hpp"
#include "oracle/random_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace {

using namespace optpipe;
using task_kind = task_label::task_kind;

constexpr std::uint64_t first_seed = 7700;
constexpr oracle::problem_ranges ranges{
    .ranks = 4, .stages = 8, .microbatches = 6, .cells = 24, .offloading_percent = 70, .storage_percent = 50};

/// A loop on all ranks: nothing but the order of each lane and the waits of `issue_order` hold a task back.
class clockless_loop {
public:
    explicit clockless_loop(const problem& p, const per_rank<rank_program>& programs)
        : p_{p}, tasks_(p.graph.ranks()), ends_(p.graph.ranks()), lane_free_(p.graph.ranks()) {
        for (const auto& each : programs)
            tasks_[each.self] = issue_order(each);
    }
    /// Whether tasks wait for transfers. Without that, the loop is wrong.
    bool waits_for_transfers = true;

    /// The times of all operations, where `time_of(op)` is the duration of one. Empty if the loop gets stuck.
    template <class TimeOf> std::optional<schedule> run(const TimeOf& time_of) {
        ran_ = {p_.graph, {}};
        for (bool goes_on = true; goes_on;) {
            goes_on = false;
            for (const rank r : tasks_.indices())
                while (ends_[r].size() < tasks_[r].size() && run_next(r, time_of))
                    goes_on = true;
        }
        for (const rank r : tasks_.indices())
            if (ends_[r].size() < tasks_[r].size()) return std::nullopt;
        return ran_;
    }

private:
    /// False if the task receives a message that hasn't been sent.
    template <class TimeOf> bool run_next(rank r, const TimeOf& time_of) {
        const auto& [what, lane, after] = tasks_[r][ends_[r].size()];
        auto start = lane_free_[r][lane];
        for (const auto before : after)
            if (waits_for_transfers || !is_transfer(tasks_[r][before].what.op.kind))
                start = std::max(start, ends_[r][before]);
        auto end = start;
        if (what.kind == task_kind::operation) {
            end += time_of(what.op);
            ran_.operations.push_back({what.op, start, end});
        } else if (what.kind == task_kind::send) {
            sent_[{r, what.peer, what.op}] = start + p_.p2p(r, what.peer);
        } else {
            const auto message = sent_.find({what.peer, r, what.op});
            if (message == sent_.end()) return false;
            end = std::max(start, message->second);
        }
        ends_[r].push_back(end);
        lane_free_[r][lane] = end;
        return true;
    }

    const problem& p_;
    per_rank<std::vector<issued_task>> tasks_;
    per_rank<std::vector<duration>> ends_;
    per_rank<std::map<lane_kind, duration>> lane_free_;
    std::map<std::tuple<rank, rank, operation>, duration> sent_;
    schedule ran_{};
};

/// One thread per rank, which runs one task after another. A send ends when its receive does.
bool ends_with_blocking_sends(const per_rank<std::vector<issued_task>>& tasks) {
    per_rank<std::size_t> at(tasks.size(), 0);
    const auto current = [&](rank r) { return at[r] < tasks[r].size() ? &tasks[r][at[r]].what : nullptr; };
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (const rank r : tasks.indices()) {
            const auto* mine = current(r);
            if (!mine || mine->kind == task_kind::receive) continue;
            if (mine->kind == task_kind::send) {
                const auto* theirs = current(mine->peer);
                if (!theirs || theirs->kind != task_kind::receive || theirs->peer != r ||
                    !is_same_content(*mine, *theirs))
                    continue;
                ++at[mine->peer];
            }
            ++at[r];
            goes_on = true;
        }
    }
    for (const rank r : tasks.indices())
        if (current(r)) return false;
    return true;
}
/// The order of a loop that thinks for itself: it receives what the next operation needs, and sends what it has made.
std::vector<issued_task> receives_before_sends_after(const std::vector<issued_task>& tasks) {
    std::vector<issued_task> naive;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
        if (tasks[i].what.kind != task_kind::operation) continue;
        for (const auto before : tasks[i].after)
            if (tasks[before].what.kind == task_kind::receive) naive.push_back(tasks[before]);
        naive.push_back(tasks[i]);
        for (auto j = i + 1; j < tasks.size(); ++j)
            if (const auto& after = tasks[j].after;
                tasks[j].what.kind == task_kind::send && std::find(after.begin(), after.end(), i) != after.end())
                naive.push_back(tasks[j]);
    }
    return naive;
}

bool is_within(const problem& p, const measures& planned, const schedule& ran) {
    for (const rank r : p.graph.all_ranks()) {
        const auto slack = tolerance{}.at(p.memory_scale());
        if (peak_of(memory_curve(p, ran, r)) > planned.peak_memory[r] + slack) return false;
        if (peak_of(memory_curve(p, ran, r, memory_kind::host)) > planned.peak_host_memory[r] + slack) return false;
    }
    return true;
}
/// Whether every operation starts when its inputs are there.
bool has_inputs(const problem& p, const schedule& ran) {
    const operation_numbering<any_graph> number{p.graph};
    std::vector<duration> end_of(number.size(), duration::unlimited());
    for (const auto& each : ran.operations)
        end_of[number(each.op)] = each.end;
    return std::all_of(ran.operations.begin(), ran.operations.end(), [&](const timed_operation& each) {
        const auto end = [&](const operation& op) { return end_of[number(op)]; };
        return input_time(p, each.op, end, stash_way_of(p, each.op)) <= each.start;
    });
}
/// Whether only its own rank delays a transfer, and messages arrive in the order in which they are sent.
bool has_no_shared_resources(const problem& p) {
    std::set<std::size_t> links;
    for (const rank r : p.graph.all_ranks())
        links.insert(p.transfer.link[r]);
    return links.size() == p.graph.ranks() && (p.transfer.engines == 1 || p.transfer.duplex == duplex_kind::full) &&
           p.p2p.is_uniform();
}

template <class Visit> void for_random_plans(std::size_t cases, const Visit& visit) {
    for (std::uint64_t seed = first_seed; seed < first_seed + oracle::random_cases(cases); ++seed) {
        CAPTURE(seed);
        oracle::random_numbers random{seed};
        const auto given = oracle::make_random_problem(random, ranges);
        const auto& p = given.problem;
        const auto plan = oracle::random_schedule(random, given);
        // Refused only if stashes are exchanged in no time.
        if (const auto programs = lower(p, plan, {.bytes_per_unit = 4.0, .alignment = 1}))
            visit(random, p, plan, *programs);
    }
}

TEST_CASE("a loop without clocks ends every operation by its time in the plan, within the plan's memory") {
    std::size_t transfers = 0;
    std::size_t timed = 0;
    for_random_plans(300, [&](auto&, const problem& p, const schedule& plan, const auto& programs) {
        const auto ran = clockless_loop{p, programs}.run([&](const operation& op) { return duration_of(p, op); });
        REQUIRE(ran);
        REQUIRE(ran->operations.size() == plan.operations.size());
        const auto planned = measure(p, plan);
        CHECK(is_within(p, planned, *ran));
        CHECK(has_inputs(p, *ran));
        transfers += planned.offloads;
        if (!has_no_shared_resources(p)) return;
        ++timed;
        std::map<operation, duration> latest;
        for (const auto& each : plan.operations)
            latest[each.op] = each.end + time_slack(p, plan);
        for (const auto& each : ran->operations) {
            CAPTURE(to_string(each.op));
            CHECK(each.end <= latest[each.op]);
        }
    });
    CHECK(transfers > oracle::random_cases(300));
    CHECK(timed > oracle::random_cases(80));
}

TEST_CASE("whatever the timing, the loop has its inputs and stays within the plan's memory; without waits for "
          "transfers it doesn't") {
    std::size_t exceeded = 0;
    for_random_plans(300, [&](auto& random, const problem& p, const schedule& plan, const auto& programs) {
        const auto planned = measure(p, plan);
        for (const bool waits : {true, false}) {
            clockless_loop loop{p, programs};
            loop.waits_for_transfers = waits;
            // Any operation may take up to four times as long as planned, or no time.
            const auto ran = loop.run(
                [&](const operation& op) { return 0.5 * static_cast<double>(random.below(9)) * duration_of(p, op); });
            REQUIRE(ran);
            const bool within = is_within(p, planned, *ran);
            if (waits) {
                CHECK(within);
                CHECK(has_inputs(p, *ran));
            } else {
                exceeded += within ? 0 : 1;
            }
        }
    });
    CHECK(exceeded > oracle::random_cases(30));
}

TEST_CASE("one thread per rank may run all tasks in their order with sends that block; in an order of its own it gets "
          "stuck") {
    std::size_t stuck = 0;
    for_random_plans(300, [&](auto&, const problem& p, const schedule&, const auto& programs) {
        per_rank<std::vector<issued_task>> tasks(p.graph.ranks());
        auto naive = tasks;
        for (const auto& each : programs) {
            tasks[each.self] = issue_order(each);
            naive[each.self] = receives_before_sends_after(tasks[each.self]);
        }
        CHECK(ends_with_blocking_sends(tasks));
        stuck += ends_with_blocking_sends(naive) ? 0 : 1;
    });
    CHECK(stuck > oracle::random_cases(30));
}

TEST_CASE("a transfer has its start conditions, and its deadline is with the operation that needs it") {
    // Room for one stash and a half: the second forward waits for the first offload.
    stage_costs costs{duration{1}, duration{1}, duration{1}, memory_size{2}, memory_size{1}};
    costs.transfer = transfer_times{duration{1}, duration{1}};
    const auto p = to_problem(make_problem(graph<1, 2>{}, uniform_memory{costs}, memory_size{3}));
    order o{p.graph, {}};
    for (const auto* const text : {"0F0", "0OFFLOAD0", "0F1", "0B1", "0RELOAD0", "0B0"}) {
        o.operations.push_back(*parse_operation(text));
        if (o.operations.back().microbatch == microbatch{0}) o.operations.back().storage = 1;
    }
    const auto programs = *lower(p, *simulate(p, o));
    std::string text;
    const auto tasks = issue_order(programs[rank{0}]);
    for (const auto& task : tasks) {
        text.append(spelling(task.lane)).append(" ").append(to_string(task.what));
        for (const auto before : task.after)
            text.append(" after ").append(to_string(tasks[before].what));
        text += "\n";
    }
    CHECK(text == "compute 0F0\ncopy 0OFFLOAD0 after 0F0\ncompute 0F1 after 0OFFLOAD0\ncompute 0B1\n"
                  "copy 0RELOAD0 after 0B1\ncompute 0B0 after 0RELOAD0\n");
}

TEST_CASE("exchanges of several messages break the contract") {
    if (!contracts_throw()) return;
    const auto p = to_problem(make_problem(graph<2, 4>{}, unit_memory{}));
    std::size_t joined = 0;
    const auto programs = *lower(p, *simulate(p, one_forward_one_backward(p.graph)), {.lanes = message_lanes::single});
    for (const auto& each : programs)
        for (const auto& i : each.instructions)
            joined += i.parts > 1 ? 1 : 0;
    REQUIRE(joined > 0);
    CHECK_THROWS_AS(static_cast<void>(issue_order(programs[rank{0}])), contract_error);
}

} // namespace
