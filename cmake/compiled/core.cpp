#define OPTPIPE_COMPILING OPTPIPE_UNIT_core
#include <optpipe/core/contract.hpp>
