#include <optpipe/io/chrome_trace.hpp>
#include <optpipe/io/html.hpp>
#if defined(OPTPIPE_HAS_JSON)
#include <optpipe/io/json_problem.hpp>
#include <optpipe/io/json_profile.hpp>
#include <optpipe/io/json_schedule.hpp>
#endif
#include <optpipe/io/svg.hpp>
