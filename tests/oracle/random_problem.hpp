#pragma once

#include "optpipe/testing/random_problem.hpp"

namespace oracle {

using optpipe::random_numbers;
using optpipe::testing::make_random_problem;
using optpipe::testing::problem_ranges;
using optpipe::testing::random_problem;

} // namespace oracle
