#include "terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace program {

std::size_t columns() {
    if (const char* given = std::getenv("COLUMNS")) { // NOLINT(concurrency-mt-unsafe): nothing here changes it
        const std::string_view text{given};
        std::size_t count = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
        if (code == std::errc{} && end == text.data() + text.size() && count > 0) return count;
    }
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    constexpr std::size_t without_terminal = 100;
    return without_terminal;
}

} // namespace program
