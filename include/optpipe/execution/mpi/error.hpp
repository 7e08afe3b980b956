#pragma once

#include "optpipe/core/error.hpp"

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

namespace optpipe::mpi {

/// A call of MPI that failed. Only communicators of ours return: on the caller's, MPI's own handler may end the job.
/// MPICH (4.0) tells the handler of MPI_COMM_WORLD of a message that is too long, whatever communicator it is on: there
/// set MPI_ERRORS_RETURN for that, if it is to be an exception.
class error : public optpipe::error {
public:
    error(int code, const std::string& what) : optpipe::error{what + ": " + text_of(code)}, code_{code} {}
    [[nodiscard]] int code() const { return code_; }

    [[nodiscard]] static std::string text_of(int code) {
        std::array<char, MPI_MAX_ERROR_STRING> text{};
        int length = 0;
        if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return "error " + std::to_string(code);
        return {text.data(), static_cast<std::size_t>(length)};
    }

private:
    int code_;
};

/// Other ranks that didn't come in time.
class timeout_error : public optpipe::error {
public:
    using optpipe::error::error;
};

inline void check(int code, const char* call) {
    if (code != MPI_SUCCESS) throw error{code, call};
}

/// Whether the request is over before the patience is. MPI can only be asked, so this naps in between.
[[nodiscard]] inline bool wait(MPI_Request& request, std::chrono::milliseconds patience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        int done = 0;
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done) return true;
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds{50});
    }
}

} // namespace optpipe::mpi
