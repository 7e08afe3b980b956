#pragma once

#include "optpipe/core/standard.hpp"

#include <exception>
#include <string>

namespace optpipe {

/// In a handler: what the exception says.
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
