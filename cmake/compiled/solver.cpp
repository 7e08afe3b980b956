#include <optpipe/milp/search/run.hpp>
