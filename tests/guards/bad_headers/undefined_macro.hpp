#pragma once

#include "optpipe/core/standard.hpp"

#if OPTPIPE_DEFINED_NOWHERE
#endif
