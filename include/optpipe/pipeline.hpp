#pragma once

#include "optpipe/pipeline/costs.hpp"
#include "optpipe/pipeline/graph.hpp"
#include "optpipe/pipeline/least_memory.hpp"
#include "optpipe/pipeline/make_problem.hpp"
#include "optpipe/pipeline/memory_model.hpp"
#include "optpipe/pipeline/offload_policy.hpp"
#include "optpipe/pipeline/paths.hpp"
#include "optpipe/pipeline/placement.hpp"
#include "optpipe/pipeline/problem.hpp"
#include "optpipe/pipeline/transformer.hpp"
#include "optpipe/pipeline/validate_problem.hpp"
