#pragma once

#include <has_name.hpp>

name no_name() { return {}; }
