#pragma once

#include "optpipe/core/error.hpp"

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

namespace optpipe::mpi {

/// A failed call of MPI. Only this library's own communicators return errors. On the caller's communicators, MPI's
/// handler may end the job. If a message is too long, MPICH 4.0 always calls the handler of MPI_COMM_WORLD. To get an
/// exception for messages that are too long, set MPI_ERRORS_RETURN for MPI_COMM_WORLD.
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

/// Other ranks didn't arrive within the time limit.
class timeout_error : public optpipe::error {
public:
    using optpipe::error::error;
};

inline void check(int code, const char* call) {
    if (code != MPI_SUCCESS) throw error{code, call};
}

/// Waits for the request. Returns whether the request completes within `patience`. Sleeps briefly between queries,
/// because MPI can only be polled.
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
