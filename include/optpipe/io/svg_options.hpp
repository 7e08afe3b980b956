#pragma once

#include "optpipe/io/view_window.hpp"

namespace optpipe {

struct svg_options {
    /// Width of the whole figure in pixels. If 0, the width follows from the number of operations.
    double width = 0.0;
    bool labels = true;
    bool transfers = true;
    bool memory = true;
    view_window window{};
};

} // namespace optpipe
