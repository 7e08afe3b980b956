#pragma once

#include "optpipe/io/view_window.hpp"

namespace optpipe {

struct svg_options {
    /// Width of the figure in pixels. If 0, the number of operations determines the width.
    double width = 0.0;
    bool labels = true;
    bool transfers = true;
    bool memory = true;
    view_window window{};
};

} // namespace optpipe
