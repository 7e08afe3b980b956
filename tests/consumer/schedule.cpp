#include <optpipe/schedule.hpp>
