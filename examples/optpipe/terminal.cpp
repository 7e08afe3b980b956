#include "terminal.hpp"

#include <optpipe/core/parse_number.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace program {

std::size_t columns() {
    if (const char* given = std::getenv("COLUMNS")) { // NOLINT(concurrency-mt-unsafe): nothing here changes it
        const auto count = optpipe::parse_number<std::size_t>(given);
        if (count && *count > 0) return *count;
    }
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    constexpr std::size_t without_terminal = 100;
    return without_terminal;
}

} // namespace program
