#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/execution/control_star.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/threads/control_channel.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace optpipe::mpi {

/// Carries the letters of this rank's control channel, on the communicator of the notices, with a tag of their own. For
/// the thread that calls MPI. Sends are synchronous: what has gone has been received.
class control_mail {
public:
    explicit control_mail(const communicator& by) : by_{by} {}
    control_mail(const control_mail&) = delete;
    control_mail& operator=(const control_mail&) = delete;
    ~control_mail() {
        // To one that is gone, or from it: MPI may use them yet.
        for (auto& each : sent_)
            static_cast<void>(each.release());
        static_cast<void>(coming_.release());
    }

    /// Sends what is in the outbox, and hands over what has come. Whether there was anything. Throws what can't be
    /// sent.
    bool carry(threads::control_channel& of, std::mutex& mutex) {
        std::unique_lock lock{mutex};
        const auto outbox = of.take_outbox();
        lock.unlock();
        for (const auto& [to, what] : outbox)
            send(to, what);
        sweep();
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
    /// Whether all that was sent has been taken by its receivers.
    [[nodiscard]] bool has_gone() const { return sent_.empty(); }
    /// Called by all ranks once none sends new letters: receives and drops what is still coming, until whatever any
    /// rank has sent was received. Whether that came about in time.
    [[nodiscard]] bool finish(std::chrono::milliseconds patience) noexcept {
        const auto deadline = std::chrono::steady_clock::now() + patience;
        MPI_Request all_received = MPI_REQUEST_NULL;
        try {
            for (bool entered = false; std::chrono::steady_clock::now() < deadline; std::this_thread::yield()) {
                while (receive())
                    coming_.reset();
                sweep();
                if (!entered && sent_.empty()) {
                    check(MPI_Ibarrier(by_.native(), &all_received), "MPI_Ibarrier");
                    entered = true;
                }
                if (!entered) continue;
                int there = 0;
                check(MPI_Test(&all_received, &there, MPI_STATUS_IGNORE), "MPI_Test");
                if (there) return true;
            }
        } catch (const error&) { // what is left is left behind, as if its sender were gone
        }
        return false;
    }

private:
    using letter = execution::control_letter;
    /// Notices have 0.
    static constexpr int tag = 1;
    static constexpr std::size_t header = 1 + sizeof(std::uint64_t);

    struct transfer {
        rank peer{};
        std::string text{};
        MPI_Request request = MPI_REQUEST_NULL;
    };

    void send(rank to, const letter& what) {
        auto now = std::make_unique<transfer>(transfer{to});
        now->text.resize(header);
        now->text[0] = static_cast<char>(what.kind);
        std::memcpy(now->text.data() + 1, &what.value, sizeof what.value);
        now->text += what.text;
        if (now->text.size() > std::numeric_limits<int>::max())
            throw optpipe::error{"mpi: a text of " + std::to_string(what.text.size()) + " bytes is too long"};
        check(MPI_Issend(now->text.data(), static_cast<int>(now->text.size()), MPI_CHAR, static_cast<int>(to.value()),
                         tag, by_.native(), &now->request),
              "MPI_Issend");
        sent_.push_back(std::move(now));
    }
    void sweep() {
        sent_.erase(std::remove_if(sent_.begin(), sent_.end(),
                                   [](const auto& each) {
                                       int gone = 0;
                                       return MPI_Test(&each->request, &gone, MPI_STATUS_IGNORE) == MPI_SUCCESS && gone;
                                   }),
                    sent_.end());
    }
    /// Whether the next one is all there, in `coming_`. One at a time, so that they keep their order.
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
        coming_ = std::make_unique<transfer>(
            transfer{rank{status.MPI_SOURCE}, std::string(static_cast<std::size_t>(size), '\0')});
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
    std::vector<std::unique_ptr<transfer>> sent_;
    std::unique_ptr<transfer> coming_;
};

} // namespace optpipe::mpi
