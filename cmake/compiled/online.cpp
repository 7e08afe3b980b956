#define OPTPIPE_COMPILING OPTPIPE_UNIT_online
#include <optpipe/online/controller.hpp>
#include <optpipe/online/online_state.hpp>
#include <optpipe/online/plan_text.hpp>
#include <optpipe/online/room_for_plans.hpp>
#include <optpipe/online/step_planner.hpp>
