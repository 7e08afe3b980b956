#include <optpipe/core.hpp>
#include <optpipe/io/json.hpp>      // expect: pipeline may not include io
#include <optpipe/schedule.hpp>     // expect: pipeline may not include schedule
#include <optpipe/milp/model.hpp>   // expect: pipeline may not include milp
