#pragma once

#include "optpipe/io/view_window.hpp"

namespace optpipe {

struct svg_options {
    /// Of the whole figure, in pixels; 0: as wide as the number of operations asks for.
    double width = 0.0;
    bool labels = true;
    bool transfers = true;
    bool memory = true;
    view_window window{};
};

} // namespace optpipe
