#pragma once

#include "optpipe/formulation/formulate.hpp"
#include "optpipe/formulation/named_plan.hpp"
#include "optpipe/formulation/options.hpp"
#include "optpipe/formulation/priority_schedule.hpp"
#include "optpipe/formulation/schedule_of.hpp"
#include "optpipe/formulation/search_hooks.hpp"
#include "optpipe/formulation/values_of.hpp"
