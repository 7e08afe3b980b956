#pragma once

#include "optpipe/core/index.hpp"
#include "optpipe/core/parse_number.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/error.hpp"
#include "optpipe/execution/mpi/outgoing_texts.hpp"

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace optpipe::mpi {

/// A notice between ranks, separate from messages.
struct notice {
    enum class kind_type : char {
        report = 'r',  ///< to rank 0: this rank has failed
        verdict = 'v', ///< from rank 0: the failure that ended the run
        heard = 'h',   ///< to rank 0: the verdict was received
        done = 'd',    ///< to rank 0: this rank has no running messages any longer
        over = 'o',    ///< from rank 0: the run is over; `reason` lists the ranks that haven't answered
    };
    kind_type kind = kind_type::done;
    optpipe::rank where{};
    std::string operation{};
    std::string reason{};

    /// Largest size of a notice in bytes. If a notice would be larger, its reason is cut.
    static constexpr std::size_t largest = 1024;

    [[nodiscard]] std::string text() const {
        auto all = std::string{static_cast<char>(kind)} + std::to_string(where.value()) + '\n' +
                   operation.substr(0, largest / 4) + '\n' + reason;
        return all.substr(0, largest);
    }
    [[nodiscard]] static notice read(std::string_view text) {
        const auto first = text.find('\n');
        const auto second = first == text.npos ? first : text.find('\n', first + 1);
        if (second == text.npos) throw optpipe::error{"mpi: a notice that can't be read"};
        const auto where = parse_number<std::uint32_t>(text.substr(1, first - 1));
        if (!where) throw optpipe::error{"mpi: a notice that can't be read"};
        return {static_cast<kind_type>(text.front()), optpipe::rank{*where},
                std::string{text.substr(first + 1, second - first - 1)}, std::string{text.substr(second + 1)}};
    }
};

/// Sends and receives notices on a separate communicator. Only one thread at a time may use a notice board.
class notice_board {
public:
    explicit notice_board(communicator by) : by_{std::move(by)} { listen(); }
    notice_board(const notice_board&) = delete;
    notice_board& operator=(const notice_board&) = delete;
    ~notice_board() {
        if (listening_ != MPI_REQUEST_NULL && MPI_Cancel(&listening_) == MPI_SUCCESS)
            static_cast<void>(MPI_Wait(&listening_, MPI_STATUS_IGNORE));
    }

    void send(optpipe::rank to, const notice& what) {
        sent_.send(by_, to, 0, outgoing_texts::completion::sent, what.text());
    }
    void send_to_others(const notice& what) {
        for (int to = 0; to < by_.ranks(); ++to)
            if (to != by_.rank()) send(optpipe::rank{to}, what);
    }
    struct received {
        int from;
        notice what;
    };
    /// The next notice that has arrived. Empty if no notice has arrived.
    [[nodiscard]] std::optional<received> next() {
        int come = 0;
        MPI_Status status;
        check(MPI_Test(&listening_, &come, &status), "MPI_Test");
        if (!come) return std::nullopt;
        int size = 0;
        check(MPI_Get_count(&status, MPI_CHAR, &size), "MPI_Get_count");
        received now{status.MPI_SOURCE, notice::read({room_.data(), static_cast<std::size_t>(size)})};
        listen();
        return now;
    }
    /// Whether all notices have been sent.
    [[nodiscard]] bool has_gone() { return sent_.are_done(); }
    [[nodiscard]] communicator& by() { return by_; }
    [[nodiscard]] const communicator& by() const { return by_; }

private:
    void listen() {
        check(MPI_Irecv(room_.data(), static_cast<int>(room_.size()), MPI_CHAR, MPI_ANY_SOURCE, 0, by_.native(),
                        &listening_),
              "MPI_Irecv");
    }

    communicator by_;
    std::array<char, notice::largest> room_{};
    MPI_Request listening_ = MPI_REQUEST_NULL;
    outgoing_texts sent_;
};

} // namespace optpipe::mpi
