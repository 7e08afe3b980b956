#pragma once

#include "optpipe/execution/error.hpp"
#include "optpipe/execution/mpi/agreement.hpp"
#include "optpipe/execution/mpi/byte_type.hpp"
#include "optpipe/execution/mpi/clock.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/control_mail.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/mpi/message_tags.hpp"
#include "optpipe/execution/threads/clock.hpp"
#include "optpipe/execution/threads/control_channel.hpp"
#include "optpipe/execution/threads/rendezvous.hpp"
#include "optpipe/execution/threads/world.hpp"
#include "optpipe/program/ir.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::mpi {

/// Carries the messages of one rank's lanes over MPI. A single thread makes all MPI calls. Lanes hand their sends and
/// receives to the thread that calls MPI, and wait. Activations and gradients have separate communicators, each with
/// messages in order. Sends are synchronous: an exchange ends only after the matching exchanges have started. The
/// thread that calls MPI also carries the letters of the control channel.
class post_office final : public threads::message_carrier, private threads::control_carrier, private threads::wakeable {
public:
    using milliseconds = std::chrono::milliseconds;

    /// Returns when all ranks have joined. Synchronizes the clock of `of` with the clocks of the other ranks.
    post_office(MPI_Comm among, milliseconds patience, threads::world& of)
        : world_{of}, patience_{patience}, forward_{among, patience}, backward_{among, patience},
          tags_{forward_.largest_tag()}, agreement_{in_time(communicator{among, patience}, patience, of), patience},
          control_{self(), of.ranks, patience, of.failed, mutex_, *this}, mail_{agreement_.by()}, registration_{
                                                                                                      of.failed,
                                                                                                      *this} {
        thread_ = std::thread{[this] { serve(); }};
    }
    post_office(const post_office&) = delete;
    post_office& operator=(const post_office&) = delete;
    ~post_office() { leave(); }

    void offer(rank, const threads::message_offer& mine) override {
        const std::scoped_lock lock{mutex_};
        offered_.push_back(mine);
        changed_.notify_one();
    }
    void withdraw(rank, const threads::message_offer&) override { await_end(); }

    [[nodiscard]] threads::control_channel& control() { return control_; }

    /// To be called after a failure. Waits until none of this rank's work runs, and returns the common error of all
    /// ranks.
    [[nodiscard]] execution_error verdict() override {
        await_end();
        const auto what = agreement_.verdict() ? *agreement_.verdict() : world_.failed.what();
        if (agreement_.missing().empty()) return what;
        return {what.rank(), what.operation(), what.reason() + "; " + agreement_.missing()};
    }
    /// Waits until all ranks want to leave. The lanes must be destroyed before the call.
    void leave() noexcept {
        {
            const std::scoped_lock lock{mutex_};
            leaving_ = true;
            changed_.notify_one();
        }
        if (!thread_.joinable()) return;
        thread_.join();
        if (!agreement_.missing().empty()) return;
        if (!mail_.finish(patience_)) return;
        for (auto* each : {&forward_, &backward_, &agreement_.by()})
            each->free_at_end();
    }
    /// Whether the run failed and some rank didn't answer at the end. Must be called after `leave`.
    [[nodiscard]] bool has_lost_rank() const {
        return world_.failed.happened().load() && !agreement_.missing().empty();
    }

private:
    /// A running send or receive. A message to be discarded has its own buffer.
    struct transfer {
        threads::message_offer what{};
        std::unique_ptr<std::byte[]> discarded{};
    };

    static communicator in_time(communicator by, milliseconds patience, threads::world& of) {
        of.clock = threads::shared_clock{common_begin(by, patience)};
        return by;
    }
    void wake() noexcept override {
        const std::scoped_lock lock{mutex_};
        wake_locked();
    }
    void wake_locked() noexcept {
        woken_ = true;
        changed_.notify_one();
    }
    void carry(threads::control_channel&) override { wake_locked(); }
    void await_end() {
        std::unique_lock lock{mutex_};
        ending_.wait(lock, [&] { return ended_; });
    }

