#pragma once

#include "optpipe/parallel/arena.hpp"
#include "optpipe/parallel/workers.hpp"
