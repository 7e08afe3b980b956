#include <optpipe/planner/plan_search.hpp>
