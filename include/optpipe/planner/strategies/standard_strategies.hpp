#pragma once

#include "optpipe/planner/strategies/adaptive_strategy.hpp"
#include "optpipe/planner/strategies/cp_strategy.hpp"
#include "optpipe/planner/strategies/local_search_strategy.hpp"
#include "optpipe/planner/strategies/milp_strategy.hpp"
#include "optpipe/planner/strategies/modulo_strategy.hpp"
#include "optpipe/planner/strategies/order_strategy.hpp"
#include "optpipe/planner/strategies/propagation_strategy.hpp"
#include "optpipe/planner/strategies/rescheduling_strategy.hpp"
