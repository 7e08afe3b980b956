#pragma once

#include "optpipe/core/replace_file.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace optpipe::detail {

/// At most the first `most` bytes of a file. Empty if the file can't be read.
inline std::optional<std::string> read_cache_file(const std::filesystem::path& path, std::size_t most) {
    std::ifstream in{path, std::ios::binary};
    if (!in) return std::nullopt;
    std::string text;
    constexpr std::size_t block = std::size_t{1} << 16U;
    while (text.size() < most && in) {
        const auto size = text.size();
        text.resize(size + std::min(block, most - size));
        in.read(text.data() + size, static_cast<std::streamsize>(text.size() - size));
        text.resize(size + static_cast<std::size_t>(in.gcount()));
    }
    if (in.bad()) return std::nullopt;
    return text;
}

/// Writes a temporary file and renames it atomically. Returns whether the file was written.
inline bool write_cache_file(const std::filesystem::path& path, std::string_view text) {
    temporary_file temporary{path.parent_path()};
    return temporary.is_open() && temporary.write(text) && temporary.replace(path);
}

/// The files of the plans in a folder, the latest first. The list is empty if the folder doesn't exist.
inline std::vector<std::filesystem::path> cached_plans(const std::filesystem::path& folder) {
    struct dated {
        std::filesystem::file_time_type time;
        std::filesystem::path path;
    };
    std::vector<dated> found;
    std::error_code failure;
    for (std::filesystem::directory_iterator it{folder, failure}, end; !failure && it != end; it.increment(failure)) {
        if (it->path().extension() != ".plan") continue;
        std::error_code gone;
        const auto time = it->last_write_time(gone);
        if (!gone) found.push_back({time, it->path()});
    }
    std::sort(found.begin(), found.end(),
              [](const dated& a, const dated& b) { return a.time != b.time ? a.time > b.time : a.path < b.path; });
    std::vector<std::filesystem::path> paths;
    for (auto& file : found)
        paths.push_back(std::move(file.path));
    return paths;
}

/// Removes all plans except the latest `most`, and temporary files of crashed writers.
inline void prune_cache_folder(const std::filesystem::path& folder, std::size_t most) {
    remove_left_overs(folder);
    std::error_code ignored;
    const auto plans = cached_plans(folder);
    for (auto i = most; i < plans.size(); ++i)
        std::filesystem::remove(plans[i], ignored);
}

} // namespace optpipe::detail
