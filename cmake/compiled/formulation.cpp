#define OPTPIPE_COMPILING OPTPIPE_UNIT_formulation
#include <optpipe/formulation/formulate.hpp>
#include <optpipe/formulation/named_plan.hpp>
#include <optpipe/formulation/operation_table.hpp>
#include <optpipe/formulation/priority_schedule.hpp>
#include <optpipe/formulation/schedule_of.hpp>
#include <optpipe/formulation/search_hooks.hpp>
#include <optpipe/formulation/solution_text.hpp>
#include <optpipe/formulation/values_of.hpp>
