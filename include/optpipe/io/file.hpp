#pragma once

#include "optpipe/core/compiled.hpp"
#include "optpipe/core/error.hpp"

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace optpipe {
namespace detail {

/// The path at the end of a chain of symbolic links. The file itself may be missing.
[[nodiscard]] std::string follow_links(std::string path);
[[nodiscard]] std::string read_all(std::FILE* file, const std::string& path, std::size_t max_bytes);

} // namespace detail

/// The entire content of a file. Pipes are read to their end. Throws `file_error` if the file is unreadable or exceeds
/// `max_bytes`.
[[nodiscard]] std::string read_file(const std::string& path, std::size_t max_bytes = std::size_t{1} << 30U);

/// Writes the entire content or nothing. The content is written to a new file in the same directory. The new file is
/// flushed and then renamed. If writing fails, throws `file_error`, leaves an existing file unchanged, and leaves no
/// new file. Removes temporary files that killed processes left in the directory. Devices and pipes are written
/// directly. An existing file keeps its permissions. Symbolic links are followed.
void write_file(const std::string& path, std::string_view content);

/// Throws the `file_error` of `write_file`, except for a full disk. A full disk can't be detected without writing.
/// Creates and changes no files, but removes temporary files of killed processes. Pipes and devices are not opened.
void probe_file(const std::string& path);

} // namespace optpipe

#if OPTPIPE_DEFINES(io)
#include "optpipe/core/parse_number.hpp"
#include "optpipe/core/replace_file.hpp"
#include "optpipe/core/system.hpp"
#include "optpipe/io/escape.hpp"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

namespace optpipe {
namespace detail {

[[noreturn]] inline void file_failure(std::string_view what, const std::string& path, const std::string& why) {
    throw file_error{"cannot " + std::string{what} + " '" + printable(path, 400) + "': " + why};
}

inline std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] inline void file_failure(std::string_view what, const std::string& path, int error_number) {
    file_failure(what, path, reason_of(error_number));
}

/// The number N in the path /dev/fd/N or /proc/self/fd/N; empty for other paths.
inline std::optional<int> inherited_descriptor(std::string_view path) {
    for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
        if (!path.starts_with(prefix)) continue;
        const auto number = parse_number<int>(path.substr(prefix.size()));
        if (number && *number >= 0) return number;
    }
    return std::nullopt;
}

OPTPIPE_INLINE std::string follow_links(std::string path) {
    constexpr int most_links = 40;
    // A descriptor's link isn't followed, because a descriptor is an open file and not a name.
    for (int i = 0; i < most_links && !inherited_descriptor(path); ++i) {
        std::error_code none;
        const auto next = std::filesystem::read_symlink(path, none);
        if (none || next.empty()) break;
        path = (std::filesystem::path{path}.parent_path() / next).string();
    }
    return path;
}

/// Writes to a device, pipe or open file, which renaming can't replace.
inline void write_in_place(const std::string& path, const std::string& target, std::string_view content) {
    const auto inherited = inherited_descriptor(target);
    file_handle file{inherited ? open_inherited(*inherited) : std::fopen(target.c_str(), "ab")};
    if (!file || !write_all(file.get(), content) || !close_checked(file)) file_failure("write", path, errno);
}

/// The destination of a write after following symbolic links.
struct destination {
    std::string target;
    /// Whether the destination is a device, a pipe or an open file.
    bool in_place = false;
    /// Permissions of an existing file at the destination.
    std::optional<std::filesystem::perms> mode{};
};

inline destination destination_of(const std::string& path) {
    if (path.empty() || path.back() == '/') file_failure("write", path, "this is no name of a file");
    destination to{follow_links(path)};
    std::error_code failure;
    const auto status = std::filesystem::status(to.target, failure);
    const bool exists = std::filesystem::exists(status);
    if (!exists && failure != std::errc::no_such_file_or_directory) file_failure("write", path, failure.message());
    if (std::filesystem::is_directory(status)) file_failure("write", path, EISDIR);
    to.in_place = (exists && !std::filesystem::is_regular_file(status)) || inherited_descriptor(to.target);
    if (exists) to.mode = status.permissions();
    return to;
}

/// Opens a temporary file that will be renamed to the destination.
inline temporary_file replacement_of(const std::string& path, const destination& to) {
    if (to.mode && !may_write(to.target.c_str())) file_failure("write", path, errno);
    const auto parent = std::filesystem::path{to.target}.parent_path();
    const auto folder = parent.empty() ? std::filesystem::path{"."} : parent;
    remove_left_overs(folder);
    return temporary_file{folder};
}

inline void expect_open(const std::string& path, const temporary_file& temporary) {
    if (!temporary.is_open())
        file_failure("write", path, "no file can be created in its directory: " + reason_of(errno));
}

inline void replace_file(const std::string& path, const destination& to, std::string_view content) {
    auto temporary = replacement_of(path, to);
    expect_open(path, temporary);
    std::error_code failure;
    if (to.mode) std::filesystem::permissions(temporary.path(), *to.mode, failure);
    if (failure) file_failure("write", path, failure.message());
    if (!temporary.write(content) || !temporary.replace(to.target)) file_failure("write", path, errno);
}

inline std::string size_text(std::size_t bytes) {
    constexpr std::size_t mebibyte = std::size_t{1} << 20U;
    return bytes >= mebibyte ? std::to_string(bytes / mebibyte) + " MiB" : std::to_string(bytes) + " bytes";
}

OPTPIPE_INLINE std::string read_all(std::FILE* file, const std::string& path, std::size_t max_bytes) {
    constexpr std::size_t least_block = std::size_t{1} << 16U;
    std::setvbuf(file, nullptr, _IONBF, 0);
    std::string content;
    std::size_t size = 0;
    while (std::feof(file) == 0) {
        if (size == content.size()) content.resize(size + (size < least_block ? least_block : size));
        size += std::fread(content.data() + size, 1, content.size() - size, file);
        if (size > max_bytes) file_failure("read", path, "it is larger than " + size_text(max_bytes));
        if (std::ferror(file) == 0) continue;
        if (errno != EINTR) file_failure("read", path, errno);
        std::clearerr(file);
    }
    content.resize(size);
    return content;
}

} // namespace detail

OPTPIPE_INLINE std::string read_file(const std::string& path, std::size_t max_bytes) {
    std::error_code failure;
    const auto status = std::filesystem::status(path, failure);
    if (failure) detail::file_failure("read", path, failure.message());
    if (std::filesystem::is_directory(status)) detail::file_failure("read", path, EISDIR);
    if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(path, failure) > max_bytes && !failure)
        detail::file_failure("read", path, "it is larger than " + detail::size_text(max_bytes));
    const auto file = detail::open_file(path, "rb");
    if (!file) detail::file_failure("read", path, errno);
    return detail::read_all(file.get(), path, max_bytes);
}

OPTPIPE_INLINE void write_file(const std::string& path, std::string_view content) {
    const auto to = detail::destination_of(path);
    if (to.in_place) return detail::write_in_place(path, to.target, content);
    detail::replace_file(path, to, content);
}

OPTPIPE_INLINE void probe_file(const std::string& path) {
    const auto to = detail::destination_of(path);
    if (!to.in_place) return detail::expect_open(path, detail::replacement_of(path, to));
    const auto inherited = detail::inherited_descriptor(to.target);
    const bool may_write = inherited ? detail::is_writable(*inherited) : detail::may_write(to.target.c_str());
    if (!may_write) detail::file_failure("write", path, errno);
}

} // namespace optpipe
#endif
