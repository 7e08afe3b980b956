#define OPTPIPE_COMPILING OPTPIPE_UNIT_execution
#include <optpipe/execution/bound_program.hpp>
#include <optpipe/execution/control_star.hpp>
#include <optpipe/execution/gradient_state.hpp>
#include <optpipe/execution/measured.hpp>
#include <optpipe/execution/post_validation.hpp>
#include <optpipe/execution/program_preparer.hpp>
#include <optpipe/execution/threads/control_channel.hpp>
#include <optpipe/execution/threads/executor.hpp>
#include <optpipe/execution/threads/failure.hpp>
#include <optpipe/execution/threads/host_links.hpp>
#include <optpipe/execution/threads/lane.hpp>
#include <optpipe/execution/threads/marker.hpp>
#include <optpipe/execution/threads/options.hpp>
#include <optpipe/execution/threads/rendezvous.hpp>
#include <optpipe/execution/threads/world.hpp>