    void serve() {
        threads::sleep_precisely();
        while (!agreement_.is_over())
            rest(step());
        const std::scoped_lock lock{mutex_};
        ended_ = true;
        ending_.notify_all();
    }
    /// Makes progress where possible. Returns whether there was any progress.
    bool step() {
        bool moved = false;
        try {
            if (!broken_) moved = carry();
        } catch (const std::exception& e) {
            broken_ = true;
            fail("carrying messages", e.what());
        }
        try {
            if (world_.failed.happened().load()) agreement_.report(world_.failed.what());
            if (is_done()) agreement_.done();
            moved |= agreement_.poll();
            if (const auto& v = agreement_.verdict(); v && !stopped_)
                world_.failed.report(v->rank(), v->operation(), v->reason());
        } catch (const std::exception& e) {
            fail("telling the other ranks", e.what());
            agreement_.give_up();
        }
        return moved;
    }
    bool carry() {
        if (world_.failed.happened().load() && !stopped_) stop();
        bool moved = post_offers();
        moved |= complete();
        moved |= mail_.carry(control_, mutex_);
        if (stopped_)
            for (const auto* by : {&forward_, &backward_})
                moved |= discard(*by);
        return moved;
    }
    [[nodiscard]] bool is_done() {
        const std::scoped_lock lock{mutex_};
        return (stopped_ || leaving_) && requests_.empty() && !control_.has_outgoing() && mail_.has_gone();
    }
    void fail(const std::string& operation, const std::string& reason) {
        world_.failed.report(self(), operation, reason);
    }
    [[nodiscard]] rank self() const { return rank{forward_.rank()}; }

    /// Sleeps for a short time while messages are running, and for longer otherwise. An offer or a failure ends the
    /// sleep.
    void rest(bool moved) {
        const auto now = std::chrono::steady_clock::now();
        if (moved) last_move_ = now;
        if (now - last_move_ < std::chrono::microseconds{50}) return std::this_thread::yield();
        std::unique_lock lock{mutex_};
        const std::chrono::microseconds nap{requests_.empty() && !control_.is_waited_for() ? 500 : 50};
        changed_.wait_for(lock, nap, [&] { return woken_ || !offered_.empty(); });
        woken_ = false;
    }

    bool post_offers() {
        {
            const std::scoped_lock lock{mutex_};
            posting_.clear();
            posting_.swap(offered_);
        }
        if (stopped_) return false; // after a failure, no lane waits for a message any longer
        for (const auto& each : posting_)
            try {
                post(each);
            } catch (const optpipe::error& e) {
                fail(to_string(each.label), e.what());
            }
        return !posting_.empty();
    }
    void post(const threads::message_offer& m) {
        const auto& by = direction_of(m.label.op) == message_direction::forward ? forward_ : backward_;
        const auto peer = static_cast<int>(m.label.peer.value());
        const byte_type type{m.bytes};
        MPI_Request request = MPI_REQUEST_NULL;
        if (m.sends)
            check(MPI_Issend(m.from, type.count(), type.native(), peer, tags_(m.label.op), by.native(), &request),
                  "MPI_Issend");
        else
            check(MPI_Irecv(m.to, type.count(), type.native(), peer, MPI_ANY_TAG, by.native(), &request), "MPI_Irecv");
        requests_.push_back(request);
        transfers_.push_back({m, nullptr});
    }

