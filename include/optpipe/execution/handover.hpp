#pragma once

#include "optpipe/core/caught_reason.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/execution/arenas.hpp"
#include "optpipe/execution/bound_program.hpp"
#include "optpipe/execution/control_channel.hpp"
#include "optpipe/execution/error.hpp"
#include "optpipe/execution/program_preparer.hpp"
#include "optpipe/execution/run.hpp"
#include "optpipe/program/ir.hpp"

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace optpipe {

/// The programs of all ranks, from the text of a plan. Throws if it can't make them; then the rank refuses the plan.
using program_maker = std::function<per_rank<rank_program>(const std::string& plan)>;

/// What became of a published plan.
struct handover_result {
    /// Plans are counted from 1, the program that a run begins with is 0.
    std::uint64_t version = 0;
    bool accepted = false;
    /// On rank 0: of all ranks that refused it, which and why, a sentence each.
    std::vector<std::string> refusals{};
};

/// Runs one rank's program, step after step, and exchanges it for that of a better plan: on all ranks between the same
/// two steps, or on none.
///
/// Rank 0 publishes a plan as text. On each rank a thread of the handover makes the programs from it, checks them and
/// looks up addresses in the arenas, which takes time but neither lanes nor memory of the executor. The programs share
/// lanes and markers; the thread that trains opens what more the next one needs, between two steps, as an executor is
/// for one thread; then the rank is ready. With every step goes one minimum over what the ranks think of the plan that
/// is under way: nothing yet, refused, or ready. It is begun before the step is issued and read after it ends; all
/// ranks read the same, so all take the plan then, all drop it, or all wait. Nobody says in advance at which step that
/// will be, so no message can come too late for it.
///
/// A rank refuses a plan that it can't make programs of, that `check_programs` rejects, has other stages on the rank or
/// other microbatches than the first program, or needs more than the arenas, lanes or markers that there are. Then all
/// go on with the program that they have.
///
/// The channel is the one beside the executor: `control` of a `threads::cluster` or an `mpi::member`; for NCCL that of
/// a `bootstrap::tcp_control` or an `mpi::control`. Steps are issued: one that a CUDA executor has captured stays that
/// of the program that ran then.
///
/// Contract: all ranks call `step` equally often. Executor, model and channel outlive the handover, and nobody else
/// uses the channel meanwhile. For one thread, the one that issues.
template <class Executor, class Model, execution::control_channel Channel> class handover {
public:
    /// Begins with `first`, in arenas as large as `room` where that is more than it needs. `make` is called by a thread
    /// of the handover, one plan at a time. Throws as `runner` does.
    handover(const rank_program& first, Executor& on, Model& model, Channel& channel, program_maker make,
             const execution::arena_sizes& room = {}, const execution::buffer_owners& owners = {})
        : executor_{on}, channel_{channel}, make_{std::move(make)}, program_{first}, runner_{first, on, model, room,
                                                                                             owners},
          preparer_{[this](const std::string& plan) { return prepare(plan); }} {}
    handover(const handover&) = delete;
    handover& operator=(const handover&) = delete;

    /// By rank 0: all ranks are to run this plan as soon as all can. While another one is under way it waits, in the
    /// place of one that was waiting.
    void publish(std::string plan) {
        OPTPIPE_EXPECT(channel_.self() == rank{0}, "handover: rank 0 publishes plans");
        waiting_ = std::move(plan);
        publish_waiting();
    }

    /// One step from begin to end, and then the handover of a plan for which all ranks are ready. Throws
    /// `execution_error` if the step has no end, or another rank is gone; then executor and channel are of no use.
    void step() {
        step([] {});
    }
    /// Calls `ran()` in between: `program()` and `times()` are of the step that ended then. What it reports comes to
    /// rank 0 after one of the next steps.
    template <class Ran> void step(const Ran& ran) {
        try {
            advance();
            channel_.begin_minimum(vote_);
            runner_.step();
            ran();
            settle(channel_.minimum());
        } catch (const execution_error& e) {
            cancel(e.operation(), e.reason());
            throw;
        } catch (...) {
            cancel("a handover", caught_reason());
            throw;
        }
    }

    /// As of `runner`.
    bool probe(execution::transfer_probe<Executor>& by, const operation& what, std::size_t bytes) {
        return runner_.probe(by, what, bytes);
    }
    /// Sends a text to rank 0, on the channel that the handover uses.
    void report(std::string_view text) { channel_.report(std::string{other_report} + std::string{text}); }
    /// On rank 0: the next text that a rank has sent by `report`, in the order of each rank.
    [[nodiscard]] std::optional<execution::rank_text> next_report() {
        read_reports();
        if (reports_.empty()) return std::nullopt;
        auto next = std::move(reports_.front());
        reports_.pop_front();
        return next;
    }

    /// Of the program that the next step runs: the same on all ranks.
    [[nodiscard]] std::uint64_t version() const { return version_; }
    [[nodiscard]] const rank_program& program() const { return program_; }
    /// How many plans were taken or dropped: the same on all ranks.
    [[nodiscard]] std::uint64_t settled() const { return settled_; }
    /// Whether this rank has loaded a plan and waits for the others.
    [[nodiscard]] bool is_ready() const { return is_ready_; }
    /// Of the last plan that was taken or dropped.
    [[nodiscard]] const handover_result& last_result() const { return result_; }

    /// As of `runner`, of the program that runs.
    [[nodiscard]] auto times() const { return runner_.times(); }
    void forget_times() { runner_.forget_times(); }

private:
    using runner_type = runner<Executor, Model>;
    struct loaded_plan {
        std::unique_ptr<typename runner_type::loaded_program> loaded{};
        rank_program program{};
    };

    // What a report begins with.
    static constexpr char refusal = 'r';
    static constexpr char other_report = ' ';

    // What the minimum is of. Plan v is settled once no rank is below `refused(v)`; nobody votes on the next before.
    static constexpr std::uint64_t refused(std::uint64_t v) { return 2 * v; }
    static constexpr std::uint64_t ready(std::uint64_t v) { return 2 * v + 1; }

    /// By the preparer's thread.
    [[nodiscard]] execution::prepared_program prepare(const std::string& plan) const noexcept {
        execution::prepared_program made;
        try {
            made.program = execution::checked_program(make_(plan), channel_.self(), channel_.ranks());
            made.bound = runner_.bind(made.program);
        } catch (...) {
            made.refusal = caught_reason();
        }
        return made;
    }

    void publish_waiting() {
        if (!waiting_ || published_ > settled_) return;
        channel_.publish(*waiting_);
        waiting_.reset();
        ++published_;
    }
    /// Between two steps: as far as this rank gets with a plan by itself.
    void advance() {
        // Nothing comes before the last plan is settled.
        if (auto plan = channel_.next_published())
            preparer_.submit(std::move(*plan), std::make_shared<loaded_plan>(std::exchange(next_, {})));
        if (auto made = preparer_.poll()) load(std::move(*made));
    }
    void load(execution::prepared_program made) {
        const auto v = settled_ + 1;
        try {
            if (!made.bound) throw error{made.refusal};
            execution::check_same_work(made.program, program_);
            next_.loaded = runner_.load(std::move(*made.bound));
            next_.program = std::move(made.program);
            is_ready_ = true;
            vote_ = ready(v);
        } catch (...) {
            channel_.report(refusal + execution::refusal_of(channel_.self(), v, caught_reason()));
            vote_ = refused(v);
        }
    }
    /// After a step. All ranks come here with the same number.
    void settle(std::uint64_t least) {
        if (least < refused(settled_ + 1)) return;
        ++settled_;
        vote_ = ready(settled_);
        result_ = {settled_, least == ready(settled_), {}};
        if (result_.accepted) {
            version_ = settled_;
            next_.loaded = runner_.replace(std::move(next_.loaded));
            std::swap(program_, next_.program);
        }
        is_ready_ = false;
        if (channel_.self() != rank{0}) return;
        read_reports();
        result_.refusals = std::exchange(refusals_, {});
        publish_waiting();
    }
    /// By rank 0.
    void read_reports() {
        while (auto next = channel_.next_report()) {
            const char what = next->text.empty() ? other_report : next->text.front();
            next->text.erase(0, 1);
            if (what == refusal)
                refusals_.push_back(std::move(next->text));
            else
                reports_.push_back(std::move(*next));
        }
    }
    void cancel(const std::string& what_it_did, const std::string& reason) {
        executor_.cancel(what_it_did, reason);
        channel_.cancel(what_it_did, reason);
    }

    Executor& executor_;
    Channel& channel_;
    program_maker make_;
    rank_program program_;
    runner_type runner_;
    std::uint64_t version_ = 0;
    std::uint64_t settled_ = 0;
    std::uint64_t vote_ = ready(0);
    /// The plan that is under way, once it is loaded; else what was replaced or dropped last, until the preparer
    /// destroys it as the next plan comes.
    loaded_plan next_;
    bool is_ready_ = false;
    handover_result result_;
    /// On rank 0.
    std::uint64_t published_ = 0;
    std::optional<std::string> waiting_;
    std::vector<std::string> refusals_;
    std::deque<execution::rank_text> reports_;
    /// Goes first: it uses all of the above.
    execution::program_preparer preparer_;
};

} // namespace optpipe
