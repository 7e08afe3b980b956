#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/execution/mpi/communicator.hpp"
#include "optpipe/execution/mpi/error.hpp"

#include <mpi.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace optpipe::mpi {

/// Sent texts that MPI may still read. Only one thread at a time may use the list.
class outgoing_texts {
public:
    /// When a text counts as done.
    enum class completion {
        sent,     ///< when MPI no longer needs the text
        received, ///< when the receiver has taken the text
    };

    outgoing_texts() = default;
    outgoing_texts(const outgoing_texts&) = delete;
    outgoing_texts& operator=(const outgoing_texts&) = delete;
    ~outgoing_texts() {
        are_done();
        for (auto& each : texts_)
            static_cast<void>(each.release()); // MPI may still read this text
    }

    /// Throws `optpipe::error` if the text is too long, or if MPI refuses the text.
    void send(const communicator& by, rank to, int tag, completion until, std::string what) {
        if (what.size() > std::numeric_limits<int>::max())
            throw optpipe::error{"mpi: a text of " + std::to_string(what.size()) + " bytes is too long"};
        auto now = std::make_unique<text>(text{std::move(what)});
        const auto size = static_cast<int>(now->bytes.size());
        const auto peer = static_cast<int>(to.value());
        if (until == completion::sent)
            check(MPI_Isend(now->bytes.data(), size, MPI_CHAR, peer, tag, by.native(), &now->request), "MPI_Isend");
        else
            check(MPI_Issend(now->bytes.data(), size, MPI_CHAR, peer, tag, by.native(), &now->request), "MPI_Issend");
        are_done(); // removes finished texts, to keep the list short in a long run
        texts_.push_back(std::move(now));
    }
    /// Removes finished texts, and returns whether no texts are left.
    bool are_done() {
        std::erase_if(texts_, [](const auto& each) {
            int gone = 0;
            return MPI_Test(&each->request, &gone, MPI_STATUS_IGNORE) == MPI_SUCCESS && gone;
        });
        return texts_.empty();
    }

private:
    struct text {
        std::string bytes;
        MPI_Request request = MPI_REQUEST_NULL;
    };
    std::vector<std::unique_ptr<text>> texts_;
};

} // namespace optpipe::mpi
