#pragma once

#include "optpipe/core/error.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <thread>

namespace optpipe::bootstrap {

/// Hands `bytes` of rank 0 to all ranks through a file that all of them see. The path must be new for each run: what an
/// earlier one left there would be taken for this one's.
///
/// Rank 0 returns at once; the others when the file has come, or throw after `patience`.
inline void share_by_file(std::span<std::byte> bytes, const std::filesystem::path& path, int rank,
                          std::chrono::milliseconds patience) {
    const auto size = static_cast<std::streamsize>(bytes.size());
    if (rank == 0) {
        // Written beside it and renamed, so that nobody reads half of it.
        auto unfinished = path;
        unfinished += "." + std::to_string(getpid()) + ".tmp";
        std::ofstream out{unfinished, std::ios::binary};
        out.write(reinterpret_cast<const char*>(bytes.data()), size);
        out.close();
        std::error_code failed;
        if (out) std::filesystem::rename(unfinished, path, failed);
        if (!out || failed) {
            std::error_code ignored;
            std::filesystem::remove(unfinished, ignored);
            throw file_error{path.string() + ": can't be written"};
        }
        return;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        std::ifstream in{path, std::ios::binary};
        if (in.read(reinterpret_cast<char*>(bytes.data()), size)) return;
        if (std::chrono::steady_clock::now() >= deadline)
            throw file_error{path.string() + ": rank " + std::to_string(rank) + " waited " +
                             std::to_string(patience.count()) + " ms for rank 0 to write it"};
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
}

} // namespace optpipe::bootstrap
