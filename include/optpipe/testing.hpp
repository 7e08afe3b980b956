#pragma once

#include "optpipe/testing/archetypes.hpp"
#include "optpipe/testing/builders.hpp"
#include "optpipe/testing/check_builder.hpp"
#include "optpipe/testing/problem_code.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "optpipe/testing/shrink_problem.hpp"
