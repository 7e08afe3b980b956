#define OPTPIPE_COMPILING OPTPIPE_UNIT_programs
#include <optpipe/program/check.hpp>
#include <optpipe/program/lower.hpp>
#include <optpipe/program/step_shape.hpp>
