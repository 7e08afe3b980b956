#include <optpipe/program/check.hpp>
#include <optpipe/program/lower.hpp>
