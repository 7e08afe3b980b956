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

/// Makes the programs of all ranks from the text of a plan. If the function throws, the rank refuses the plan.
using program_maker = std::function<per_rank<rank_program>(const std::string& plan)>;

/// The outcome of a published plan.
struct handover_result {
    /// The number of the plan, counted from 1. The program with which a run starts has number 0.
    std::uint64_t version = 0;
    bool accepted = false;
    /// On rank 0, the reason of each rank that refused the plan.
    std::vector<std::string> refusals{};
};

/// Runs one rank's program step after step, and can switch to a better plan. All ranks switch between the same two
/// steps, or none does.
///
/// Rank 0 publishes a plan as text. On each rank, a thread makes, checks and binds the programs of the plan. All
/// programs of a rank share lanes and markers. Between two steps, the training thread opens the additional lanes and
/// markers. A rank is ready once the additional lanes and markers are open.
///
/// In every step, each rank votes on the new plan: not ready, refused, or ready. The result of a vote is the minimum
/// over all ranks. Ranks vote before a step, and read the result after the step. After the step, all ranks switch to
/// the plan, drop the plan, or wait. `settle_plan` votes without a step until the plan is settled.
///
/// A rank refuses a plan if its programs can't be made or have errors (`check_programs`). A rank also refuses to change
/// its stages or microbatches, or to exceed its memory, lanes or markers. If a rank refuses, all ranks keep their
/// current program.
///
/// The channel must belong to the executor. Use `control` of a `threads::cluster` or an `mpi::member`. For NCCL, use
/// the channel of a `bootstrap::tcp_control` or an `mpi::control`. Steps must be issued, because a captured step would
/// keep running the old program.
///
/// Contract: all ranks make the same calls of `step` and `settle_plan`. Executor, model and channel outlive the
/// handover. No other code uses the channel while the handover exists. Only the thread that issues may use the
/// handover.
template <class Executor, class Model, execution::control_channel Channel> class handover {
public:
    /// Starts with the program `first`. Each arena has the larger of the sizes in `first` and `room`. A thread of the
    /// handover calls `make`, for one plan at a time. Throws the exceptions of the constructor of `runner`.
    handover(const rank_program& first, Executor& on, Model& model, Channel& channel, program_maker make,
             const execution::arena_sizes& room = {}, const execution::buffer_owners& owners = {})
        : executor_{on}, channel_{channel}, make_{std::move(make)}, program_{first}, runner_{first, on, model, room,
                                                                                             owners},
          preparer_{[this](const std::string& plan) { return prepare(plan); }} {}
    handover(const handover&) = delete;
    handover& operator=(const handover&) = delete;

    /// Publishes a plan. Must be called on rank 0. All ranks switch to the plan once all are ready. If another plan is
    /// under way, the new plan waits. A newer plan replaces a waiting plan.
    void publish(std::string plan) {
        OPTPIPE_EXPECT(channel_.self() == rank{0}, "handover: rank 0 publishes plans");
        waiting_ = std::move(plan);
        publish_waiting();
    }

    /// Runs one complete step. After the step, switches to a new plan if all ranks are ready. Throws `execution_error`
    /// if the step can't be completed, or if another rank is gone. After an error, executor and channel are unusable.
    void step() {
        step([] {});
    }
    /// Runs a step like `step()`, and calls `ran()` before any handover. During `ran`, `program()` and `times()` belong
    /// to the step that just ended. Reports made in `ran` reach rank 0 after a later step.
    template <class Ran> void step(const Ran& ran) {
        cancel_if_it_fails([&] {
            advance();
            channel_.begin_minimum(vote_);
            runner_.step();
            ran();
            settle(channel_.minimum());
        });
    }
    /// Waits, without running a step, until the published plan is accepted or dropped. Needed if a plan is made for the
    /// next step only. Throws the same exceptions as `step`. Contract: all ranks call `settle_plan`, and rank 0 has
    /// published exactly one unsettled plan.
    const handover_result& settle_plan() {
        cancel_if_it_fails([&] {
            for (const auto before = settled_; settled_ == before;) {
                advance();
                preparer_.wait(); // avoids votes before the plan is prepared
                advance();
                channel_.begin_minimum(vote_);
                settle(channel_.minimum());
            }
        });
        return result_;
    }

    /// See `runner::probe`.
    bool probe(execution::transfer_probe<Executor>& by, const operation& what, std::size_t bytes) {
        return runner_.probe(by, what, bytes);
    }
    /// Sends a text to rank 0, on the channel that the handover uses.
    void report(std::string_view text) { channel_.report(std::string{other_report} + std::string{text}); }
    /// The next text that a rank has sent by `report`. Must be called on rank 0. Texts of the same rank stay in order.
    [[nodiscard]] std::optional<execution::rank_text> next_report() {
        read_reports();
        if (reports_.empty()) return std::nullopt;
        auto next = std::move(reports_.front());
        reports_.pop_front();
        return next;
    }

    /// Number of the plan that the next step runs. The same on all ranks.
    [[nodiscard]] std::uint64_t version() const { return version_; }
    [[nodiscard]] const rank_program& program() const { return program_; }
    /// Number of plans that have been accepted or dropped. The same on all ranks.
    [[nodiscard]] std::uint64_t settled() const { return settled_; }
    /// Whether this rank has loaded a plan and waits for the other ranks.
    [[nodiscard]] bool is_ready() const { return is_ready_; }
    /// The outcome of the last plan that was accepted or dropped.
    [[nodiscard]] const handover_result& last_result() const { return result_; }

    /// The measured times of the current program's instructions. See `runner::times`.
    [[nodiscard]] auto times() const { return runner_.times(); }
    void forget_times() { runner_.forget_times(); }

private:
    using runner_type = runner<Executor, Model>;
    struct loaded_plan {
        std::unique_ptr<typename runner_type::loaded_program> loaded{};
        rank_program program{};
    };

    // The first character of a report tells whether the report is a refusal.
    static constexpr char refusal = 'r';
    static constexpr char other_report = ' ';

    // The votes on plan `v`. The plan is settled once all ranks have voted at least `refused(v)`. No rank votes on a
    // later plan before plan `v` is settled.
    static constexpr std::uint64_t refused(std::uint64_t v) { return 2 * v; }
    static constexpr std::uint64_t ready(std::uint64_t v) { return 2 * v + 1; }

    /// Called by the preparer's thread.
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
    /// Called while no step runs. Takes the next published plan, or loads a plan that has been prepared. Doesn't wait
    /// for other ranks.
    void advance() {
        // The next plan arrives only after the previous plan was accepted or dropped.
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
    /// Called after a vote, with the least vote of all ranks.
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
    /// Separates refusals of plans from texts that ranks have sent by `report`. Must be called on rank 0.
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
    template <class Call> void cancel_if_it_fails(const Call& call) {
        try {
            call();
        } catch (const execution_error& e) {
            cancel(e.operation(), e.reason());
            throw;
        } catch (...) {
            cancel("a handover", caught_reason());
            throw;
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
    /// Holds the plan under way, once this rank has loaded the plan. Before a plan is loaded, holds the last plan that
    /// was replaced or dropped. The preparer destroys a replaced or dropped plan when the next plan arrives.
    loaded_plan next_;
    bool is_ready_ = false;
    handover_result result_;
    /// Number of published plans; used only on rank 0.
    std::uint64_t published_ = 0;
    std::optional<std::string> waiting_;
    std::vector<std::string> refusals_;
    std::deque<execution::rank_text> reports_;
    /// The preparer is destroyed first, because its thread uses all members above.
    execution::program_preparer preparer_;
};

} // namespace optpipe
