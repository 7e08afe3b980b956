#pragma once

#include "optpipe/testing/check_builder.hpp"
#include "optpipe/testing/problem_code.hpp"
#include "optpipe/testing/random_problem.hpp"
#include "optpipe/testing/shrink_problem.hpp"
