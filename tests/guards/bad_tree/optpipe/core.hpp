#include <optpipe/core/index.hpp>
#  include "optpipe/testing.hpp" // expect: core may not include testing
