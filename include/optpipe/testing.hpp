#pragma once

#include "optpipe/testing/archetypes.hpp"
#include "optpipe/testing/builders.hpp"
