#define OPTPIPE_COMPILING_core 1
#include <optpipe/core/contract.hpp>
