#pragma once

#include <stop_token>
#include <thread>

namespace program {

/// While it lives, the first SIGINT or SIGTERM requests a stop instead of ending the program; the next one ends it. A
/// signal that is ignored stays ignored, as with nohup. Only one may exist at a time.
class interruption {
public:
    /// `tells`: whether the first signal prints a line on standard error.
    explicit interruption(bool tells);
    interruption(const interruption&) = delete;
    interruption& operator=(const interruption&) = delete;
    ~interruption();

    [[nodiscard]] std::stop_token token() const { return source_.get_token(); }
    [[nodiscard]] bool is_requested() const { return source_.stop_requested(); }

private:
    void watch(bool tells);

    std::stop_source source_{};
    int read_end_ = -1;
    int write_end_ = -1;
    std::thread watcher_{};
};

} // namespace program
