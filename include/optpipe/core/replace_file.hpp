#pragma once

#include "optpipe/core/system.hpp"

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace optpipe::detail {

struct close_file {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
/// An open file that is closed on destruction. Null if the file couldn't be opened.
using file_handle = std::unique_ptr<std::FILE, close_file>;

inline file_handle open_file(const std::filesystem::path& path, const char* mode) {
    return file_handle{std::fopen(path.string().c_str(), mode)};
}

/// Writes all of `content`, without buffering. Returns false, and sets `errno`, on failure.
[[nodiscard]] inline bool write_all(std::FILE* file, std::string_view content) {
    std::setvbuf(file, nullptr, _IONBF, 0);
    while (!content.empty()) {
        content.remove_prefix(std::fwrite(content.data(), 1, content.size(), file));
        if (content.empty()) break;
        if (errno != EINTR) return false;
        std::clearerr(file);
    }
    return true;
}

/// Closes the file. Returns false and sets `errno` on failure. Some file systems report a full disk only when a file is
/// closed.
[[nodiscard]] inline bool close_checked(file_handle& file) { return std::fclose(file.release()) == 0; }

inline constexpr std::string_view temporary_prefix = ".optpipe-";
inline constexpr std::string_view temporary_suffix = ".tmp";

/// Returns the process id in the name of a temporary file, or 0 for other names.
[[nodiscard]] inline long maker_of(std::string_view name) {
    if (!name.starts_with(temporary_prefix) || !name.ends_with(temporary_suffix)) return 0;
    name.remove_prefix(temporary_prefix.size());
    long process = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), process);
    const bool number = failure == std::errc{} && process > 0 && end != name.data() + name.size() && *end == '-';
    return number ? process : 0;
}

/// Removes the temporary files that killed processes have left in a folder.
inline void remove_left_overs(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> left;
    std::error_code failure;
    for (std::filesystem::directory_iterator it{folder, failure}, end; !failure && it != end; it.increment(failure)) {
        const long maker = maker_of(it->path().filename().string());
        if (maker > 0 && !is_running(maker)) left.push_back(it->path());
    }
    for (const auto& path : left) {
        // A temporary file may belong to a process on another machine or in another container. Processes on other
        // machines can't be seen, but they hold the locks of their files.
        const auto file = open_file(path, "ab");
        std::error_code ignored;
        if (file && try_lock(file.get())) std::filesystem::remove(path, ignored);
    }
}

/// A new file in a folder. The destructor removes the file unless it has replaced another file. Functions that fail set
/// `errno`.
class temporary_file {
public:
    explicit temporary_file(const std::filesystem::path& folder) { create(folder); }
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() {
        file_.reset();
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove(path_, ignored);
    }

    [[nodiscard]] bool is_open() const { return file_ != nullptr; }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    /// Writes all of `content` through to the disk, then closes the file.
    [[nodiscard]] bool write(std::string_view content) {
        return write_all(file_.get(), content) && flush_to_disk(file_.get()) && close_checked(file_);
    }
    /// Atomically renames the file to `target`. A reader finds the old file or the complete new file.
    [[nodiscard]] bool replace(const std::filesystem::path& target) {
        std::error_code failure;
        std::filesystem::rename(path_, target, failure);
        if (failure) errno = failure.value();
        if (!failure) path_.clear();
        return !failure;
    }

private:
    void create(const std::filesystem::path& folder) {
        constexpr int most_attempts = 1000;
        for (int i = 0; i < most_attempts; ++i) {
            auto path = folder / (std::string{temporary_prefix} + std::to_string(process_number()) + "-" +
                                  std::to_string(i) + std::string{temporary_suffix});
            file_ = open_file(path, "wbx");
            if (file_) {
                static_cast<void>(try_lock(file_.get()));
                path_ = std::move(path);
                return;
            }
            if (errno != EEXIST) return;
        }
    }

    std::filesystem::path path_{};
    file_handle file_{};
};

} // namespace optpipe::detail
