#pragma once

#include "optpipe/schedule/bounds.hpp"
#include "optpipe/schedule/builder.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/differences.hpp"
#include "optpipe/schedule/evaluate.hpp"
#include "optpipe/schedule/interleave.hpp"
#include "optpipe/schedule/measure.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/report.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/simulate.hpp"
#include "optpipe/schedule/validate.hpp"
