#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/core/replace_file.hpp"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace optpipe::bootstrap {

/// Distributes `bytes` of rank 0 to all ranks through a file that all ranks can read. Each run needs a new path.
///
/// Rank 0 returns at once. The other ranks return when the file has appeared. A rank throws if the file doesn't appear
/// within `patience`.
inline void share_by_file(std::span<std::byte> bytes, const std::filesystem::path& path, int rank,
                          std::chrono::milliseconds patience) {
    if (rank == 0) {
        const auto folder = path.parent_path();
        optpipe::detail::temporary_file file{folder.empty() ? "." : folder};
        const std::string_view content{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
        if (!file.is_open() || !file.write(content) || !file.replace(path))
            throw file_error{path.string() + ": can't be written: " + std::generic_category().message(errno)};
        return;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    for (;;) {
        std::ifstream in{path, std::ios::binary};
        if (in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) return;
        if (std::chrono::steady_clock::now() >= deadline)
            throw file_error{path.string() + ": rank " + std::to_string(rank) + " waited " +
                             std::to_string(patience.count()) + " ms for rank 0 to write it"};
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
}

} // namespace optpipe::bootstrap
