#pragma once

#include "optpipe/core/error.hpp"
#include "optpipe/io/escape.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace optpipe {
namespace detail {

[[noreturn]] inline void file_failure(std::string_view what, const std::string& path, const std::string& why) {
    throw file_error{"cannot " + std::string{what} + " '" + printable(path, 400) + "': " + why};
}

inline std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] inline void file_failure(std::string_view what, const std::string& path, int error_number) {
    file_failure(what, path, reason_of(error_number));
}

/// An open file, closed when it goes.
class descriptor {
public:
    explicit descriptor(int number) : number_{number} {}
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
    ~descriptor() {
        if (number_ >= 0) ::close(number_);
    }

    [[nodiscard]] int number() const { return number_; }
    [[nodiscard]] bool is_open() const { return number_ >= 0; }
    /// Closes it and says whether that went well. Some file systems report a full disk only here.
    [[nodiscard]] bool close() { return ::close(std::exchange(number_, -1)) == 0; }

private:
    int number_;
};

[[nodiscard]] inline bool write_all(int number, std::string_view content) {
    while (!content.empty()) {
        const auto written = ::write(number, content.data(), content.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        content.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

inline std::string directory_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

/// The number N of /dev/fd/N and /proc/self/fd/N.
inline std::optional<int> inherited_descriptor(std::string_view path) {
    for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
        if (!path.starts_with(prefix)) continue;
        int number = -1;
        const auto digits = path.substr(prefix.size());
        const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (code == std::errc{} && end == digits.data() + digits.size() && number >= 0) return number;
    }
    return std::nullopt;
}

/// The file that a chain of symbolic links ends at; it need not exist.
inline std::string follow_links(std::string path) {
    constexpr int most_links = 40;
    std::array<char, 4096> target{};
    // What is behind a descriptor isn't a name that could be replaced, but an open file.
    for (int i = 0; i < most_links && !inherited_descriptor(path); ++i) {
        const auto length = ::readlink(path.c_str(), target.data(), target.size());
        if (length <= 0) break;
        const std::string_view next(target.data(), static_cast<std::size_t>(length));
        path = next.front() == '/' ? std::string{next} : directory_of(path).append(next);
    }
    return path;
}

/// For devices, pipes and open files, where nothing can be renamed.
inline void write_in_place(const std::string& path, const std::string& target, std::string_view content) {
    const auto inherited = inherited_descriptor(target);
    descriptor file{inherited ? ::dup(*inherited) : ::open(target.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC)};
    if (!file.is_open() || !write_all(file.number(), content)) file_failure("write", path, errno);
    if (!file.close()) file_failure("write", path, errno);
}

/// A new file beside the target, removed when it goes unless it has taken the target's place.
class temporary_file {
public:
    explicit temporary_file(const std::string& directory) : path_{}, file_{create(directory, path_)} {}
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() {
        if (is_open_ && !replaced_) ::unlink(path_.c_str());
    }

    [[nodiscard]] bool is_open() const { return is_open_; }
    [[nodiscard]] bool set_mode(mode_t mode) { return ::fchmod(file_.number(), mode) == 0; }
    [[nodiscard]] bool write(std::string_view content) {
        return write_all(file_.number(), content) && flush() && file_.close();
    }
    [[nodiscard]] bool replace(const std::string& target) {
        replaced_ = ::rename(path_.c_str(), target.c_str()) == 0;
        return replaced_;
    }

private:
    static int create(const std::string& directory, std::string& path) {
        constexpr int most_attempts = 1000;
        for (int i = 0; i < most_attempts; ++i) {
            path = directory + ".optpipe-" + std::to_string(::getpid()) + "-" + std::to_string(i) + ".tmp";
            const int number = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (number >= 0 || errno != EEXIST) return number;
        }
        return -1;
    }
    // EINVAL: a file system that has nothing to flush.
    [[nodiscard]] bool flush() const { return ::fsync(file_.number()) == 0 || errno == EINVAL; }

    std::string path_;
    descriptor file_;
    bool is_open_ = file_.is_open();
    bool replaced_ = false;
};

inline void replace_file(const std::string& path, const std::string& target, std::optional<mode_t> mode,
                         std::string_view content) {
    if (mode && ::access(target.c_str(), W_OK) != 0) file_failure("write", path, errno);
    temporary_file temporary{directory_of(target)};
    if (!temporary.is_open())
        file_failure("write", path, "no file can be created in its directory: " + reason_of(errno));
    if ((mode && !temporary.set_mode(*mode)) || !temporary.write(content) || !temporary.replace(target))
        file_failure("write", path, errno);
}

inline std::string size_text(std::size_t bytes) {
    constexpr std::size_t mebibyte = std::size_t{1} << 20U;
    return bytes >= mebibyte ? std::to_string(bytes / mebibyte) + " MiB" : std::to_string(bytes) + " bytes";
}

inline std::string read_all(int number, const std::string& path, std::size_t max_bytes) {
    constexpr std::size_t least_block = std::size_t{1} << 16U;
    std::string content;
    std::size_t size = 0;
    while (true) {
        if (size == content.size()) content.resize(size + (size < least_block ? least_block : size));
        const auto count = ::read(number, content.data() + size, content.size() - size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) file_failure("read", path, errno);
        if (count == 0) break;
        size += static_cast<std::size_t>(count);
        if (size > max_bytes) file_failure("read", path, "it is larger than " + size_text(max_bytes));
    }
    content.resize(size);
    return content;
}

} // namespace detail

/// The whole content; pipes are read to their end. Throws `file_error` if it can't be read or holds more than
/// `max_bytes`.
[[nodiscard]] inline std::string read_file(const std::string& path, std::size_t max_bytes = std::size_t{1} << 30U) {
    detail::descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
    struct stat status {};
    if (!file.is_open() || ::fstat(file.number(), &status) != 0) detail::file_failure("read", path, errno);
    if (S_ISDIR(status.st_mode)) detail::file_failure("read", path, EISDIR);
    if (S_ISREG(status.st_mode) && static_cast<std::size_t>(status.st_size) > max_bytes)
        detail::file_failure("read", path, "it is larger than " + detail::size_text(max_bytes));
    return detail::read_all(file.number(), path, max_bytes);
}

/// All of it or nothing: the content is written to a new file in the same directory, flushed, and renamed. Where that
/// fails, an existing file stays as it was, nothing is left behind, and `file_error` is thrown. Devices and pipes are
/// written directly. An existing file keeps its permissions; symbolic links are followed.
inline void write_file(const std::string& path, std::string_view content) {
    if (path.empty() || path.back() == '/') detail::file_failure("write", path, "this is no name of a file");
    const auto target = detail::follow_links(path);
    struct stat status {};
    const bool exists = ::stat(target.c_str(), &status) == 0;
    if (!exists && errno != ENOENT) detail::file_failure("write", path, errno);
    if (exists && S_ISDIR(status.st_mode)) detail::file_failure("write", path, EISDIR);
    if ((exists && !S_ISREG(status.st_mode)) || detail::inherited_descriptor(target))
        return detail::write_in_place(path, target, content);
    const auto mode = exists ? std::optional<mode_t>{status.st_mode & 07777U} : std::nullopt;
    detail::replace_file(path, target, mode, content);
}

} // namespace optpipe
