#define OPTPIPE_COMPILING_programs 1
#include <optpipe/program/check.hpp>
#include <optpipe/program/lower.hpp>
