#define OPTPIPE_COMPILING OPTPIPE_UNIT_milp
#include <optpipe/milp/check.hpp>
#include <optpipe/milp/io/read_lp.hpp>
#include <optpipe/milp/io/read_model.hpp>
#include <optpipe/milp/io/read_mps.hpp>
#include <optpipe/milp/io/write_lp.hpp>
#include <optpipe/milp/io/write_mps.hpp>
#include <optpipe/milp/model.hpp>
#include <optpipe/milp/options.hpp>
#include <optpipe/milp/presolve.hpp>
#include <optpipe/milp/result.hpp>
#include <optpipe/milp/search/run.hpp>