    bool complete() {
        if (requests_.empty()) return false;
        indices_.resize(requests_.size());
        statuses_.resize(requests_.size());
        int count = 0;
        const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, indices_.data(),
                                      statuses_.data());
        const bool in_status = code == MPI_ERR_IN_STATUS;
        if (!in_status) check(code, "MPI_Testsome");
        for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(count, 0)); ++i) {
            const auto& each = transfers_[static_cast<std::size_t>(indices_[i])];
            settle(each, statuses_[i], in_status ? statuses_[i].MPI_ERROR : MPI_SUCCESS);
        }
        forget_settled();
        return count > 0;
    }
    void settle(const transfer& t, const MPI_Status& status, int code) {
        int cancelled = 0;
        check(MPI_Test_cancelled(&status, &cancelled), "MPI_Test_cancelled");
        if (t.discarded || cancelled) return;
        const auto wrong = t.what.sends ? failure_of(code) : mistake_in(t.what, status, code);
        if (wrong.empty()) return t.what.gate->arrive(world_.clock.now());
        fail(to_string(t.what.label), wrong);
    }
    static std::string failure_of(int code) { return code == MPI_SUCCESS ? "" : error::text_of(code); }
    /// Describes the error in a received message. Empty if there is no error.
    [[nodiscard]] std::string mistake_in(const threads::message_offer& m, const MPI_Status& status, int code) const {
        int kind = MPI_SUCCESS;
        check(MPI_Error_class(code, &kind), "MPI_Error_class");
        if (kind != MPI_SUCCESS && kind != MPI_ERR_TRUNCATE) return error::text_of(code);
        if (status.MPI_TAG != tags_(m.label.op))
            return to_string(tags_.made_by(status.MPI_TAG)) + " came where " + to_string(m.label.op) + " was to come";
        const auto were_to_come = " bytes came where " + std::to_string(m.bytes) + " were to come";
        if (kind == MPI_ERR_TRUNCATE) return "more" + were_to_come;
        const auto bytes = bytes_of(status);
        return bytes == m.bytes ? "" : std::to_string(bytes) + were_to_come;
    }
    void forget_settled() {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) continue;
            std::swap(requests_[kept], requests_[i]);
            std::swap(transfers_[kept++], transfers_[i]);
        }
        requests_.resize(kept);
        transfers_.resize(kept);
    }

    /// Cancels all receives. Sends can't be cancelled, so receivers discard their messages (`discard`).
    void stop() {
        stopped_ = true;
        for (std::size_t i = 0; i < requests_.size(); ++i)
            if (!transfers_[i].what.sends) check(MPI_Cancel(&requests_[i]), "MPI_Cancel");
    }
    /// Receives and discards a message, so that its sender can free the buffer. Returns false if no message has
    /// arrived.
    bool discard(const communicator& by) {
        int there = 0;
        MPI_Status status;
        check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, by.native(), &there, &status), "MPI_Iprobe");
        if (!there) return false;
        const auto bytes = bytes_of(status);
        transfer t{{}, std::make_unique_for_overwrite<std::byte[]>(bytes)};
        const byte_type type{bytes};
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Irecv(t.discarded.get(), type.count(), type.native(), status.MPI_SOURCE, status.MPI_TAG, by.native(),
                        &request),
              "MPI_Irecv");
        requests_.push_back(request);
        transfers_.push_back(std::move(t));
        return true;
    }

    threads::world& world_;
    milliseconds patience_;
    communicator forward_;
    communicator backward_;
    message_tags tags_;
    agreement agreement_;

    std::mutex mutex_;
    threads::control_channel control_;
    control_mail mail_;
    std::condition_variable changed_, ending_;
    std::vector<threads::message_offer> offered_;
    bool woken_ = false;
    bool leaving_ = false;
    bool ended_ = false;

    // Members that only the thread that calls MPI uses.
    std::vector<threads::message_offer> posting_;
    std::vector<MPI_Request> requests_;
    std::vector<transfer> transfers_;
    std::vector<int> indices_;
    std::vector<MPI_Status> statuses_;
    std::chrono::steady_clock::time_point last_move_{};
    bool stopped_ = false;
    bool broken_ = false;

    threads::wake_registration registration_;
    std::thread thread_;
};

} // namespace optpipe::mpi
