#pragma once

#include "optpipe/io/json_layers.hpp"
#include "optpipe/io/json_model_config.hpp"
#include "optpipe/io/json_problem.hpp"
#include "optpipe/io/json_profile.hpp"
#include "optpipe/io/json_schedule.hpp"
#include "optpipe/io/json_trace.hpp"
#include "optpipe/io/schedule_document.hpp"
#include "optpipe/io/write_json.hpp"
