#pragma once

#include "optpipe/core/error.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#if defined(OPTPIPE_HAS_ZLIB)
#include <zlib.h>
#endif

namespace optpipe::milp {
namespace detail {

/// The text as it is shown in messages. Characters other than printable ASCII become '?', and the text is cut to
/// `limit` characters.
inline std::string shown(std::string_view text, std::size_t limit = 60) {
    std::string result{text.substr(0, limit)};
    for (auto& c : result)
        if (c < ' ' || c > '~') c = '?';
    return text.size() > limit ? result + "..." : result;
}

[[noreturn]] inline void cannot_read(const std::string& path, const std::string& why) {
    constexpr std::size_t most_shown = 400;
    throw file_error{"cannot read '" + shown(path, most_shown) + "': " + why};
}

inline std::string larger_than(std::size_t bytes) { return "it is larger than " + std::to_string(bytes) + " bytes"; }

struct close_file {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
};

inline std::string read_bytes(const std::string& path, std::size_t max_bytes) {
    const auto reason = [] { return std::generic_category().message(errno); };
    const std::unique_ptr<std::FILE, close_file> file{std::fopen(path.c_str(), "rb")};
    if (!file) cannot_read(path, reason());
    std::string content;
    std::array<char, 1U << 16U> block{};
    while (const auto count = std::fread(block.data(), 1, block.size(), file.get())) {
        content.append(block.data(), count);
        if (content.size() > max_bytes) cannot_read(path, larger_than(max_bytes));
    }
    if (std::ferror(file.get()) != 0) cannot_read(path, reason());
    return content;
}

[[nodiscard]] inline bool is_gzip(std::string_view content) { return content.starts_with("\x1f\x8b"); }

#if defined(OPTPIPE_HAS_ZLIB)

/// Inflates concatenated gzip files, as `gzip -d` does.
class gunzip {
public:
    explicit gunzip(std::string_view compressed) {
        constexpr int gzip_window = 16 + MAX_WBITS;
        // zlib promises not to change the input.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
        left_ = compressed.size();
        is_good_ = ::inflateInit2(&stream_, gzip_window) == Z_OK;
    }
    gunzip(const gunzip&) = delete;
    gunzip& operator=(const gunzip&) = delete;
    ~gunzip() { ::inflateEnd(&stream_); }

    /// Decompresses the next part of the input and appends it to `text`. Returns whether more text may follow.
    [[nodiscard]] bool read(std::string& text) {
        if (!is_good_) return false;
        std::array<char, 1U << 16U> block{};
        stream_.next_out = reinterpret_cast<Bytef*>(block.data());
        stream_.avail_out = static_cast<uInt>(block.size());
        if (stream_.avail_in == 0) feed();
        const int status = ::inflate(&stream_, Z_NO_FLUSH);
        text.append(block.data(), block.size() - stream_.avail_out);
        is_whole_ = status == Z_STREAM_END;
        if (!is_whole_) return status == Z_OK;
        const bool another = stream_.avail_in + left_ > 0;
        return another && ::inflateReset(&stream_) == Z_OK;
    }
    [[nodiscard]] bool is_integral() const { return is_whole_; }

private:
    void feed() {
        constexpr std::size_t most = std::size_t{1} << 20U;
        const auto count = left_ < most ? left_ : most;
        stream_.avail_in = static_cast<uInt>(count);
        left_ -= count;
    }

    z_stream stream_{};
    std::size_t left_ = 0;
    bool is_good_ = false;
    bool is_whole_ = false;
};

inline std::string inflated(const std::string& path, std::string_view compressed, std::size_t max_bytes) {
    std::string text;
    gunzip source{compressed};
    for (bool more = true; more;) {
        more = source.read(text);
        if (text.size() > max_bytes) cannot_read(path, "uncompressed " + larger_than(max_bytes));
    }
    if (!source.is_integral()) cannot_read(path, "its compressed data is damaged or cut");
    return text;
}

#else

inline std::string inflated(const std::string& path, std::string_view, std::size_t) {
    cannot_read(path, "it is compressed, and this was built without zlib");
}

#endif

} // namespace detail

/// The whole content of a file. With zlib, gzip files of any name are decompressed. Throws `file_error` if the file
/// can't be read, or has more than `max_bytes`.
[[nodiscard]] inline std::string read_text(const std::string& path, std::size_t max_bytes = std::size_t{1} << 30U) {
    auto content = detail::read_bytes(path, max_bytes);
    return detail::is_gzip(content) ? detail::inflated(path, content, max_bytes) : content;
}

} // namespace optpipe::milp
