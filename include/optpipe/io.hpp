#pragma once

#include "optpipe/io/chrome_trace.hpp"
#include "optpipe/io/file.hpp"
#include "optpipe/io/html.hpp"
#if defined(OPTPIPE_HAS_JSON)
#include "optpipe/io/json.hpp"
#endif
#include "optpipe/io/layout.hpp"
#include "optpipe/io/megatron.hpp"
#include "optpipe/io/pytorch_actions.hpp"
#include "optpipe/io/pytorch_csv.hpp"
#include "optpipe/io/pytorch_messages.hpp"
#include "optpipe/io/schedule_document.hpp"
#include "optpipe/io/svg.hpp"
#include "optpipe/io/text.hpp"
#include "optpipe/io/write_json.hpp"
#include "optpipe/io/write_programs.hpp"
