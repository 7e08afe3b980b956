#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/control_star.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/mpi/outgoing_texts.hpp"
#include "optpipe/execution/threads/control_channel.hpp"

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace optpipe::mpi {

/// Carries the letters of this rank's control channel. Letters and notices share a communicator, but differ in the tag.
/// Only the thread that calls MPI may use this class. Sends are synchronous: the send of a letter completes only when
/// the letter has been received.
class control_mail {
public:
    explicit control_mail(const communicator& by) : by_{by} {}
    control_mail(const control_mail&) = delete;
    control_mail& operator=(const control_mail&) = delete;
    ~control_mail() { static_cast<void>(coming_.release()); } // MPI may still write to this memory

    /// Sends the letters in the outbox, and delivers the letters that have arrived. Returns whether a letter was sent
    /// or delivered. Throws if a letter can't be sent.
    bool carry(threads::control_channel& of, std::mutex& mutex) {
        std::unique_lock lock{mutex};
        const auto outbox = of.take_outbox();
        lock.unlock();
        for (const auto& [to, what] : outbox)
            send(to, what);
        bool came = false;
        for (; receive(); came = true) {
            auto what = read();
            lock.lock();
            of.take(coming_->peer, std::move(what));
            lock.unlock();
            coming_.reset();
        }
        return came || !outbox.empty();
    }
    /// Whether the receivers have taken all letters sent.
    [[nodiscard]] bool has_gone() { return sent_.are_done(); }
    /// Discards arriving letters until every rank has received all its letters. All ranks must call this function once
    /// no rank sends new letters. Returns whether all letters were received in time.
    [[nodiscard]] bool finish(std::chrono::milliseconds patience) noexcept {
        const auto deadline = std::chrono::steady_clock::now() + patience;
        MPI_Request all_received = MPI_REQUEST_NULL;
        try {
            for (bool entered = false; std::chrono::steady_clock::now() < deadline; std::this_thread::yield()) {
                while (receive())
                    coming_.reset();
                if (!entered && sent_.are_done()) {
                    check(MPI_Ibarrier(by_.native(), &all_received), "MPI_Ibarrier");
                    entered = true;
                }
                if (!entered) continue;
                int there = 0;
                check(MPI_Test(&all_received, &there, MPI_STATUS_IGNORE), "MPI_Test");
                if (there) return true;
            }
        } catch (const error&) { // the remaining letters aren't received, as if their sender were gone
        }
        return false;
    }

private:
    using letter = execution::control_letter;
    /// Notices have tag 0.
    static constexpr int tag = 1;
    static constexpr std::size_t header = 1 + sizeof(std::uint64_t);

    struct arrival {
        rank peer{};
        std::string text{};
        MPI_Request request = MPI_REQUEST_NULL;
    };

    void send(rank to, const letter& what) {
        std::string text(header, static_cast<char>(what.kind));
        std::memcpy(text.data() + 1, &what.value, sizeof what.value);
        sent_.send(by_, to, tag, outgoing_texts::completion::received, text + what.text);
    }
    /// Whether the next letter has arrived completely in `coming_`. Letters are received one at a time, to keep their
    /// order.
    bool receive() {
        if (!coming_ && !begin_receiving()) return false;
        int there = 0;
        check(MPI_Test(&coming_->request, &there, MPI_STATUS_IGNORE), "MPI_Test");
        return there != 0;
    }
    bool begin_receiving() {
        int there = 0;
        MPI_Status status;
        check(MPI_Iprobe(MPI_ANY_SOURCE, tag, by_.native(), &there, &status), "MPI_Iprobe");
        if (!there) return false;
        int size = 0;
        check(MPI_Get_count(&status, MPI_CHAR, &size), "MPI_Get_count");
        coming_ = std::make_unique<arrival>(
            arrival{rank{status.MPI_SOURCE}, std::string(static_cast<std::size_t>(size), '\0')});
        check(MPI_Irecv(coming_->text.data(), size, MPI_CHAR, status.MPI_SOURCE, tag, by_.native(), &coming_->request),
              "MPI_Irecv");
        return true;
    }
    [[nodiscard]] letter read() const {
        const auto& text = coming_->text;
        if (text.size() < header) throw optpipe::error{"mpi: a letter that can't be read"};
        letter what{static_cast<letter::kind_type>(text[0]), 0, text.substr(header)};
        std::memcpy(&what.value, text.data() + 1, sizeof what.value);
        return what;
    }

    const communicator& by_;
    outgoing_texts sent_;
    std::unique_ptr<arrival> coming_;
};

} // namespace optpipe::mpi
