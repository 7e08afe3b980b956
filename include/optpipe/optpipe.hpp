#pragma once

/// All of OptPipe that the build at hand has. JSON is part of it where the target `optpipe::io` found nlohmann_json.

#include "optpipe/core.hpp"
#include "optpipe/io.hpp"
#include "optpipe/pipeline.hpp"
#include "optpipe/schedule.hpp"
