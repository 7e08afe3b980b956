#define OPTPIPE_COMPILING OPTPIPE_UNIT_io
#include <optpipe/io/chrome_trace.hpp>
#include <optpipe/io/file.hpp>
#include <optpipe/io/html.hpp>
#if defined(OPTPIPE_HAS_JSON)
#include <optpipe/io/json_layers.hpp>
#include <optpipe/io/json_model_config.hpp>
#include <optpipe/io/json_problem.hpp>
#include <optpipe/io/json_profile.hpp>
#include <optpipe/io/json_schedule.hpp>
#endif
#include <optpipe/io/megatron.hpp>
#include <optpipe/io/pytorch_actions.hpp>
#include <optpipe/io/pytorch_csv.hpp>
#include <optpipe/io/pytorch_messages.hpp>
#include <optpipe/io/schedule_document.hpp>
#include <optpipe/io/svg.hpp>
#include <optpipe/io/text.hpp>
#include <optpipe/io/text_differences.hpp>
#include <optpipe/io/text_grid.hpp>
#include <optpipe/io/text_idle.hpp>
#include <optpipe/io/text_profile.hpp>
#include <optpipe/io/text_storage.hpp>
#include <optpipe/io/text_table.hpp>
#include <optpipe/io/write_json.hpp>
#include <optpipe/io/write_programs.hpp>
