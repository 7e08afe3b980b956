#pragma once

#include "optpipe/core/bounded_text.hpp"
#include "optpipe/core/container.hpp"
#include "optpipe/core/contract.hpp"
#include "optpipe/core/error.hpp"
#include "optpipe/core/extent.hpp"
#include "optpipe/core/format.hpp"
#include "optpipe/core/index.hpp"
#include "optpipe/core/outcome.hpp"
#include "optpipe/core/quantity.hpp"
#include "optpipe/core/random.hpp"
#include "optpipe/core/tolerance.hpp"
#include "optpipe/version.hpp"
