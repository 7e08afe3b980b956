#pragma once

#include "commands.hpp"

namespace program {

/// Plans several numbers of microbatches (`plan_options::microbatches`) with the same samples, and writes and prints
/// the best plan. Returns the exit status. Only with the MILP solver (OPTPIPE_HAS_MILP).
int plan_sizes(const plan_options& options);

} // namespace program
