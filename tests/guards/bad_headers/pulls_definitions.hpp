#pragma once

#include <optpipe/milp/lp/simplex.hpp>
