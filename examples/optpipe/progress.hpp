#pragma once

#include <optpipe/core/format.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/planner/portfolio/search_state.hpp>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <iostream>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace program {

/// One line on standard error that is rewritten during a search, and erased at the end.
class progress_line {
public:
    /// `unit` is the unit of time, with a space before it.
    explicit progress_line(std::string unit)
        : unit_{std::move(unit)}, writer_{[this](const std::stop_token& stop) { write_until(stop); }} {}
    progress_line(const progress_line&) = delete;
    progress_line& operator=(const progress_line&) = delete;
    ~progress_line() {
        writer_.request_stop();
        writer_.join();
        std::cerr << '\r' << std::string(width_, ' ') << '\r' << std::flush;
    }

    void show(const optpipe::search_step& step) {
        const std::scoped_lock lock{mutex_};
        last_ = step;
    }

    /// For example "incumbent 8766.31 ms (adaptive), bound 7614.32 ms, gap 13.1 %, 3 s".
    [[nodiscard]] std::string text_of(const optpipe::search_step& step, double seconds) const {
        std::string text = step.objective.is_unlimited() ? "no schedule yet"
                                                         : "incumbent " + optpipe::format_number(step.objective) +
                                                               unit_ + " (" + step.strategy + ")";
        text += ", bound " + optpipe::format_number(step.bound) + unit_;
        if (!step.objective.is_unlimited() && step.objective > optpipe::duration{})
            text +=
                ", gap " + optpipe::format_number(100.0 * optpipe::relative_gap(step.objective, step.bound), 3) + " %";
        return text + ", " + optpipe::format_number(seconds, 3) + " s";
    }

private:
    void write_until(const std::stop_token& stop) {
        const auto begin = std::chrono::steady_clock::now();
        std::condition_variable_any sleeper;
        for (std::unique_lock lock{mutex_}; !stop.stop_requested();) {
            constexpr std::chrono::milliseconds interval{100};
            sleeper.wait_for(lock, stop, interval, [] { return false; });
            if (!last_) continue;
            const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
            const auto text = text_of(*last_, std::floor(10.0 * elapsed.count()) / 10.0);
            std::cerr << '\r' << text << std::string(width_ > text.size() ? width_ - text.size() : 0, ' ')
                      << std::flush;
            width_ = text.size();
        }
    }

    std::string unit_;
    std::mutex mutex_{};
    std::optional<optpipe::search_step> last_{};
    std::size_t width_ = 0;
    std::jthread writer_;
};

} // namespace program
