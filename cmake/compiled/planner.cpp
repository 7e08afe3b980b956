#define OPTPIPE_COMPILING OPTPIPE_UNIT_planner
#include <optpipe/planner/alternatives.hpp>
#include <optpipe/planner/background_planner.hpp>
#include <optpipe/planner/bounds/pair_area.hpp>
#include <optpipe/planner/bounds/single_device.hpp>
#include <optpipe/planner/bounds/storage_mix.hpp>
#include <optpipe/planner/cache/canonical.hpp>
#include <optpipe/planner/cache/plan_cache.hpp>
#include <optpipe/planner/partition.hpp>
#include <optpipe/planner/plan_search.hpp>
#include <optpipe/planner/portfolio/concurrent_portfolio.hpp>
#include <optpipe/planner/portfolio/deterministic_portfolio.hpp>
#include <optpipe/planner/portfolio/processor_share.hpp>
#include <optpipe/planner/portfolio/run_log.hpp>
#include <optpipe/planner/portfolio/search_state.hpp>
