#pragma once

#include "optpipe/learning/luby.hpp"
#include "optpipe/learning/vsids.hpp"
