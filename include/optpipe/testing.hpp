#pragma once

#include "optpipe/testing/archetypes.hpp"
