#pragma once

#include "optpipe/core/standard.hpp"

#include <functional>
#include <stop_token>
#include <utility>

namespace optpipe {

/// A stop source that follows another stop token.
class linked_stop {
public:
    explicit linked_stop(std::stop_token other) : follow_{std::move(other), [this] { source_.request_stop(); }} {}
    linked_stop(const linked_stop&) = delete;
    linked_stop& operator=(const linked_stop&) = delete;

    void request_stop() { source_.request_stop(); }
    [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

private:
    std::stop_source source_{};
    std::stop_callback<std::function<void()>> follow_;
};

} // namespace optpipe
