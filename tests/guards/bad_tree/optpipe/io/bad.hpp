#include <nlohmann/json.hpp>
#include <optpipe/planner/plan.hpp>
#include <optpipe/testing/oracle.hpp> // expect: io may not include testing
