#pragma once

#include "optpipe/core/standard.hpp"

#include <exception>
#include <string>

namespace optpipe {

/// Text of the exception that is being handled. May be called only within a handler.
[[nodiscard]] inline std::string caught_reason() {
    try {
        throw;
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "an exception that isn't a std::exception";
    }
}

} // namespace optpipe
