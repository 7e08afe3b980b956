#pragma once

#include "optpipe/schedule/bounds/structural_bounds.hpp"
#include "optpipe/schedule/builders/all.hpp"
#include "optpipe/schedule/builders/builder.hpp"
#include "optpipe/schedule/construct/interleave.hpp"
#include "optpipe/schedule/operation.hpp"
#include "optpipe/schedule/schedule.hpp"
#include "optpipe/schedule/time/differences.hpp"
#include "optpipe/schedule/time/evaluate.hpp"
#include "optpipe/schedule/time/measure.hpp"
#include "optpipe/schedule/time/report.hpp"
#include "optpipe/schedule/time/simulate.hpp"
#include "optpipe/schedule/time/validate.hpp"
